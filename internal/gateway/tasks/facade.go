package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
)

// Options give clients that can wait themselves tasks to wait for: those of 2025-11-25 and those of the extension of 2026-07-28, whatever
// their server speaks. Zero values are the defaults.
type Options struct {
	// Store keeps the tasks and the clients' sessions. It must be there.
	Store store.MCPTasks
	// TTL is how long a task is kept whose client does not say; 0 is 30 min. MaxTTL bounds what clients may say; 0 is 2 h.
	TTL, MaxTTL time.Duration
	// Poll is how often clients are told to ask, and servers that do not say are asked; 0 is 1 s. Cleanup is how often expired tasks and idle
	// sessions are looked for; 0 is 1 min.
	Poll, Cleanup time.Duration
	// Page is how many tasks tasks/list gives at once; 0 is 100.
	Page int
	// Max is how many tasks there may be, MaxPerSession how many of one legacy session; 0 is 10,000 and 1,000.
	Max, MaxPerSession int
	// Grace is how long a modern client waits for the result of an ordinary call before it is given a task instead; 0 is 1 s.
	Grace time.Duration
	// SessionIdle is after how long a legacy session ends that nobody uses; 0 is 2 h, or MaxTTL if that is longer.
	SessionIdle time.Duration
	// Strict refuses calls that their server needs a task for of modern clients that have not declared the extension, as that prescribes.
	// Else such clients wait for the result, as legacy ones do.
	Strict bool
}

// The defaults and bounds of TaskOptions that are shown to people, and the others.
const (
	DefaultTaskTTL         = 30 * time.Minute
	DefaultMaxTaskTTL      = 2 * time.Hour
	DefaultMaxTasks        = 10_000
	DefaultMaxSessionTasks = 1_000
	LongestTaskTTL         = 30 * 24 * time.Hour
	MostTasks              = 1_000_000

	defaultTaskPoll    = time.Second
	defaultTaskCleanup = time.Minute
	defaultTaskPage    = 100
	defaultTaskGrace   = time.Second
	largestTaskPage    = 1_000
)

// complete fills in the defaults and checks the options.
func (o Options) complete() (Options, error) {
	if o.Store == nil {
		return o, errors.New("tasks need a store")
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = DefaultMaxTaskTTL
	}
	for _, d := range []struct {
		name           string
		value          *time.Duration
		otherwise, max time.Duration
	}{
		{"longest time to live of tasks", &o.MaxTTL, 0, LongestTaskTTL}, {"time to live of tasks", &o.TTL, min(DefaultTaskTTL, o.MaxTTL), o.MaxTTL},
		{"poll interval of tasks", &o.Poll, defaultTaskPoll, time.Hour}, {"cleanup interval of tasks", &o.Cleanup, defaultTaskCleanup, time.Hour},
		{"grace of calls", &o.Grace, defaultTaskGrace, time.Hour}, {"time of idle sessions", &o.SessionIdle, max(DefaultMaxTaskTTL, o.MaxTTL), 2 * LongestTaskTTL},
	} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
		if *d.value < time.Millisecond || *d.value > d.max {
			return o, fmt.Errorf("the %s is %v: expected 1ms to %v", d.name, *d.value, d.max)
		}
	}
	if o.Max == 0 {
		o.Max = DefaultMaxTasks
	}
	for _, n := range []struct {
		name           string
		value          *int
		otherwise, max int
	}{
		{"number of tasks", &o.Max, DefaultMaxTasks, MostTasks}, {"number of tasks of a session", &o.MaxPerSession, min(DefaultMaxSessionTasks, o.Max), o.Max},
		{"number of tasks of a page", &o.Page, defaultTaskPage, largestTaskPage},
	} {
		if *n.value == 0 {
			*n.value = n.otherwise
		}
		if *n.value < 1 || *n.value > n.max {
			return o, fmt.Errorf("the greatest %s is %d: expected 1 to %d", n.name, *n.value, n.max)
		}
	}
	return o, nil
}

// facade is the policy for clients that can wait themselves: what takes long at the server, or may, they can have as tasks of ours.
type facade struct {
	e *gateway.Endpoint
	k *Manager
}

var (
	legacyTasksOffer = json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
)

func (s *facade) InitializeResult(era mcp.Era, capabilities, meta jsonobj.Object) (jsonobj.Object, jsonobj.Object) {
	return offerTasks(era, capabilities), meta
}

// offerTasks puts what we do about tasks into the capabilities of a server, in place of what it does itself.
func offerTasks(era mcp.Era, capabilities jsonobj.Object) jsonobj.Object {
	capabilities = slices.Clone(capabilities)
	if era == mcp.Modern {
		extensions := slices.Clone(capabilities.Object("extensions"))
		return capabilities.Delete("tasks").Set("extensions", extensions.Set(mcp.ExtensionTasks, mcp.EmptyObject).JSON())
	}
	return gateway.WithoutExtension(capabilities).Set("tasks", legacyTasksOffer)
}

