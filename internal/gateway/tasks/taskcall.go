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
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// declared are the client's capabilities with the extension for tasks.
func (t *task) declared() json.RawMessage {
	c := append(jsonobj.Object(nil), t.capabilities...)
	return c.Set("extensions", append(jsonobj.Object(nil), c.Object("extensions")...).Set(mcp.ExtensionTasks, mcp.EmptyObject).JSON()).JSON()
}

// call makes the call of a task. The result is nil if the server has made a task of it. asTask asks
// for that, in the way of the server's era.
func (t *task) call(ctx context.Context, c toolCall, asTask bool) (json.RawMessage, error) {
	client := c.l.Client()
	result, err := t.callOnce(ctx, client, c, asTask)
	if errors.Is(err, mcp.ErrSessionLost) { // the server has not looked at it
		if err = c.l.Renew(ctx, client); err == nil {
			result, err = t.callOnce(ctx, c.l.Client(), c, asTask)
		}
	}
	if asTask && needsTasks(err) {
		if modern := t.s.inModern(ctx, c); modern != nil { // it has refused the call
			c.l = modern
			return t.callOnce(ctx, modern.Client(), c, true)
		}
	}
	return result, err
}

// inModern is an upstream over which a server can make a task of a call that has come over a legacy
// one. Some servers have tasks in the modern era only. It is nil if this server does not. Modern
// upstreams are shared, as they have no sessions.
func (s *facade) inModern(ctx context.Context, c toolCall) *gateway.Upstream {
	if c.l.Client().Era() == mcp.Modern {
		return nil
	}
	l, err := s.e.Upstreams().Shared(jsonobj.Object{{Key: mcp.MetaClientCapabilities, Value: c.capabilities.JSON()}, {Key: mcp.MetaClientInfo, Value: c.info()}}, true)
	if err != nil || l.Connect(ctx) != nil || l.Client().Era() != mcp.Modern || !l.Offered().Tasks {
		return nil
	}
	return l
}

// callWatched is call, as a task, of which its server should soon be heard, since somebody waits
// for it to become one: it ends when nothing is, and with the task.
func (t *task) callWatched(ctx context.Context, c toolCall) (json.RawMessage, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(t.ctx, func() { end(errTaskEnded) })()
	t.idle = gateway.StartIdleTimer(t.s.e.Server().CallLimit(), end)
	defer t.idle.Stop()
	return t.call(ctx, c, true)
}

func (t *task) callOnce(ctx context.Context, client *mcp.Client, c toolCall, asTask bool) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(mcp.WithoutMeta(c.params.JSON(), gateway.HopKeys...))
	if err != nil {
		return nil, err
	}
	call := mcp.Call{Method: mcp.MethodToolsCall, Capabilities: c.capabilities.JSON(), Info: c.info(), Notified: t.heard(c), Asked: t.ask}
	if asTask {
		call.Capabilities = t.declared()
	}
	if client.Era() == mcp.Legacy {
		params = t.taskParam(params, c, asTask)
		f := &gateway.InFlightCall{Capabilities: t.capabilities, Ask: t.ask, Notified: call.Notified}
		defer c.l.Track(f)()
	} else {
		params = params.Delete("task")
	}
	for range mcp.MaxRounds {
		call.Params = params.JSON()
		starting, started := ctx, func() {}
		if asTask {
			starting, started = t.withStartGrace(ctx)
		}
		result, err := client.Call(starting, call)
		started()
		if err != nil {
			return nil, err
		}
		if mcptask.IsLost(ctx, client, result) {
			if asTask && c.source == upstreamSource { // the tool can do without a task
				return t.callOnce(ctx, client, c, false)
			}
			return nil, mcptask.LostError(t.s.e.Server().Name)
		}
		if theirs := mcptask.HandleIn(result, client, t.s.e.Now()); theirs != nil {
			return nil, t.attach(client, theirs, result)
		}
		o, err := jsonobj.ParseObject(result)
		if err != nil || o.Text("resultType") != "input_required" || t.handOver(result) {
			return result, nil
		}
		responses, err := t.askAll(ctx, o.Object("inputRequests"))
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

// withStartGrace is a context for the call that starts a task. It ends a while after ctx: only the
// server's answer says which task is to be cancelled there. When the endpoint is closed it ends at
// once.
func (t *task) withStartGrace(ctx context.Context) (context.Context, func()) {
	grace, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(startGrace):
		case <-t.s.e.Context().Done():
		case <-grace.Done():
		}
		cancel(context.Cause(ctx))
	})
	return grace, func() { stop(); cancel(nil) }
}

