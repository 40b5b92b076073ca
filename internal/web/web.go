// Package web is the pages that people look at: the runs of a store, a run with its verdict, gates and
// rollouts, one rollout with its timeline, and what is waited for. They are made on the server, every
// state of a page is a URL, and everything works without JavaScript.
//
// It reads through package service, and shows the numbers of package report; it computes no score
// of its own. It knows no SQL and no permissions: package serve mounts its endpoints behind its
// guard. What agents, evaluators and people wrote is untrusted: it is shown as text, in which every
// control character is visible (visible.go).
package web

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/sse"
)

// Options are what the pages need.
type Options struct {
	Service *service.Service
	// Draining is closed when nobody is to wait any more.
	Draining <-chan struct{}
	// About notes what a request is about, for the audit log; nil drops it.
	About func(r *http.Request, object string)
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Log gets what goes wrong; nil drops it.
	Log *slog.Logger
}

// Pages are the pages of a store. Its methods may be called from several goroutines.
type Pages struct {
	o         Options
	overviews overviews
	tallies   tallies
	standings standings
	setFiles  setFiles
	// comparisons are the documents of comparisons, and rollouts the pages of rollouts that have ended as
	// they are for everybody: both by the revisions of what they are made of.
	comparisons remembered[*compared]
	rollouts    remembered[*rolloutPage]
	// origins say where runs were started, which never changes.
	origins remembered[service.Origin]
	// moments are what streams tell of runs, which all who look at a run share.
	moments *service.Feed[moment]
	// streams are those that tell of changes of runs, inboxes those that tell of changes of the inbox.
	streams, inboxes sse.Slots
}

// Endpoint is one URL of the pages.
type Endpoint struct {
	// Pattern is one of http.ServeMux.
	Pattern string
	// Scope is what a caller needs; with Open nobody is asked who they are.
	Scope access.Scope
	Open  bool
	// Audit names what is done; empty for what only reads.
	Audit   string
	Handler http.Handler
}

// maxRemembered is how many comparisons, and how many pages of rollouts, are remembered.
const maxRemembered = 8

// New makes the pages of a service.
func New(o Options) *Pages {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pages{o: o}
	p.streams.Most, p.inboxes.Most = maxStreams, maxStreams
	p.comparisons.most, p.rollouts.most, p.origins.most = maxRemembered, maxRemembered, maxStandings
	p.overviews = newOverviews(o.Service)
	p.tallies = tallies{service: o.Service, runs: map[string]tallied{}}
	p.standings = standings{store: o.Service.Runner(), runs: map[string]ended{}}
	p.moments = service.NewFeed(o.Service, livePause, p.moment)
	return p
}

// Endpoints are all URLs of the pages.
func (p *Pages) Endpoints() []Endpoint {
	read := func(pattern string, f func(http.ResponseWriter, *http.Request) error) Endpoint {
		return Endpoint{Pattern: "GET " + pattern, Scope: access.Read, Handler: p.handle(f)}
	}
	a := answers{p.o}
	return []Endpoint{
		{Pattern: "GET /static/{name}", Open: true, Handler: http.HandlerFunc(static)},
		read("/{$}", p.runs),
		read("/runs/{run}", p.run),
		read("/runs/{run}/columns", p.columns),
		read("/runs/{run}/live", p.live),
		read("/live", p.runsLive),
		read("/tabs", p.tabs),
		read("/triggers", p.triggers),
		read("/inbox", p.inbox),
		read("/compare", p.compare),
		read("/runs/{run}/download/{format}", p.downloadRun),
		read("/runs/{run}/rollouts/{rollout}/download/{value}", p.downloadRollout),
		read("/compare/download/{format}", p.downloadComparison),
		read("/compare/outputs", p.outputs),
		read("/compare/outputs/words", p.outputsInPlace),
		read("/inbox/live", p.inboxLive),
		read("/triggers/{id}/answer", a.outcome),
		read("/triggers/{id}/question", p.whole),
		{Pattern: "POST /triggers/{id}/answer", Scope: access.Read, Audit: "deliver", Handler: p.handle(a.answer)},
		read("/runs/{run}/rollouts/{rollout}", p.rollout),
		read("/runs/{run}/rollouts/{rollout}/why", p.why),
		read("/runs/{run}/rollouts/{rollout}/follow/{path...}", p.follow),
		read("/runs/{run}/e/{evaluation}/{agent}/{epoch}", p.rolloutOf),
		read("/runs/{run}/rollouts/{rollout}/files/{path...}", p.file),
	}
}

// handle makes a handler of a page. It answers with a page that says what is wrong, if something is.
func (p *Pages) handle(f func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Protect(w.Header())
		err := f(w, r)
		if err == nil || r.Context().Err() != nil {
			return
		}
		status, text := explain(err)
		if status == http.StatusInternalServerError {
			p.o.Log.Error("a page failed", "path", r.URL.Path, "error", err)
		}
		Refuse(w, status, p.withoutFolder(text))
	})
}

// pageError is what is wrong with a request for a page, for the person who asked.
type pageError struct {
	status int
	text   string
}

func (e *pageError) Error() string { return e.text }

func notFound(format string, args ...any) error {
	return &pageError{http.StatusNotFound, fmt.Sprintf(format, args...)}
}

// Refuse answers with a page that says why there is nothing else to see.
func Refuse(w http.ResponseWriter, status int, text string) {
	Protect(w.Header())
	_ = show(w, status, "refused.html", refusedPage{frame: frame{Title: http.StatusText(status)}, Status: status, Text: text, Login: status == http.StatusUnauthorized})
}

// Opened answers with a page that leads on to another one.
func Opened(w http.ResponseWriter, to string) {
	Protect(w.Header())
	_ = show(w, http.StatusOK, "opened.html", openedPage{frame{Title: "Opened"}, to})
}

type openedPage struct {
	frame
	To string
}

type refusedPage struct {
	frame
	Status int
	Text   string
	// Login says that a token may help.
	Login bool
}

// show answers with a page. It is made as a whole before the first byte is sent, so that an error
// does not leave half of one.
func show(w http.ResponseWriter, status int, name string, page any) error {
	var out bytes.Buffer
	if err := templates().ExecuteTemplate(&out, name, page); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a reader who is gone is told nothing
	return nil
}