// ShowTool shows in the legacy era which tools can be called as tasks. The modern one does not know that of tools.
func (s *facade) ShowTool(l *gateway.Upstream, t jsonobj.Object) jsonobj.Object {
	if l.Session() == nil {
		return t.Delete("execution")
	}
	// Of a server with tasks, what it does not say is no. One without may say no (the SDK for TypeScript always does), which is of tasks of its own:
	// what it offers can become a task of ours.
	execution, support := t.Object("execution"), json.RawMessage(`"optional"`)
	switch tasks, said := l.Offered().Tasks, execution.Text("taskSupport"); {
	case said == "" && tasks && l.Client().Era() == mcp.Legacy:
		support = json.RawMessage(`"forbidden"`)
	case said != "" && (said != "forbidden" || tasks):
		return t
	}
	return t.Set("execution", slices.Clone(execution).Set("taskSupport", support).JSON())
}

func (s *facade) Capabilities(_ mcp.Era, c json.RawMessage) json.RawMessage { return c }

func (s *facade) AsksPerson() bool { return false }

func (s *facade) WantsTasks() bool { return false }

// taskSource is where the task for a call comes from.
type taskSource int

const (
	noTask         taskSource = iota // the tool is not to be called as a task
	ownTask                          // the gateway runs an ordinary call
	upstreamSource                   // the server takes the call as a task
	requiredTask                     // the server takes the call as a task only
	offeredTask                      // the server decides, once it knows that the client can take a task
)

func (s *facade) sourceOf(l *gateway.Upstream, t gateway.Tool, listed bool) taskSource {
	legacy, tasks := l.Client().Era() == mcp.Legacy, l.Offered().Tasks
	switch {
	case !listed:
		return noTask // the server knows what to say
	case legacy && t.TaskSupport == "required":
		return requiredTask
	case tasks && t.TaskSupport == "forbidden":
		return noTask
	case legacy && tasks && t.TaskSupport == "optional":
		return upstreamSource
	case legacy && tasks:
		return noTask
	case !legacy && tasks:
		return offeredTask
	}
	return ownTask
}

// lookupTool is what is known of a tool, which is listed for that if need be. That may be forgotten at once, since lists change.
func (s *facade) lookupTool(ctx context.Context, l *gateway.Upstream, name string) (t gateway.Tool, listed bool) {
	ctx, cancel := context.WithTimeout(ctx, s.e.Server().CallLimit()) // of all tries
	defer cancel()
	for range 3 {
		if t, listed = s.e.LookupTool(name); listed {
			break
		}
		l.LookupTool(ctx, name)
	}
	return t, listed
}

// toolCall is a call of a tool on its way to a result or a task.
type toolCall struct {
	l *gateway.Upstream
	r *mcp.Request
	// name is the tool's, params are the client's.
	name   string
	params jsonobj.Object
	// capabilities are the client's; asTask says that it can take a task or, if it is legacy, that it wants one, for as long as ttl.
	capabilities jsonobj.Object
	asTask       bool
	ttl          time.Duration
	// source is where its task comes from. It stays, whatever is heard of the tools meanwhile: without a task some must not be called.
	source taskSource
}