// taskParam says to a legacy server whether the call is to be a task: in the client's words, where
// it has any.
func (t *task) taskParam(params jsonobj.Object, c toolCall, asTask bool) jsonobj.Object {
	if !asTask || c.source != upstreamSource && c.source != requiredTask {
		return params.Delete("task")
	}
	task := append(jsonobj.Object(nil), params.Object("task")...)
	if !c.asTask || c.r.Era == mcp.Modern || task.Has("ttl") {
		task = task.Set("ttl", taskwire.Millis(c.ttl))
	}
	return params.Set("task", task.JSON())
}

// handOver gives the questions of a modern server to a modern client that still waits for the call,
// and reports whether it did.
func (t *task) handOver(questions json.RawMessage) bool {
	t.changing.Lock()
	defer t.changing.Unlock()
	if !t.passInput || t.kept {
		return false
	}
	return t.changeHeld(func(rec *store.MCPTask) { rec.Status, rec.Result = mcptask.Completed, questions }) == nil
}

// heard passes on what a server says in the middle of a call, with the call or, when that has been
// answered, with the client's session.
func (t *task) heard(c toolCall) func(method string, params json.RawMessage) {
	return func(method string, params json.RawMessage) {
		t.idle.Reset()
		if method == mcp.NoteTaskStatus || method == mcp.NoteTask {
			t.s.k.heardStatus(t.s, c.l.Client(), params)
			return
		}
		params = mcp.WithoutMeta(params, mcp.MetaRelatedTask, mcptask.MetaForeignRelated, mcp.MetaSubscriptionID)
		if method == mcp.NoteMessage && c.r.Era == mcp.Modern && c.r.Meta().Text(mcp.MetaLogLevel) == "" {
			return // a modern client gets no logs that it has not asked for
		}
		if c.r.Notify(method, params) != nil && c.r.Era == mcp.Legacy {
			_ = c.r.Session.Notify(method, params) // one that has ended does not want to know
		}
	}
}

// attach notes the task that the server has made. One whose id another task of ours has is refused,
// and so is the other: nobody can tell to which of the calls its result belongs.
func (t *task) attach(client *mcp.Client, theirs *wait.MCPTask, reply json.RawMessage) error {
	if other := t.s.k.index.claim(t, t.s.upstreamID(client, theirs.ID)); other != nil {
		e := mcp.Errorf(mcp.CodeInternal, "MCP server %q has given two calls one task id; whose result is whose cannot be told", t.s.e.Server().Name)
		other.fail(e)
		other.cancel()
		return e
	}
	t.mu.Lock()
	t.client, t.upstreamTask, t.reply = client, theirs, reply
	t.mu.Unlock()
	return t.change(func(rec *store.MCPTask) {
		rec.Message = theirs.Message
		if theirs.PollMs > 0 {
			rec.Poll = time.Duration(theirs.PollMs) * time.Millisecond
		}
		rec.Work = t.work()
	})
}

// taskWork is what another process needs to go on with a task.
type taskWork struct {
	Task         *wait.MCPTask   `json:"task"`
	Capabilities json.RawMessage `json:"capabilities"`
}

func (t *task) work() json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	work, err := json.Marshal(taskWork{t.upstreamTask, t.capabilities.JSON()})
	if err != nil {
		return nil // the capabilities were no JSON; the task is lost with us
	}
	return work
}
