package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/wait"
)

// policy is the policy for a client that cannot wait, such as an agent whose rollout can be
// suspended. The client knows nothing of tasks and jobs, because the gateway handles them. So it
// does not see servers' advertisements of them. Neither does it see the output schemas of tools
// whose answer may be that something was started, or is played, since clients enforce them.
type policy struct {
	e     *gateway.Endpoint
	hooks Hooks

	// turn is done when the client's turn is over.
	turn    context.Context
	endTurn context.CancelFunc

	mu      sync.Mutex
	running map[CallKey]*runningCall
}

// Policy makes the policy of an endpoint; see [AccessOptions].
func (h *Hooks) Policy(e *gateway.Endpoint) gateway.Policy { return newPolicy(e, h) }

func newPolicy(e *gateway.Endpoint, hooks *Hooks) *policy {
	s := &policy{e: e, hooks: *hooks, running: map[CallKey]*runningCall{}}
	s.turn, s.endTurn = context.WithCancel(e.Context())
	if s.hooks.Changed == nil {
		s.hooks.Changed = func(wait.Work, State) {}
	}
	if s.hooks.Called == nil {
		s.hooks.Called = func(Record) {}
	}
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{{&s.hooks.SoftWait, defaultSoftWait}, {&s.hooks.Hold, defaultHold}, {&s.hooks.Progress, defaultProgress}} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	return s
}

func (s *policy) InitializeResult(_ mcp.Era, capabilities, meta jsonobj.Object) (jsonobj.Object, jsonobj.Object) {
	return gateway.WithoutExtension(slices.Clone(capabilities).Delete("tasks")),
		slices.Clone(meta).Delete(gateway.MetaJob, mcp.MetaIdempotency)
}

func (s *policy) ShowTool(l *gateway.Upstream, t jsonobj.Object) jsonobj.Object {
	known := gateway.ToolOf(t)
	if s.mayStart(l, t.Text("name"), known) || s.hooks.Mocks.Mocks(s.e.Server().Name, t.Text("name")) {
		t = t.Delete("outputSchema")
	}
	return t.Delete("execution")
}

// Capabilities adds the tasks of the modern era to the client's capabilities, and elicitation if a
// person is asked.
func (s *policy) Capabilities(era mcp.Era, doc json.RawMessage) json.RawMessage {
	c, _ := jsonobj.ParseObject(doc)
	if s.AsksPerson() && !c.Has("elicitation") {
		c = c.Set("elicitation", json.RawMessage(`{"form":{},"url":{}}`))
	}
	if era == mcp.Modern {
		c = c.Set("extensions", c.Object("extensions").Set(mcp.ExtensionTasks, mcp.EmptyObject).JSON())
	}
	return c.JSON()
}

func (s *policy) WantsTasks() bool { return true }

// mayStart reports whether a call of a tool may be answered by a handle. Every tool of a modern
// server with tasks may. For tools that might start a job, a hint that they only read is believed.
func (s *policy) mayStart(l *gateway.Upstream, name string, t gateway.Tool) bool {
	switch o := l.Offered(); {
	case s.startsMeshJobs(name, t), s.hooks.Once && !t.ReadOnly && !t.Idempotent:
		return true
	case o.Jobs > 0 && !t.ReadOnly:
		return true
	case !o.Tasks:
		return false
	case l.Client().Era() == mcp.Legacy:
		return t.TaskSupport == "required" || t.TaskSupport == "optional" && !s.e.Server().ChildProcess
	}
	return true
}

// Call makes a call of a tool and records it.
func (s *policy) Call(ctx context.Context, l *gateway.Upstream, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	rec := Record{Server: s.e.Server().Name, Tool: params.Text("name"),
		Arguments: params.Get("arguments"), StartedAt: s.e.Now()}
	if meta := slices.Clone(r.Meta()).Delete(
		append([]string{mcp.MetaProgressToken}, gateway.HopKeys...)...,
	); len(meta) > 0 {
		rec.Meta = meta.JSON()
	}
	result, err := s.callTool(ctx, l, r, &rec)
	rec.DurationMs, rec.Result = s.e.Now().Sub(rec.StartedAt).Milliseconds(), result
	if err != nil {
		rec.Error = asError(err).JSON()
	}
	s.hooks.Called(rec)
	return result, err
}

func (s *policy) callTool(ctx context.Context, l *gateway.Upstream,
	r *mcp.Request, rec *Record) (json.RawMessage, error) {
	if s.hooks.Permit != nil {
		if refusal := s.hooks.Permit(ctx, rec.Server, rec.Tool, rec.Arguments); refusal != "" {
			rec.Refused = true
			return l.ToClient(r, TextResult(refusal, true)), nil
		}
	}
	if answer, place, ok := s.hooks.Mocks.Call(rec.Server, rec.Tool, rec.Arguments); ok {
		rec.Mock = place
		if answer.Model != nil {
			var err error
			t, _ := s.e.Tools().Lookup(rec.Tool)
			if answer.Result, err = s.hooks.Mocks.Written(ctx, answer, mock.Call{Place: place, Tool: rec.Tool,
				Description: t.Description, Schema: t.Schema(), Arguments: rec.Arguments}); err != nil {
				return nil, err
			}
		}
		return s.play(ctx, r, answer)
	}
	t, _ := s.e.Tools().Lookup(rec.Tool)
	if o := l.Offered(); o.Jobs > 0 || o.Tasks || s.hooks.Once {
		t = s.e.Tools().Find(ctx, l, rec.Tool)
	}
	if s.mayStart(l, rec.Tool, t) {
		return s.callStarting(ctx, l, r, t, rec)
	}
	result, err := l.Pass(gateway.WithHeartbeat(ctx, s.hooks.Progress), r, r.Params)
	if err != nil {
		return s.broken(l, err)
	}
	if mcptask.Names(result) {
		return nil, mcptask.LostError(s.e.Server().Name)
	}
	if s.AsksPerson() {
		if in := mcptask.InputOf(result); in != nil {
			return s.askPerson(ctx, r, rec, in)
		}
	}
	return l.ToClient(r, result), nil
}

