// Package mcpserver is the path /mcp of evalrun serve: an MCP server, in both protocol eras, with
// tools that start runs of eval sets, read their results and answer what they wait for. A run can
// be started as an MCP task. That task is the job which the run was submitted as: it has the id of
// the run, belongs to the token that started it, and needs no table and no goroutine, so it
// outlives this process.
//
// The package knows MCP and package service. It knows nothing of how runs are planned or
// executed, and it starts no agent.
package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

const (
	// sessionIdle is how long a legacy session lasts without requests.
	sessionIdle = 2 * time.Hour
	// maxMessage is how long a message of a client may be: it may contain an eval set.
	maxMessage = 32 << 20
)

// Options are the dependencies of a server.
type Options struct {
	Service *service.Service
	// Jobs is the job interface, which the helper tools of MCP Mesh ask.
	Jobs http.Handler
	// Changed, if not nil, is called with a change by a caller: the action is run, cancel or deliver,
	// and object is what it was done to.
	Changed func(ctx context.Context, action, object string)
	// Log gets the errors; nil drops them.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Server is the handler of /mcp. The context of each request has the caller, put there by package
// access. It must be closed.
type Server struct {
	http     *mcp.HTTPHandler
	log      *slog.Logger
	sessions *sessions
	tasks    *tasks
	tools    *toolbox
}

// records is the part of the store that tasks and sessions need.
type records interface {
	store.Reader
	store.Jobs
	store.MCPTasks
	store.Changes
}

// New makes a server.
func New(o Options) *Server {
	if o.Changed == nil {
		o.Changed = func(context.Context, string, string) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	st := o.Service.Store()
	results := &results{o.Service, st}
	deliveries := &deliveries{o.Service, st, o.Changed}
	questions := &questions{o.Service, deliveries, o.Log}
	tasks := &tasks{o.Service, st, results, questions, o.Changed, o.Log, o.Now}
	runs := &runs{o.Service, results, tasks, o.Changed}
	lists := &lists{o.Service, st}
	jobs := &jobTools{o.Jobs, o.Changed}
	tools := slices.Concat(runs.tools(), results.tools(), (&comparisons{o.Service}).tools(), lists.tools(),
		deliveries.tools(), jobs.tools())
	s := &Server{log: o.Log, sessions: newSessions(st, tasks), tasks: tasks, tools: &toolbox{tools, tasks, o.Log}}
	// The guard has checked hosts and origins.
	s.http = mcp.NewHTTPHandler(s, mcp.ServerOptions{Hosts: []string{"*"}, MaxMessage: maxMessage,
		IdleTimeout: sessionIdle, Restore: s.sessions.restore, Now: o.Now})
	return s
}

// Close ends all sessions and streams, and has waiting calls answer that the run goes on. Sessions
// can be continued in another process.
func (s *Server) Close() { s.http.Close() }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Streams stay open. Only a test's writer has no deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		known := s.sessions.get(id)
		if known != nil && known.caller.ID != access.From(r.Context()).ID {
			http.Error(w, "session not found", http.StatusNotFound) // this caller does not own it
			return
		}
		if r.Method == http.MethodGet {
			l := &listener{func() {}}
			if known != nil {
				l.leave = known.listen()
			}
			defer func() { l.leave() }()
			r = r.WithContext(context.WithValue(r.Context(), listenerKey{}, l)) // for a session that is restored
		}
	}
	s.http.ServeHTTP(w, r)
}

// internal is the error for failures that are not the client's fault. The log has the cause.
func internal(log *slog.Logger, doing string, err error) error {
	if !errors.Is(err, context.Canceled) {
		log.Error(doing+" failed", "error", err)
	}
	return mcp.Errorf(mcp.CodeInternal, "%s failed; evalrun's log says why", doing)
}
