// Package jobs is the path /jobs of evalrun serve: runs as long-running jobs, by the HTTP interface
// that the registry of MCP Mesh has for its clients. A job is a run of a named eval set, which is
// its capability, or for readers a single rollout. Executors do not claim jobs here: the requests
// of that side are refused with 501.
//
// [New] makes the handler. [Keep] enforces deadlines and forgets old jobs; one process that calls
// it suffices, and several do no harm. The context of a request has its caller, as in package
// access. The package knows the registry's wire format of runs and rollouts, and nothing of how
// they are planned or executed. docs/compatibility.md lists the differences from the registry.
package jobs

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

// DefaultGrace is the registry's default.
const DefaultGrace = 200 * time.Millisecond

// Options are the dependencies of the handler.
type Options struct {
	Service *service.Service
	// Grace is how long a running job goes on after it was cancelled, so that followers of its events
	// can react; 0 means not at all.
	Grace time.Duration
	// Draining, when it is closed, has all waiting requests answered at once; nil is never closed.
	Draining <-chan struct{}
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// About, if not nil, is called with the job that a request changes.
	About func(r *http.Request, jobID string)
	// Changed, if not nil, is called with what else a request has done, in the audit log's words: that
	// an event has answered a question.
	Changed func(ctx context.Context, action, object string)
	// Log, if not nil, gets the errors of the store.
	Log *slog.Logger
}

// handler serves the requests.
type handler struct {
	o       Options
	st      service.Jobs
	mux     *http.ServeMux
	tails   *watches[tail]
	states  *watches[store.Job]
	results *results
}

// New makes the handler of every path that begins with one of Paths.
func New(o Options) http.Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.About == nil {
		o.About = func(*http.Request, string) {}
	}
	if o.Changed == nil {
		o.Changed = func(context.Context, string, string) {}
	}
	st := o.Service.Jobs()
	h := &handler{o: o, st: st, mux: http.NewServeMux(), results: newResults(o.Service)}
	h.tails, h.states = newWatches(st.Changed, h.readTail), newWatches(st.Changed, h.readStatus)
	for _, e := range Endpoints {
		if e.serve == nil {
			h.mux.HandleFunc(e.Pattern, noPage)
		} else {
			h.mux.HandleFunc(e.Pattern, h.answering(e.serve))
		}
	}
	return h
}

// Endpoint is one kind of request that the handler serves.
type Endpoint struct {
	// Pattern is a pattern of http.ServeMux.
	Pattern string
	// Scope is the scope that a caller needs. If it is empty the handler decides.
	Scope access.Scope
	// Audit names the action; empty for requests that only read.
	Audit string

	// serve is nil if there is no page.
	serve func(*handler, *http.Request) (response, error)
}

// Endpoints lists all endpoints, for the server that mounts the handler.
var Endpoints = append([]Endpoint{
	{"POST /jobs", access.Run, "run", (*handler).submit},
	{"GET /jobs", access.Read, "", (*handler).list},
	{"GET /jobs/{id}", access.Read, "", (*handler).get},
	{"POST /jobs/{id}/cancel", access.Run, "cancel", (*handler).cancel},
	{"POST /jobs/{id}/events", "", "post", (*handler).post},
	{"GET /jobs/{id}/events", access.Read, "", (*handler).events},
	{"/jobs/", access.Read, "", nil},
}, claimSide()...)

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }
