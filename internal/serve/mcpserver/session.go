package mcpserver

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/serve/access"
	"github.com/evalrun/evalrun/internal/store"
)

// sessionAccess is the store.MCPSession.Access of the sessions of /mcp. Their Endpoint is the id of
// the token that has opened them.
const sessionAccess = "evalrun serve"

// session is a legacy session. While its client listens, it is told of its tasks.
type session struct {
	server       *Server
	wire         *mcp.Session
	caller       access.Identity
	capabilities jsonobj.Object
	// agent is request.agent of the last request.
	agent atomic.Bool

	mu sync.Mutex
	// tasks are those that the client is told of, by their ids, with what it was last told.
	tasks map[string]string
	// listeners is how many streams are open on which the client can be told; stop ends telling,
	// and is nil if nobody does.
	listeners int
	ctx       context.Context
	stop      context.CancelFunc
	telling   sync.WaitGroup
}

// open records a session that is being opened.
func (s *Server) open(ctx context.Context, q *request, version string, params jsonobj.Object) error {
	capabilities := params.Object("capabilities")
	err := s.st.PutMCPSession(ctx, store.MCPSession{ID: q.Session.ID(), Access: sessionAccess, Endpoint: q.caller.ID, Version: version,
		Capabilities: capabilities.JSON(), Info: params.Get("clientInfo")})
	if err != nil {
		return err
	}
	s.enter(q.Session, q.caller, capabilities)
	var open []string
	s.mu.Lock()
	for id := range s.sessions {
		open = append(open, id)
	}
	s.mu.Unlock()
	_, err = s.st.ExpireMCP(ctx, sessionAccess, open, sessionIdle) // those of earlier processes that nobody came back for
	return err
}

func (s *Server) enter(wire *mcp.Session, caller access.Identity, capabilities jsonobj.Object) *session {
	one := &session{server: s, wire: wire, caller: caller, capabilities: capabilities, tasks: map[string]string{}}
	wire.SetValue(one)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions[wire.ID()] = one
	return one
}

// session is a session that is open here; nil for every other.
func (s *Server) session(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// restore is mcp.ServerOptions.Restore: the client of a session of another process goes on with it,
// and is told of the tasks that its caller has open.
func (s *Server) restore(ctx context.Context, wire *mcp.Session) (version string, ok bool) {
	caller := access.From(ctx)
	rec, err := s.st.MCPSession(ctx, sessionAccess, caller.ID, wire.ID())
	if err != nil {
		return "", false
	}
	capabilities, _ := jsonobj.ParseObject(rec.Capabilities) // they were stored as an object
	one := s.enter(wire, caller, capabilities)
	if l, ok := ctx.Value(listenerKey{}).(*listener); ok {
		l.leave = one.listen()
	}
	open, err := s.st.ListJobs(ctx, store.JobFilter{SubmittedBy: owner(caller), Statuses: []store.JobStatus{store.JobWorking, store.JobInputRequired}, Limit: maxTold})
	if err == nil { // else the client asks by itself
		for _, j := range open {
			one.watch(j.ID)
		}
	}
	return rec.Version, true
}

// maxTold is of how many tasks the client of a session is told without asking.
const maxTold = 1000

// Closed implements mcp.Handler. What was started goes on.
func (s *Server) Closed(wire *mcp.Session) {
	s.mu.Lock()
	delete(s.sessions, wire.ID())
	s.mu.Unlock()
	one, ok := wire.Value().(*session)
	if !ok {
		return
	}
	one.end()
	if !errors.Is(wire.Err(), mcp.ErrShutdown) {
		_ = s.st.EndMCPSession(context.Background(), sessionAccess, wire.ID()) // else it is forgotten later
	}
}

// listener is a request that opens a stream, on which the client can be told things until leave is
// called.
type listener struct{ leave func() }

type listenerKey struct{}

// listen notes that the client can be told things, until the returned function is called.
func (one *session) listen() (leave func()) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.listeners++; one.listeners == 1 {
		one.ctx, one.stop = context.WithCancel(context.Background())
		for id := range one.tasks {
			one.tell(id)
		}
	}
	return func() {
		one.mu.Lock()
		defer one.mu.Unlock()
		if one.listeners--; one.listeners == 0 {
			one.stop()
		}
	}
}

// end waits until the client is told nothing any more.
func (one *session) end() {
	one.mu.Lock()
	one.tasks = nil
	if one.stop != nil {
		one.stop()
	}
	one.mu.Unlock()
	one.telling.Wait()
}

// watch has the client told of a task.
func (one *session) watch(id string) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if _, known := one.tasks[id]; known || one.tasks == nil || len(one.tasks) >= maxTold {
		return
	}
	one.tasks[id] = ""
	if one.listeners > 0 {
		one.tell(id)
	}
}

// tell tells the client how a task is, whenever that changes, as long as it listens. The caller
// holds mu.
func (one *session) tell(id string) {
	ctx := one.ctx
	one.telling.Go(func() {
		q := &request{Request: &mcp.Request{Session: one.wire, Era: mcp.Legacy}, caller: one.caller, agent: one.agent.Load(), session: one}
		ended := one.server.follow(ctx, q, id, func(t taskwire.Task) {
			if one.note(id, t) {
				_ = one.wire.Notify(mcp.NoteTaskStatus, t.Legacy()) // one that has ended does not want to know
			}
		})
		if ended {
			one.mu.Lock()
			delete(one.tasks, id)
			one.mu.Unlock()
		}
	})
}

// note notes what the client is told of a task, and reports whether that is new. That it works, as
// every task does at first, is not.
func (one *session) note(id string, t taskwire.Task) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	now := t.Status + " " + t.Message
	before, known := one.tasks[id]
	if !known || before == now {
		return false
	}
	one.tasks[id] = now
	return before != "" || t.Status != string(store.JobWorking)
}
