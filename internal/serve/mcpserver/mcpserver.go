// Package mcpserver is the path /mcp of evalrun serve: an MCP server, in both protocol eras, with
// tools that start runs of eval sets, read their results and answer what they wait for. A run can be
// started as an MCP task. That task is the job which the run was submitted as: it has the id of the
// run, belongs to whoever bears the token that started it, and needs no table and no goroutine, so
// it outlives this process.
//
// The package knows MCP and what package service does. It knows nothing of how runs are planned or
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
	// sessionIdle is after how long a legacy session ends that nobody uses.
	sessionIdle = 2 * time.Hour
	// maxMessage is how long a message of a client may be: an eval set may be uploaded in it.
	maxMessage = 32 << 20
)

// Options are what a server needs.
type Options struct {
	Service *service.Service
	// Jobs is the job interface, which the helper tools of MCP Mesh ask.
	Jobs http.Handler
	// Changed, if not nil, is told what a caller has changed: the action is run, cancel or deliver,
	// and object what it was done to.
	Changed func(ctx context.Context, action, object string)
	// Log gets what goes wrong; nil drops it.
	Log *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Server is the handler of /mcp. Who calls is in the context of each request, where package access
// puts it. It must be closed.
type Server struct {
	http     *mcp.HTTPHandler
	log      *slog.Logger
	sessions *sessions
	tasks    *tasks
	tools    *toolbox
}

// records are what tasks and sessions need of the store.
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
	tools := slices.Concat(runs.tools(), results.tools(), (&comparisons{o.Service}).tools(), lists.tools(), deliveries.tools(), jobs.tools())
	s := &Server{log: o.Log, sessions: newSessions(st, tasks), tasks: tasks, tools: &toolbox{tools, tasks, o.Log}}
	// Hosts and origins have been looked at.
	s.http = mcp.NewHTTPHandler(s, mcp.ServerOptions{Hosts: []string{"*"}, MaxMessage: maxMessage, IdleTimeout: sessionIdle, Restore: s.sessions.restore, Now: o.Now})
	return s
}

// Close ends all sessions and streams, and lets what waits answer that the run goes on. Sessions can
// be gone on with in another process.
func (s *Server) Close() { s.http.Close() }

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // streams stay open; a writer that knows no deadline is a test's
	if id := r.Header.Get("Mcp-Session-Id"); id != "" {
		known := s.sessions.get(id)
		if known != nil && known.caller.ID != access.From(r.Context()).ID {
			http.Error(w, "session not found", http.StatusNotFound) // to this caller
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

// internal is the error for what is not the client's fault. The log says what it was.
func internal(log *slog.Logger, doing string, err error) error {
	if !errors.Is(err, context.Canceled) {
		log.Error(doing+" failed", "error", err)
	}
	return mcp.Errorf(mcp.CodeInternal, "%s failed; evalrun's log says why", doing)
}
