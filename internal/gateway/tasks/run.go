package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// declared are the client's capabilities with the extension for tasks.
func (t *task) declared() json.RawMessage {
	c := append(jsonobj.Object(nil), t.capabilities...)
	return c.Set("extensions", append(jsonobj.Object(nil), c.Object("extensions")...).Set(mcp.ExtensionTasks, mcp.EmptyObject).JSON()).JSON()
}

// call makes the call of a task. The result is nil if the server has made a task of it. asTask asks for that, in the way of the server's era.
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

// inModern is a link over which a server can make a task of a call that has come over a legacy one: some servers have tasks in the modern era only.
// It is nil if this server does not. Modern links are shared, as they have no sessions.
func (s *facade) inModern(ctx context.Context, c toolCall) *gateway.Upstream {
	if c.l.Client().Era() == mcp.Modern {
		return nil
	}
	l, err := s.e.Shared(jsonobj.Object{{Key: mcp.MetaClientCapabilities, Value: c.capabilities.JSON()}, {Key: mcp.MetaClientInfo, Value: c.info()}}, true)
	if err != nil || l.Connect(ctx) != nil || l.Client().Era() != mcp.Modern || !l.Offered().Tasks {
		return nil
	}
	return l
}

// callWatched is call, as a task, of which its server should soon be heard, since somebody waits for it to become one: it ends when nothing is, and
// with the task.
func (t *task) callWatched(ctx context.Context, c toolCall) (json.RawMessage, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(t.ctx, func() { end(errTaskEnded) })()
	t.idle = t.s.e.StartIdleTimer(end)
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

// startGrace is how long a server may take to answer the start of a task that is cancelled meanwhile.
const startGrace = time.Second

// withStartGrace is a context for the call that starts a task. It ends a while after ctx: only the server's answer says which task is
// to be cancelled there. When the endpoint is closed it ends at once.
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

// taskParam says to a legacy server whether the call is to be a task: in the client's words, where it has any.
func (t *task) taskParam(params jsonobj.Object, c toolCall, asTask bool) jsonobj.Object {
	if !asTask || c.source != upstreamSource && c.source != requiredTask {
		return params.Delete("task")
	}
	task := append(jsonobj.Object(nil), params.Object("task")...)
	if !c.asTask || c.r.Era == mcp.Modern || task.Has("ttl") {
		task = task.Set("ttl", millis(c.ttl))
	}
	return params.Set("task", task.JSON())
}

// info is clientInfo for a modern server.
func (c *toolCall) info() json.RawMessage {
	if c.r.Era == mcp.Modern {
		return c.r.Meta().Get(mcp.MetaClientInfo)
	}
	return c.l.Info()
}

// handOver gives the questions of a modern server to a modern client that still waits for the call, and reports whether it did.
func (t *task) handOver(questions json.RawMessage) bool {
	t.changing.Lock()
	defer t.changing.Unlock()
	if !t.passInput || t.kept {
		return false
	}
	return t.changeHeld(func(rec *store.MCPTask) { rec.Status, rec.Result = mcptask.Completed, questions }) == nil
}

// heard passes on what a server says in the middle of a call, with the call or, when that has been answered, with the client's session.
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

// attach notes the task that the server has made. One whose id another task of ours has is refused, and so is the other: nobody can tell to which
// of the calls its result belongs.
func (t *task) attach(client *mcp.Client, theirs *mcptask.Task, reply json.RawMessage) error {
	if other := t.s.k.claim(t, client, theirs.ID); other != nil {
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
	Task         *mcptask.Task   `json:"task"`
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

// conclude brings a task to its end after its call: result is nil if its server works on it.
func (t *task) conclude(result json.RawMessage, err error) {
	defer t.cancel()
	end := taskEnd{status: mcptask.Completed, result: result}
	if err == nil && result == nil {
		end, err = t.follow()
	}
	switch {
	case t.s.e.Context().Err() != nil: // another process goes on with it
		return
	case t.ctx.Err() != nil: // whoever ended it has said so
		t.cancelUpstream()
		return
	case err != nil:
		var said *mcp.Error
		if !errors.As(err, &said) {
			said = mcp.Errorf(mcp.CodeInternal, "MCP server %q: %v", t.s.e.Server().Name, err)
		}
		t.fail(said)
		return
	}
	t.finish(func(rec *store.MCPTask) {
		rec.Status, rec.Message, rec.Result, rec.Error = end.status, end.message, end.result, end.err
	})
}

// cancelTimeout is how long a server may take to be told that a task is not wanted any more.
const cancelTimeout = 5 * time.Second

func (t *task) cancelUpstream() {
	t.mu.Lock()
	client, theirs := t.client, t.upstreamTask
	t.mu.Unlock()
	if theirs == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.s.e.Context(), cancelTimeout)
	defer cancel()
	_ = mcptask.Cancel(ctx, client, theirs) // one that cannot be told will forget it
}

// taskEnd is how a server's task has ended.
type taskEnd struct {
	status, message string
	result, err     json.RawMessage
}

const (
	// resultGrace is how long a task may be done before its result is there.
	resultGrace = 2 * time.Second
	// shortestPoll is how often a server is asked at most.
	shortestPoll = 50 * time.Millisecond
	// longestRetry is how rarely a server is asked that cannot be reached.
	longestRetry = 30 * time.Second
	// maxRefusals is how often in a row a server may refuse to tell of a task.
	maxRefusals = 5
)

// errNoResult says that a task is done and its result is not there yet.
var errNoResult = errors.New("the task is done, but its result is not there")

// follow asks the server for its task until that has ended. A server that cannot be reached is asked again for as long as the task is kept.
func (t *task) follow() (taskEnd, error) {
	var refusals, unreached int
	var since time.Time // the result is missing
	for {
		end, err := t.lookOnce()
		rec, _ := t.record()
		pause := min(max(rec.Poll, shortestPoll), longestRetry)
		var said *mcp.Error
		switch {
		case t.ctx.Err() != nil:
			return taskEnd{}, t.ctx.Err()
		case err == nil && end != nil:
			return *end, nil
		case err == nil:
			refusals, unreached = 0, 0
		case errors.Is(err, errNoResult):
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) >= resultGrace {
				if errors.As(err, &said) {
					return taskEnd{status: mcptask.Failed, message: said.Message, err: said.JSON()}, nil
				}
				return taskEnd{}, err
			}
			pause = min(pause, resultGrace/8)
		case errors.Is(err, mcp.ErrSessionLost), errors.As(err, &said) && said.Code == mcp.CodeInvalidParams:
			return taskEnd{}, t.lost(err)
		case errors.As(err, &said):
			if refusals++; refusals >= maxRefusals || said.Code == mcp.CodeMethodNotFound {
				return taskEnd{}, fmt.Errorf("it does not tell of the task: %w", said)
			}
		case t.client.Err() != nil:
			return taskEnd{}, err // its process has gone, and the task with it
		default:
			unreached++
			pause = min(max(pause, time.Second/2)<<min(unreached-1, 6), longestRetry)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-t.poke:
		case <-t.client.Done():
		case <-t.ctx.Done():
		}
		timer.Stop()
	}
}

// lost says that the server has forgotten the task, and what it had said about that.
func (t *task) lost(err error) error {
	until := "for ever"
	if at := t.upstreamTask.ExpiresAt(); !at.IsZero() {
		until = "until " + at.UTC().Format(time.RFC3339)
	}
	return mcp.Errorf(mcp.CodeInternal, "MCP server %q has forgotten the task before its result could be fetched, though it was to keep it %s: %v", t.s.e.Server().Name, until, err)
}

// longestLook is how long a server may take to say how a task is, or to take an answer, if a call may take as long.
const longestLook = time.Minute

func (t *task) lookTimeout() time.Duration { return min(longestLook, t.s.e.Server().CallLimit()) }

// lookOnce asks the server once. The end is nil as long as there is none.
func (t *task) lookOnce() (*taskEnd, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.lookTimeout())
	defer cancel()
	result, err := t.client.Call(ctx, mcp.Call{Method: mcp.MethodTasksGet, Params: mcptask.Params(t.upstreamTask.ID), Capabilities: t.declared()})
	if err != nil {
		return nil, err
	}
	var w mcptask.Wire
	if err := json.Unmarshal(result, &w); err != nil || w.Status == "" {
		return nil, mcp.Errorf(mcp.CodeInternal, "the answer to tasks/get is no task: %.200s", result)
	}
	w.Apply(t.upstreamTask)
	if !mcptask.IsStatus(w.Status) {
		unknown := mcptask.UnknownStatus(w.Status)
		return &taskEnd{status: mcptask.Failed, message: unknown.Message, err: unknown.JSON()}, nil
	}
	switch w.Status {
	case mcptask.Completed, mcptask.Failed:
		if t.upstreamTask.Era == mcp.Legacy {
			return t.fetch(ctx, w)
		}
		return modernEnd(w)
	case mcptask.Cancelled:
		return &taskEnd{status: mcptask.Cancelled, message: w.StatusMessage}, nil
	}
	t.setQuestionsOf(w)
	_ = t.change(func(rec *store.MCPTask) { // what is not stored is seen at the next look
		rec.Message = w.StatusMessage
		if poll := w.PollInterval; poll > 0 {
			rec.Poll = time.Duration(poll) * time.Millisecond
		}
	})
	if w.Status == mcptask.InputRequired && t.upstreamTask.Era == mcp.Legacy {
		return t.fetch(t.ctx, w) // what it wants to know it asks while this waits
	}
	if w.Status == mcptask.InputRequired && t.direct != nil {
		return nil, t.askDirect() // which may take as long as a person does
	}
	return nil, nil
}

