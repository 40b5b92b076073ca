package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
)

// facade is the policy for clients that can wait themselves. They can have work that takes long at
// the server, or may, as tasks of ours.
type facade struct {
	e *gateway.Endpoint
	k *Manager
}

func (s *facade) InitializeResult(era mcp.Era, capabilities, meta jsonobj.Object) (jsonobj.Object, jsonobj.Object) {
	return offerTasks(era, capabilities), meta
}

// offerTasks replaces a server's own offer of tasks in its capabilities by ours.
func offerTasks(era mcp.Era, capabilities jsonobj.Object) jsonobj.Object {
	capabilities = slices.Clone(capabilities)
	if era == mcp.Modern {
		extensions := slices.Clone(capabilities.Object("extensions"))
		return capabilities.Delete("tasks").Set("extensions", extensions.Set(mcp.ExtensionTasks, mcp.EmptyObject).JSON())
	}
	return gateway.WithoutExtension(capabilities).Set("tasks", taskwire.LegacyOffer)
}

// ShowTool shows in the legacy era which tools can be called as tasks. The modern era does not know
// that of tools.
func (s *facade) ShowTool(l *gateway.Upstream, t jsonobj.Object) jsonobj.Object {
	if l.Session() == nil {
		return t.Delete("execution")
	}
	// For a server with tasks, silence means no. For a server without tasks, a tool that says nothing
	// can become a task of ours, and one that forbids it only if that was chosen.
	execution, support := t.Object("execution"), json.RawMessage(`"optional"`)
	switch tasks, said := l.Offered().Tasks, execution.Text("taskSupport"); {
	case said == "" && tasks && l.Client().Era() == mcp.Legacy:
		support = json.RawMessage(`"forbidden"`)
	case said != "" && (said != "forbidden" || tasks || !s.k.o.Widen):
		return t
	}
	return t.Set("execution", slices.Clone(execution).Set("taskSupport", support).JSON())
}

func (s *facade) Capabilities(_ mcp.Era, c json.RawMessage) json.RawMessage { return c }
func (s *facade) AsksPerson() bool                                          { return false }
func (s *facade) WantsTasks() bool                                          { return false }

func (s *facade) Call(ctx context.Context, l *gateway.Upstream, r *mcp.Request) (json.RawMessage, error) {
	c, err := s.read(l, r)
	if err != nil {
		return nil, err
	}
	listed := true
	if c.asTask || l.Offered().Tasks && l.Client().Era() == mcp.Legacy {
		var t gateway.Tool
		t, listed = s.lookupTool(ctx, l, c.name)
		c.source = s.sourceOf(l, t, listed)
	}
	source := c.source
	switch {
	case source == requiredTask && !c.asTask && r.Era == mcp.Modern && s.k.o.Strict:
		return nil, taskwire.Undeclared()
	case source == requiredTask && !c.asTask:
		return s.wait(ctx, c)
	case !c.asTask:
		return s.callDirect(ctx, c)
	case !listed && r.Era == mcp.Legacy:
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "Unknown tool: %s", c.name)
	case source == noTask && r.Era == mcp.Legacy:
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Tool %s cannot be called as a task (taskSupport: forbidden)", c.name)
	case source == noTask, source == offeredTask && r.Era == mcp.Modern:
		return s.callDirect(ctx, c)
	case source == requiredTask || source == upstreamSource:
		return s.callUpstream(ctx, c)
	case r.Era == mcp.Legacy:
		return s.callDetached(c)
	}
	return s.callWithGrace(ctx, c)
}

// callDirect makes an ordinary call, or one for which a modern server decides whether it becomes a
// task. If the server needs a task and the client does not know tasks, callDirect waits for it.
func (s *facade) callDirect(ctx context.Context, c toolCall) (json.RawMessage, error) {
	params := c.r.Params
	if c.r.Era == mcp.Modern {
		params = c.params.JSON()
	}
	result, err := c.l.Pass(ctx, c.r, params)
	return s.concluded(ctx, c, result, err)
}

// concluded is the outcome of an ordinary call that the server has answered.
func (s *facade) concluded(ctx context.Context, c toolCall,
	result json.RawMessage, err error) (json.RawMessage, error) {
	switch {
	case err != nil && needsTasks(err) && !c.asTask && (c.r.Era == mcp.Legacy || !s.k.o.Strict):
		return s.wait(ctx, c)
	case err != nil:
		return nil, c.l.ClientError(err)
	}
	server := c.l.Client()
	if mcptask.IsLost(ctx, server, result) {
		return nil, mcptask.LostError(s.e.Server().Name)
	}
	if handle := mcptask.HandleIn(result, server, s.e.Now()); handle != nil {
		return s.adopt(ctx, c, s.upstreamTask(server, handle, result, c.capabilities))
	}
	return c.l.ToClient(c.r, result), nil
}

