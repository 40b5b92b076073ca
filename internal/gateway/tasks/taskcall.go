package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
)

// taskCall is the call of a tool that begins a task. It is made at the server once or, if the
// server asks questions first, several times.
type taskCall struct {
	t *task
	c toolCall
	// idle ends a silent call if somebody waits for it to become a task. It is nil for other calls,
	// which a time to live bounds.
	idle *gateway.IdleTimer
}

// run makes the call. The result is nil if the server has made a task of it. asTask asks for that,
// in the way of the server's era.
func (s *taskCall) run(ctx context.Context, asTask bool) (json.RawMessage, error) {
	client := s.c.l.Client()
	result, err := s.once(ctx, client, asTask)
	if errors.Is(err, mcp.ErrSessionLost) { // the server has not looked at it
		if err = s.c.l.Renew(ctx, client); err == nil {
			result, err = s.once(ctx, s.c.l.Client(), asTask)
		}
	}
	if asTask && needsTasks(err) {
		if modern := s.t.s.inModern(ctx, s.c); modern != nil { // it has refused the call
			s.c.l = modern
			return s.once(ctx, modern.Client(), true)
		}
	}
	return result, err
}

// runWatched is run as a task, for a caller that waits for the call to become one, so its server
// should soon be heard of. It ends when nothing is, and with the task.
func (s *taskCall) runWatched(ctx context.Context) (json.RawMessage, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(s.t.ctx, func() { end(errTaskEnded) })()
	s.idle = gateway.StartIdleTimer(s.t.s.e.Server().CallLimit(), end)
	defer s.idle.Stop()
	return s.run(ctx, true)
}

// once makes the call over one connection.
func (s *taskCall) once(ctx context.Context, client *mcp.Client, asTask bool) (json.RawMessage, error) {
	t, c := s.t, s.c
	params, err := jsonobj.ParseObject(mcp.WithoutMeta(c.params.JSON(), gateway.HopKeys...))
	if err != nil {
		return nil, err
	}
	call := mcp.Call{Method: mcp.MethodToolsCall, Capabilities: c.capabilities.JSON(),
		Info: c.info(), Notified: s.notified, Asked: s.ask}
	if asTask {
		call.Capabilities = declared(c.capabilities)
	}
	if client.Era() == mcp.Legacy {
		params = s.taskParam(params, asTask)
		f := &gateway.InFlightCall{Capabilities: c.capabilities, Ask: s.ask, Notified: s.notified}
		defer c.l.Track(f)()
	} else {
		params = params.Delete("task")
	}
	for range mcp.MaxRounds {
		call.Params = params.JSON()
		starting, started := ctx, func() {}
		if asTask {
			starting, started = s.withStartGrace(ctx)
		}
		result, err := client.Call(starting, call)
		started()
		if err != nil {
			return nil, err
		}
		if mcptask.IsLost(ctx, client, result) {
			if asTask && c.source == upstreamSource { // the tool can do without a task
				return s.once(ctx, client, false)
			}
			return nil, mcptask.LostError(t.s.e.Server().Name)
		}
		if handle := mcptask.HandleIn(result, client, t.s.e.Now()); handle != nil {
			return nil, t.attach(t.s.upstreamTask(client, handle, result, c.capabilities))
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil || o.Text("resultType") != "input_required" || t.handOver(result) {
			return result, nil
		}
		responses, err := s.askAll(ctx, o.Object("inputRequests"))
		if err != nil {
			return nil, err
		}
		params = mcp.WithResponses(params, responses, o.Get("requestState"))
	}
	return nil, mcp.ErrRounds
}

// startGrace is how long a server may take to answer the start of a task that is cancelled
// meanwhile.
const startGrace = time.Second

// withStartGrace is a context for the call that starts a task. It ends a while after ctx, because
// only the server's answer says which task to cancel there. When the endpoint is closed it ends at
// once.
func (s *taskCall) withStartGrace(ctx context.Context) (context.Context, func()) {
	grace, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(startGrace):
		case <-s.t.s.e.Context().Done():
		case <-grace.Done():
		}
		cancel(context.Cause(ctx))
	})
	return grace, func() { stop(); cancel(nil) }
}

// taskParam tells a legacy server whether the call is to be a task, in the client's words if it has
// any.
func (s *taskCall) taskParam(params jsonobj.Object, asTask bool) jsonobj.Object {
	c := s.c
	if !asTask || c.source != upstreamSource && c.source != requiredTask {
		return params.Delete("task")
	}
	task := append(jsonobj.Object(nil), params.Object("task")...)
	if !c.asTask || c.r.Era == mcp.Modern || task.Has("ttl") {
		task = task.Set("ttl", taskwire.Millis(c.ttl))
	}
	return params.Set("task", task.JSON())
}

// ask has the client answer a question that the server asks in the middle of the call. The time
// that it takes does not count as idle.
func (s *taskCall) ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	s.idle.Pause()
	defer s.idle.Resume()
	return s.t.questions.ask(ctx, method, params)
}

// askAll has the client answer the questions in a modern server's result. The time that it takes
// does not count as idle.
func (s *taskCall) askAll(ctx context.Context, requests jsonobj.Object) (jsonobj.Object, error) {
	s.idle.Pause()
	defer s.idle.Resume()
	return s.t.questions.askAll(ctx, requests)
}

// notified passes on notifications that a server sends in the middle of the call, with the client's
// request or, when that has been answered, with its session.
func (s *taskCall) notified(method string, params json.RawMessage) {
	s.idle.Reset()
	t, c := s.t, s.c
	if method == mcp.NoteTaskStatus || method == mcp.NoteTask {
		t.s.k.statusNotified(t.s, c.l.Client(), params)
		return
	}
	params = mcp.WithoutMeta(params, mcp.MetaRelatedTask, mcptask.MetaForeignRelated, mcp.MetaSubscriptionID)
	if method == mcp.NoteMessage && c.r.Era == mcp.Modern && c.r.Meta().Text(mcp.MetaLogLevel) == "" {
		return // a modern client gets no logs that it has not asked for
	}
	if c.r.Notify(method, params) != nil && c.r.Era == mcp.Legacy {
		_ = c.r.Session.Notify(method, params) // a session that has ended does not want to know
	}
}
