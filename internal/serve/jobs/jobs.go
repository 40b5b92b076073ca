// Package jobs is the path /jobs of evalrun serve: runs as long-running jobs, by the HTTP interface
// that the registry of MCP Mesh has for its clients. A job is a run of a named eval set, which is
// its capability, or for readers a single rollout. Executors do not claim jobs here: the requests of
// that side are refused with 501.
//
// [New] makes the handler, and [Keep] sees to deadlines and to what is to be forgotten; one process
// that calls it suffices, and several do no harm. Who calls is in the context of a request, as
// package access has it. The package knows the wire of the registry and how
// runs and rollouts look in it, and nothing of how they are planned or executed. Where it differs
// from the registry docs/compatibility.md says so.
package jobs

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// DefaultGrace is the registry's default.
const DefaultGrace = 200 * time.Millisecond

// Options are what the handler needs.
type Options struct {
	Service *service.Service
	// Grace is how long a job that is running goes on after it was cancelled, so that whoever
	// follows its events can react; 0 means not at all.
	Grace time.Duration
	// Draining, when it is closed, has everybody who waits answered at once; nil is never closed.
	Draining <-chan struct{}
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// About, if not nil, is told which job a request changes.
	About func(r *http.Request, jobID string)
	// Changed, if not nil, is told what else a request has done, as the audit log names it: that an
	// event has answered a question.
	Changed func(ctx context.Context, action, object string)
	// Log, if not nil, is told what is wrong with the store.
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

// keepJobs are the sources whose jobs go on when a job is cancelled, as with evalrun cancel.
var keepJobs = []string{wait.SourceExec}

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
	// Pattern is one of http.ServeMux.
	Pattern string
	// Scope is what a caller needs. Where it is empty the handler decides.
	Scope access.Scope
	// Audit names what is done; empty for what only reads.
	Audit string

	// serve is nil where there is no page.
	serve func(*handler, *http.Request) (response, error)
}

// Endpoints are all of them, for whoever mounts the handler.
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
