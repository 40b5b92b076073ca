package tasks

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// rawObjectTo decodes an object into the one that it points to.
type rawObjectTo struct{ o *jsonobj.Object }

// UnmarshalJSON implements json.Unmarshaler.
func (r *rawObjectTo) UnmarshalJSON(b []byte) (err error) {
	*r.o, err = jsonobj.ParseObject(append([]byte(nil), b...))
	return err
}

// session returns a legacy session that lives, or nil if it does not or there is none.
func (k *Manager) session(id string) *mcp.Session {
	if id == "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.sessions[id]
}

// Opened keeps a session that initialize has opened at an endpoint.
func (k *Manager) Opened(ctx context.Context, endpoint string, s *mcp.Session,
	initializeResult json.RawMessage, capabilities jsonobj.Object, info json.RawMessage) error {
	o, err := jsonobj.ParseObject(initializeResult)
	if err != nil {
		return err
	}
	err = k.o.Store.PutMCPSession(ctx, store.MCPSession{
		ID: s.ID(), Access: k.access, Endpoint: endpoint,
		Version: o.Text("protocolVersion"), Capabilities: capabilities.JSON(), Info: info,
	})
	if err != nil {
		return mcp.Errorf(mcp.CodeInternal, "the session could not be recorded: %v", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sessions[s.ID()] = s
	return nil
}

// restore is mcp.ServerOptions.Restore for an endpoint. The client of a session of an earlier
// process goes on with it, if only by listening.
func (k *Manager) restore(endpoint string,
	open gateway.Opener) func(ctx context.Context, s *mcp.Session) (string, bool) {
	return func(ctx context.Context, s *mcp.Session) (string, bool) {
		rec, err := k.o.Store.MCPSession(ctx, k.access, endpoint, s.ID())
		if err != nil {
			return "", false
		}
		capabilities, _ := jsonobj.ParseObject(rec.Capabilities) // they were stored as an object
		if open(s, rec.Version, capabilities, rec.Info) != nil {
			return "", false
		}
		k.mu.Lock()
		k.sessions[s.ID()] = s
		k.mu.Unlock()
		k.catchUp(s)
		return rec.Version, true
	}
}

// catchUp tells the client of a session which of its tasks have ended while it could not be told.
func (k *Manager) catchUp(s *mcp.Session) {
	ended, err := k.o.Store.TellMCPTasks(k.ctx, k.access, s.ID())
	if err != nil {
		return // the client asks by itself
	}
	for _, rec := range ended {
		_ = s.Notify(mcp.NoteTaskStatus, view(rec).Legacy()) // a session that has ended does not want to know
	}
}

// Closed ends what belongs to a session that has ended, unless only our process ends.
func (k *Manager) Closed(s *mcp.Session) {
	k.mu.Lock()
	delete(k.sessions, s.ID())
	k.mu.Unlock()
	if errors.Is(s.Err(), mcp.ErrShutdown) {
		return
	}
	// This comes first, since the client takes the session for ended. If it fails, the session is
	// forgotten later.
	_ = k.o.Store.EndMCPSession(k.ctx, k.access, s.ID())
	k.endTasks(s.ID())
}

// endTasks cancels the tasks of a session, and waits until no goroutine works on them any more.
func (k *Manager) endTasks(session string) {
	open := k.index.all(func(t *task) bool {
		rec, _ := t.record()
		return rec.Session == session
	})
	for _, t := range open {
		t.stop("the session of its client has ended")
	}
	for _, t := range open {
		<-t.gone
	}
}

// Notification replaces the server's name of a task in a notification by ours. ok is false for
// notifications about only the server's own tasks, which clients do not know.
func (k *Manager) Notification(l *gateway.Upstream, method string, params json.RawMessage) (json.RawMessage, bool) {
	s := k.facades[l.Endpoint().Server().Name]
	if method == mcp.NoteTaskStatus || method == mcp.NoteTask {
		k.statusNotified(s, l.Client(), params)
		return nil, false
	}
	params = mcp.WithoutMeta(params, mcptask.MetaForeignRelated)
	related := mcp.MetaOf(params).Get(mcp.MetaRelatedTask)
	if related == nil {
		return params, true
	}
	if t := k.byUpstreamID(s, l.Client(), related); t != nil {
		if rec, _ := t.record(); l.Session() != nil && rec.Session == l.Session().ID() {
			return mcp.WithMeta(params, mcp.MetaRelatedTask, mcptask.Params(rec.ID)), true
		}
	}
	return mcp.WithoutMeta(params, mcp.MetaRelatedTask), true
}

// Question finds the asker for a question that a legacy server asks for a task.
func (k *Manager) Question(l *gateway.Upstream, params json.RawMessage) (mcptask.Asker, json.RawMessage) {
	related := mcp.MetaOf(params).Get(mcp.MetaRelatedTask)
	if related == nil {
		return nil, params
	}
	if t := k.byUpstreamID(k.facades[l.Endpoint().Server().Name], l.Client(), related); t != nil {
		return t.questions.ask, params
	}
	return nil, mcp.WithoutMeta(params, mcp.MetaRelatedTask)
}