func (t *task) setQuestionsOf(w mcptask.Wire) {
	if t.upstreamTask.Era != mcp.Modern {
		return
	}
	t.setQuestions(w.InputRequests)
	if w.Status == mcptask.InputRequired {
		select {
		case t.asked <- struct{}{}:
		default:
		}
	}
}

// askDirect asks a client that waits for its call what a modern task wants to know.
func (t *task) askDirect() error {
	for q := t.claim(); q != nil; q = t.claim() {
		if q.given == nil {
			asked, _ := jsonobj.ParseObject(q.request)
			answer, failed := t.ask(t.ctx, asked.Text("method"), asked.Get("params"))
			if failed != nil {
				answer = mcp.CancelAnswer
			}
			q.given = answer
		}
		if err := t.handIn(t.ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// modernEnd reads the end of a task of the extension. A tool that has failed is a failed task in the other era.
func modernEnd(w mcptask.Wire) (*taskEnd, error) {
	end := &taskEnd{status: w.Status, message: w.StatusMessage, result: w.Result, err: w.Error}
	if end.result == nil && end.err == nil {
		return nil, errNoResult
	}
	if w.Status == mcptask.Completed {
		end.err = nil
		if o, _ := jsonobj.ParseObject(w.Result); string(o.Get("isError")) == "true" {
			end.status = mcptask.Failed
		}
	} else {
		end.result = nil
	}
	return end, nil
}

// fetch gets the payload of a legacy task, and waits for it while the task waits for input.
func (t *task) fetch(ctx context.Context, w mcptask.Wire) (*taskEnd, error) {
	ended := mcptask.IsTerminal(w.Status)
	result, err := t.client.Call(ctx, mcp.Call{
		Method: mcp.MethodTasksResult, Params: mcptask.Params(t.upstreamTask.ID), Asked: t.ask,
		Notified: func(string, json.RawMessage) {}, // of the task's status we hear otherwise
	})
	var said *mcp.Error
	switch {
	case errors.As(err, &said) && ended && (w.Status == mcptask.Completed || said.Code == mcp.CodeInternal || said.Code == mcp.CodeInvalidParams):
		return nil, fmt.Errorf("%w: %w", errNoResult, said) // it may come yet; in the end it is the error
	case errors.As(err, &said) && ended:
		return &taskEnd{status: mcptask.Failed, message: w.StatusMessage, err: said.JSON()}, nil
	case errors.As(err, &said):
		t.look()
		return nil, nil // it has ended while we waited; how is asked next
	case err != nil:
		return nil, err
	}
	end := &taskEnd{status: w.Status, message: w.StatusMessage, result: mcp.WithoutMeta(result, mcp.MetaRelatedTask, mcptask.MetaForeignRelated)}
	if !ended {
		end.status, end.message = mcptask.Completed, ""
		if o, _ := jsonobj.ParseObject(result); string(o.Get("isError")) == "true" {
			end.status = mcptask.Failed
		}
	}
	return end, nil
}
