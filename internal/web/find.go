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

// find finds a run by its id, or by another name. exact is false for another name.
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

// named finds the run that a URL names. If the name is not the whole id, it redirects the reader to
// the URL that has the id, and found is false.
func (p *site) named(w http.ResponseWriter, r *http.Request) (run store.Run, found bool, err error) {
	name := r.PathValue("run")
	run, found, err = p.find(r.Context(), name)
	if !found && err == nil {
		to := url.URL{Path: "/runs/" + run.ID + r.URL.Path[len("/runs/")+len(name):], RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusFound)
	}
	return run, found, err
}

// missing returns the error for a name that means no run. It names the run with the nearest id.
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

// overviewOf reads a run. Its error describes what is wrong with the run: other runs are not
// harmed.
func (p *site) overviewOf(ctx context.Context, run store.Run) (*overview, error) {
	o, err := p.overviews.lately(ctx, run)
	if err == nil || errors.Is(err, service.ErrNotFound) || errors.Is(err, store.ErrClosed) || ctx.Err() != nil {
		return o, err
	}
	return nil, &pageError{http.StatusInternalServerError, "the run " + run.ID + " cannot be read: " + err.Error()}
}

// withoutFolder removes the path of the store from a text. The path is for people at the machine,
// and a page may have other readers.
func (p *site) withoutFolder(text string) string {
	dir := p.o.Service.Runner().Dir()
	return strings.ReplaceAll(strings.ReplaceAll(text, "the store "+dir, "the store"), dir, "the store")
}