// broken is the result of a call whose server has gone, for the model to read. Errors of the server
// itself are passed on unchanged.
func (s *policy) broken(l *gateway.Upstream, err error) (json.RawMessage, error) {
	clientErr := l.ClientError(err)
	if errors.Is(err, mcp.ErrClosed) || errors.Is(err, gateway.ErrTimeout) {
		return TextResult(asError(clientErr).Message, true), nil
	}
	return nil, clientErr
}

// callStarting makes a call that may start something, or joins the equal one that runs.
func (s *policy) callStarting(ctx context.Context, l *gateway.Upstream,
	r *mcp.Request, t gateway.Tool, rec *Record) (json.RawMessage, error) {
	if s.turn.Err() != nil {
		rec.Refused = true
		return l.ToClient(r, TextResult(
			"Your turn is over: end it now. What you have started goes on, and its result will be given to you in a later message.", true)), nil
	}
	key := keyOf(rec.Server, rec.Tool, rec.Arguments)
	s.mu.Lock()
	c := s.running[key]
	first := c == nil
	if first {
		c = &runningCall{
			p: s, l: l, r: r, t: t, key: key, arguments: rec.Arguments,
			started: make(chan struct{}), done: make(chan struct{}),
		}
		s.running[key] = c
	}
	s.mu.Unlock()
	if first {
		// Neither the client's patience nor its end stops the call, because its outcome must be known.
		s.e.Go(func() {
			c.run()
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.running, key)
			close(c.done) // from now on an equal call is a new one
		})
	}
	return c.await(ctx, l, r, rec)
}

// startParams are the params of a call that may start something. They say what the caller can wait
// for, as far as the server has offered it in this session.
func (s *policy) startParams(l *gateway.Upstream, params json.RawMessage, t gateway.Tool, id string) json.RawMessage {
	o := l.Offered()
	if o.Jobs > 0 {
		params = startMeta(params, o.Jobs, id)
	} else if o.Deduplicates {
		params = startKey(params, id)
	}
	if o.Tasks && l.Client().Era() == mcp.Legacy &&
		(t.TaskSupport == "required" || t.TaskSupport == "optional" && !s.e.Server().ChildProcess) {
		if p, err := jsonobj.ParseObject(params); err == nil {
			params = p.Set("task", json.RawMessage("{}")).JSON()
		}
	}
	return params
}

// asError turns an error into the one that the client gets.
func asError(err error) *mcp.Error {
	var said *mcp.Error
	if errors.As(err, &said) {
		return said
	}
	return mcp.Errorf(mcp.CodeInternal, "%v", err)
}

func (s *policy) countHeld(rec *Record) {
	rec.Held = true
	s.e.CountHeld()
}

// shown turns a result into the one that the client's protocol wants.
func (s *policy) shown(r *mcp.Request, result json.RawMessage) json.RawMessage {
	o, err := jsonobj.ParseObject(result)
	switch {
	case err != nil:
		return result
	case r.Era == mcp.Modern && !o.Has("resultType"):
		return o.Set("resultType", json.RawMessage(`"complete"`)).JSON()
	case r.Era == mcp.Legacy && o.Has("resultType"):
		return o.Delete("resultType").JSON()
	}
	return result
}

// startedText tells a model of work that goes on without it.
func startedText(w *wait.Work) string {
	why := fmt.Sprintf("%s has started a job that goes on by itself and takes longer than this call can wait.", w.Tool)
	switch {
	case w.Input != nil:
		why = fmt.Sprintf("%s wants to know something before it goes on, and a person was asked.", w.Tool)
	case w.Task != nil:
		why = fmt.Sprintf("%s has started a task that goes on by itself and takes longer than this call can wait.", w.Tool)
	}
	return strings.Join([]string{
		why,
		"Its result is not here yet, and calling the tool again will not bring it sooner.",
		"Do what you can do without it, then end your turn: the result will be given to you in a later message.",
	}, " ")
}

// Settle is called when the turn of a client that cannot wait is over. Calls that may start
// something are refused from now on. Work that has been started and survives us is left to others.
// When Settle returns, after limit at the latest, all of that has been announced.
func Settle(ctx context.Context, a *gateway.Access, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, e := range a.Endpoints() {
		s, ok := e.Policy().(*policy)
		if !ok {
			continue
		}
		s.endTurn()
		s.mu.Lock()
		running := slices.Collect(maps.Values(s.running))
		s.mu.Unlock()
		for _, c := range running {
			select {
			case <-c.started:
			case <-ctx.Done():
				continue
			}
			if !c.survivesUs {
				continue
			}
			select {
			case <-c.done:
			case <-ctx.Done():
			}
		}
	}
}