// adopt makes a task of ours for one that a server has made.
func (s *facade) adopt(ctx context.Context, c toolCall, u *upstreamTask) (json.RawMessage, error) {
	t := s.newTask(c)
	if err := t.attach(u); err != nil {
		t.cancel()
		return nil, err
	}
	if c.asTask {
		if err := t.keep(); err != nil {
			t.stop("there are too many tasks") // with this the server is told, too
			s.track(t, func() { t.conclude(nil, nil) })
			return nil, err
		}
	}
	s.track(t, func() { t.conclude(nil, nil) })
	if c.asTask {
		return t.created(c.r.Era), nil
	}
	return t.await(ctx, c)
}

// callUpstream calls a tool as a task of its legacy server.
func (s *facade) callUpstream(ctx context.Context, c toolCall) (json.RawMessage, error) {
	t := s.newTask(c)
	if err := t.keep(); err != nil { // before the call, so that no job is lost to a limit
		return nil, err
	}
	result, err := (&taskCall{t: t, c: c}).runWatched(ctx)
	if err != nil {
		t.forget()
		return nil, c.l.ClientError(err)
	}
	if result != nil && c.r.Era == mcp.Modern {
		t.forget() // the server has not made a task
		return c.l.ToClient(c.r, result), nil
	}
	s.track(t, func() { t.conclude(result, nil) })
	return t.created(c.r.Era), nil
}

// callDetached makes an ordinary call, or one that becomes a task of a modern server, for a legacy
// client that has its task at once.
func (s *facade) callDetached(c toolCall) (json.RawMessage, error) {
	t := s.newTask(c)
	if err := t.keep(); err != nil {
		return nil, err
	}
	s.track(t, func() { t.conclude((&taskCall{t: t, c: c}).run(t.ctx, true)) })
	return t.created(c.r.Era), nil
}

// callWithGrace makes an ordinary call for a modern client. The client gets a task only if the
// result takes longer than the grace or something has to be asked.
func (s *facade) callWithGrace(ctx context.Context, c toolCall) (json.RawMessage, error) {
	t := s.newTask(c)
	t.passInput = true
	s.track(t, func() { t.conclude((&taskCall{t: t, c: c}).run(t.ctx, false)) })
	grace := time.NewTimer(s.k.o.Grace)
	defer grace.Stop()
	select {
	case <-t.done:
		return t.answer(c)
	case <-grace.C:
	case <-t.questions.posed:
	case <-ctx.Done():
		t.stop("its client has gone")
		return nil, context.Cause(ctx)
	}
	switch err := t.keep(); {
	case errors.Is(err, errTaskEnded):
		return t.answer(c)
	case err != nil: // then the client waits for the result
		return t.await(ctx, c)
	}
	return t.created(c.r.Era), nil
}

// wait makes a call for which the server needs a task, for a client that does not know tasks. The
// client gets the final result.
func (s *facade) wait(ctx context.Context, c toolCall) (json.RawMessage, error) {
	t := s.newTask(c)
	t.passInput = c.r.Era == mcp.Modern
	t.questions.direct = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		if c.r.Era == mcp.Modern {
			return mcp.DefaultAnswer(method) // the client can be asked only by an answer to its call
		}
		return mcp.AnswerOf(c.r.Ask(ctx, method, params))
	}
	s.track(t, func() { t.conclude((&taskCall{t: t, c: c}).runWatched(t.ctx)) })
	return t.await(ctx, c)
}

// inModern returns an upstream over which a server can make a task of a call that has come over a
// legacy one. Some servers have tasks in the modern era only. It returns nil if this server does
// not. Modern upstreams are shared, as they have no sessions.
func (s *facade) inModern(ctx context.Context, c toolCall) *gateway.Upstream {
	if c.l.Client().Era() == mcp.Modern {
		return nil
	}
	l, err := s.e.Upstreams().Shared(jsonobj.Object{
		{Key: mcp.MetaClientCapabilities, Value: c.capabilities.JSON()}, {Key: mcp.MetaClientInfo, Value: c.info()},
	}, true)
	if err != nil || l.Connect(ctx) != nil || l.Client().Era() != mcp.Modern || !l.Offered().Tasks {
		return nil
	}
	return l
}

// track follows a task to its end on a goroutine that the endpoint waits for.
func (s *facade) track(t *task, f func()) {
	s.e.Go(func() {
		defer close(t.gone)
		f()
	})
}

// Offer implements gateway.Tasks.
func (k *Manager) Offer(era mcp.Era, capabilities jsonobj.Object) jsonobj.Object {
	return offerTasks(era, capabilities)
}
