package mcpserver

import (
	"context"
	"errors"
	"sync"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// sessionAccess is the store.MCPSession.Access of the sessions of /mcp. Their Endpoint is the id of
// the token that has opened them.
const sessionAccess = "evalrun serve"

// sessions are the legacy sessions.
type sessions struct {
	st    records
	tasks *tasks

	mu sync.Mutex
	// here are the sessions that are open in this process, by their ids.
	here map[string]*session
}

func newSessions(st records, tasks *tasks) *sessions {
	return &sessions{st: st, tasks: tasks, here: map[string]*session{}}
}

// open records a session that is being opened.
func (s *sessions) open(ctx context.Context, q *request, version string, params jsonobj.Object) error {
	capabilities := params.Object("capabilities")
	err := s.st.PutMCPSession(ctx,
		store.MCPSession{ID: q.Session.ID(), Access: sessionAccess, Endpoint: q.caller.ID, Version: version,
			Capabilities: capabilities.JSON(), Info: params.Get("clientInfo")})
	if err != nil {
		return err
	}
	s.enter(q.Session, q.caller, capabilities)
	var open []string
	s.mu.Lock()
	for id := range s.here {
		open = append(open, id)
	}
	s.mu.Unlock()
	// This ends abandoned sessions of earlier processes.
	_, err = s.st.ExpireMCP(ctx, sessionAccess, open, sessionIdle)
	return err
}

func (s *sessions) enter(wire *mcp.Session, caller access.Identity, capabilities jsonobj.Object) *session {
	one := &session{tasks: s.tasks, wire: wire, caller: caller, capabilities: capabilities, told: map[string]string{}}
	wire.SetValue(one)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.here[wire.ID()] = one
	return one
}

// get returns a session that is open here; nil for any other.
func (s *sessions) get(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.here[id]
}

// restore is mcp.ServerOptions.Restore: the client of a session of another process continues it,
// and is told of the open tasks of its caller.
func (s *sessions) restore(ctx context.Context, wire *mcp.Session) (version string, ok bool) {
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
	open, err := s.st.ListJobs(ctx, store.JobFilter{SubmittedBy: owner(caller),
		Statuses: []store.JobStatus{store.JobWorking, store.JobInputRequired}, Limit: maxTold})
	if err == nil { // otherwise the client asks by itself
		for _, j := range open {
			one.watch(j.ID)
		}
	}
	return rec.Version, true
}

// closed ends a session. If the server is closed the record stays, for another process.
func (s *sessions) closed(wire *mcp.Session) {
	s.mu.Lock()
	delete(s.here, wire.ID())
	s.mu.Unlock()
	one, ok := wire.Value().(*session)
	if !ok {
		return
	}
	one.end()
	if !errors.Is(wire.Err(), mcp.ErrShutdown) {
		_ = s.st.EndMCPSession(context.Background(), sessionAccess, wire.ID()) // otherwise it is forgotten later
	}
}
