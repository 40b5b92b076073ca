package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// find finds a run by its id, or by what else names it; then exact is false.
func (p *site) find(ctx context.Context, name string) (run store.Run, exact bool, err error) {
	run, err = p.o.Service.Head(ctx, name)
	if !errors.Is(err, service.ErrNotFound) {
		return run, err == nil, err
	}
	other, err := p.o.Service.Runner().Find(ctx, name)
	if err != nil {
		return run, false, p.missing(ctx, name, err)
	}
	run, err = p.o.Service.Head(ctx, other.ID)
	return run, false, err
}

// named finds the run that a URL names. If it is not its whole id, the reader is sent to the URL that
// has that, and found is false.
func (p *site) named(w http.ResponseWriter, r *http.Request) (run store.Run, found bool, err error) {
	name := r.PathValue("run")
	run, found, err = p.find(r.Context(), name)
	if !found && err == nil {
		to := url.URL{Path: "/runs/" + run.ID + r.URL.Path[len("/runs/")+len(name):], RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusFound)
	}
	return run, found, err
}

// missing is what is said of a name that means no run, with the run whose id is nearest.
func (p *site) missing(ctx context.Context, name string, err error) error {
	wrong := new(runner.InputError)
	if !errors.As(err, &wrong) {
		return err
	}
	text := wrong.Error()
	if all, err := p.o.Service.Runner().Runs(ctx); err == nil && !strings.Contains(text, "did you mean") {
		var ids []string
		for _, r := range all {
			ids = append(ids, r.ID)
		}
		text += input.Suggest(name, ids)
	}
	return &pageError{http.StatusNotFound, text}
}

// overviewOf reads a run. What is wrong with it is said: other runs are not harmed.
func (p *site) overviewOf(ctx context.Context, run store.Run) (*overview, error) {
	o, err := p.overviews.lately(ctx, run)
	if err == nil || errors.Is(err, service.ErrNotFound) || errors.Is(err, store.ErrClosed) || ctx.Err() != nil {
		return o, err
	}
	return nil, &pageError{http.StatusInternalServerError, "the run " + run.ID + " cannot be read: " + err.Error()}
}

// withoutFolder leaves the path of the store out of a text. It is for whoever is at the machine, and a
// page is not.
func (p *site) withoutFolder(text string) string {
	dir := p.o.Service.Runner().Dir()
	return strings.ReplaceAll(strings.ReplaceAll(text, "the store "+dir, "the store"), dir, "the store")
}