// read reads what a client wants.
func (s *facade) read(l *gateway.Upstream, r *mcp.Request) (c toolCall, err error) {
	c = toolCall{l: l, r: r, capabilities: l.Capabilities(), ttl: s.k.o.TTL}
	if c.params, err = jsonobj.ParseObject(r.Params); err != nil {
		return c, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	c.name = c.params.Text("name")
	if r.Era == mcp.Modern {
		c.capabilities = r.Meta().Object(mcp.MetaClientCapabilities)
		c.asTask = hasTasks(c.capabilities)
		c.params = c.params.Delete("task") // of another era, and so nothing
		return c, nil
	}
	if wish := c.params.Get("task"); !jsonobj.IsNull(wish) {
		c.asTask = true
		task, err := jsonobj.ParseObject(wish)
		if err != nil {
			return c, mcp.Errorf(mcp.CodeInvalidParams, "params.task: %v", err)
		}
		var ms float64
		if ttl := task.Get("ttl"); !jsonobj.IsNull(ttl) {
			if json.Unmarshal(ttl, &ms) != nil || ms <= 0 {
				return c, mcp.Errorf(mcp.CodeInvalidParams, "params.task.ttl: expected milliseconds, a positive number")
			}
			c.ttl = time.Duration(max(1, min(ms, float64(s.k.o.MaxTTL.Milliseconds())))) * time.Millisecond
		}
	}
	return c, nil
}

func hasTasks(capabilities jsonobj.Object) bool {
	return capabilities.Object("extensions").Has(mcp.ExtensionTasks)
}

// missingTasks is the error for a modern client that has not said that it knows tasks.
func missingTasks() error {
	return mcp.Errorf(mcp.CodeMissingCapability, "the client has not declared the extension %s", mcp.ExtensionTasks).
		WithData(json.RawMessage(`{"requiredCapabilities":{"extensions":{"` + mcp.ExtensionTasks + `":{}}}}`))
}

// needsTasks reports whether that is what a server says.
func needsTasks(err error) bool {
	var said *mcp.Error
	if !errors.As(err, &said) || said.Code != mcp.CodeMissingCapability {
		return false
	}
	data, _ := jsonobj.ParseObject(said.Data())
	return hasTasks(data.Object("requiredCapabilities"))
}

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
		return nil, missingTasks()
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

// callDirect makes an ordinary call, or one of which a modern server decides whether it becomes a task. If it needs one for a client that does not know
// tasks we wait for that.
func (s *facade) callDirect(ctx context.Context, c toolCall) (json.RawMessage, error) {
	params := c.r.Params
	if c.r.Era == mcp.Modern {
		params = c.params.JSON()
	}
	result, err := c.l.Pass(ctx, c.r, params)
	return s.concluded(ctx, c, result, err)
}

// concluded is what comes of an ordinary call for which the server has answered.
func (s *facade) concluded(ctx context.Context, c toolCall, result json.RawMessage, err error) (json.RawMessage, error) {
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
	if theirs := mcptask.HandleIn(result, server, s.e.Now()); theirs != nil {
		return s.adopt(ctx, c, server, theirs, result)
	}
	return c.l.ToClient(c.r, result), nil
}

// adopt makes a task of one that a server has made.
func (s *facade) adopt(ctx context.Context, c toolCall, server *mcp.Client, theirs *mcptask.Task, reply json.RawMessage) (json.RawMessage, error) {
	t := s.newTask(c)
	if err := t.attach(server, theirs, reply); err != nil {
		t.cancel()
		return nil, err
	}
	if c.asTask {
		if err := t.keep(); err != nil {
			t.stop("there are too many tasks") // and so the server is told
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
	if err := t.keep(); err != nil { // before the call, so that a limit costs nobody a job
		return nil, err
	}
	result, err := t.callWatched(ctx, c)
	if err != nil {
		t.forget()
		return nil, c.l.ClientError(err)
	}
	if result != nil && c.r.Era == mcp.Modern {
		t.forget() // the server has not made a task of it
		return c.l.ToClient(c.r, result), nil
	}
	s.track(t, func() { t.conclude(result, nil) })
	return t.created(c.r.Era), nil
}

// callDetached makes an ordinary call, or one that becomes a task of a modern server, for a legacy client that has its task at once.
func (s *facade) callDetached(c toolCall) (json.RawMessage, error) {
	t := s.newTask(c)
	if err := t.keep(); err != nil {
		return nil, err
	}
	s.track(t, func() { t.conclude(t.call(t.ctx, c, true)) })
	return t.created(c.r.Era), nil
}

// callWithGrace makes an ordinary call for a modern client, who gets a task only if the result takes longer than the grace or something has to be asked.
func (s *facade) callWithGrace(ctx context.Context, c toolCall) (json.RawMessage, error) {
	t := s.newTask(c)
	t.passInput = true
	s.track(t, func() { t.conclude(t.call(t.ctx, c, false)) })
	grace := time.NewTimer(s.k.o.Grace)
	defer grace.Stop()
	select {
	case <-t.done:
		return t.answer(c)
	case <-grace.C:
	case <-t.asked:
	case <-ctx.Done():
		t.stop("its client has gone")
		return nil, context.Cause(ctx)
	}
	switch err := t.keep(); {
	case errors.Is(err, errTaskEnded):
		return t.answer(c)
	case err != nil: // the client waits for the result then
		return t.await(ctx, c)
	}
	return t.created(c.r.Era), nil
}

// wait makes a call for which the server needs a task, for a client that does not know tasks: it gets the final result.
func (s *facade) wait(ctx context.Context, c toolCall) (json.RawMessage, error) {
	t := s.newTask(c)
	t.passInput = c.r.Era == mcp.Modern
	t.direct = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
		if c.r.Era == mcp.Modern {
			return mcp.DefaultAnswer(method) // it can be asked only by an answer to its call
		}
		return mcp.AnswerOf(c.r.Ask(ctx, method, params))
	}
	s.track(t, func() { t.conclude(t.callWatched(t.ctx, c)) })
	return t.await(ctx, c)
}

// track sees a task through on a goroutine that the endpoint waits for.
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
