// Package web has the pages for people: the runs of a store, a run with its verdict, gates and
// rollouts, one rollout with its timeline, and the open triggers. The server makes them, every
// state of a page is a URL, and everything works without JavaScript.
//
// It reads through package service, and shows the numbers of package report; it computes no score
// of its own. It knows no SQL and no permissions: package serve mounts its endpoints behind its
// guard. What agents, evaluators and people wrote is untrusted: it is shown as text, in which every
// control character is visible (visible.go).
package web

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/access"
)

// Pages are the pages of a store. Its methods may be called from several goroutines.
type Pages struct {
	*site
	runs     *runsPages
	run      *runPages
	rollouts *rolloutPages
	compared *comparePages
	live     *livePages
	answers  answers
}

// Endpoint is one URL of the pages.
type Endpoint struct {
	// Pattern is one of http.ServeMux.
	Pattern string
	// Scope is the scope that a caller needs. With Open nobody has to authenticate.
	Scope access.Scope
	Open  bool
	// Audit names the action; empty if the endpoint only reads.
	Audit   string
	Handler http.Handler
}

// New makes the pages of a service.
func New(o Options) *Pages {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := newSite(o)
	return &Pages{s, newRunsPages(s), &runPages{site: s},
		newRolloutPages(s), newComparePages(s), newLivePages(s), answers{o}}
}

// Endpoints are all URLs of the pages.
func (p *Pages) Endpoints() []Endpoint {
	read := func(pattern string, f func(http.ResponseWriter, *http.Request) error) Endpoint {
		return Endpoint{Pattern: "GET " + pattern, Scope: access.Read, Handler: p.handle(f)}
	}
	return []Endpoint{
		{Pattern: "GET /static/{name}", Open: true, Handler: http.HandlerFunc(static)},
		read("/{$}", p.runs.list),
		read("/runs/{run}", p.run.page),
		read("/runs/{run}/columns", p.columns),
		read("/runs/{run}/live", p.live.run),
		read("/live", p.live.runs),
		read("/tabs", p.live.tabs),
		read("/triggers", p.triggers),
		read("/inbox", p.inbox),
		read("/compare", p.compared.page),
		read("/runs/{run}/download/{format}", p.downloadRun),
		read("/runs/{run}/rollouts/{rollout}/download/{value}", p.downloadRollout),
		read("/compare/download/{format}", p.compared.download),
		read("/compare/outputs", p.outputs),
		read("/compare/outputs/words", p.outputsInPlace),
		read("/inbox/live", p.inboxLive),
		read("/triggers/{id}/answer", p.answers.outcome),
		read("/triggers/{id}/question", p.whole),
		{Pattern: "POST /triggers/{id}/answer", Scope: access.Read, Audit: "deliver", Handler: p.handle(p.answers.answer)},
		read("/runs/{run}/rollouts/{rollout}", p.rollouts.page),
		read("/runs/{run}/rollouts/{rollout}/why", p.why),
		read("/runs/{run}/rollouts/{rollout}/follow/{path...}", p.follow),
		read("/runs/{run}/e/{evaluation}/{agent}/{epoch}", p.rollouts.named),
		read("/runs/{run}/rollouts/{rollout}/files/{path...}", p.file),
	}
}

// handle makes a handler of a page. It answers an error with a page that describes it.
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
