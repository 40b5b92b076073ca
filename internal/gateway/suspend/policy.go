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
	"github.com/evalrun/evalrun/internal/wait"
)

// policy is the policy for a client that cannot wait, such as an agent whose rollout can be suspended. It knows nothing of tasks and jobs,
// which we look after: servers' advertisements of them are kept from it, and so are the output schemas of tools whose answer may be that
// something was started, since clients enforce them.
type policy struct {
	e     *gateway.Endpoint
	calls Hooks

	// turn is done when the client's turn is over.
	turn    context.Context
	endTurn context.CancelFunc

	mu      sync.Mutex
	running map[CallKey]*runningCall
}

// Policy makes the policy of an endpoint; see [AccessOptions].
func (c *Hooks) Policy(e *gateway.Endpoint) gateway.Policy { return newPolicy(e, c) }

func newPolicy(e *gateway.Endpoint, calls *Hooks) *policy {
	s := &policy{e: e, calls: *calls, running: map[CallKey]*runningCall{}}
	s.turn, s.endTurn = context.WithCancel(e.Context())
	for _, d := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{{&s.calls.SoftWait, defaultSoftWait}, {&s.calls.Hold, defaultHold}, {&s.calls.Progress, defaultProgress}} {
		if *d.value <= 0 {
			*d.value = d.otherwise
		}
	}
	return s
}

// runningCall is a call that may start something, from before it is made until its final result is there.
type runningCall struct {
	id string
	// started is closed when it is known what the call has started, or that it has started nothing; done when the outcome is there.
	started, done chan struct{}
	work          *wait.Work
	outcome       wait.Outcome
	// left says that the work is left to others; ended that the end of the call was recorded, and how.
	left  bool
	ended sync.Once
	err   error
}

func (s *policy) InitializeResult(_ mcp.Era, capabilities, meta jsonobj.Object) (jsonobj.Object, jsonobj.Object) {
	return gateway.WithoutExtension(slices.Clone(capabilities).Delete("tasks")), slices.Clone(meta).Delete(gateway.MetaJob, gateway.MetaIdempotency)
}

func (s *policy) ShowTool(l *gateway.Upstream, t jsonobj.Object) jsonobj.Object {
	known := gateway.ToolOf(t)
	if s.mayStart(l, known) {
		t = t.Delete("outputSchema")
	}
	return t.Delete("execution")
}

// Capabilities are the client's, with the tasks of the modern era, and with elicitation if a person is asked.
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

// mayStart reports whether a call of a tool may be answered by a handle. Of modern servers with tasks every tool may. That a tool only reads is believed of one
// that might start a job.
func (s *policy) mayStart(l *gateway.Upstream, t gateway.Tool) bool {
	switch o := l.Offered(); {
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
	rec := Record{Server: s.e.Server().Name, Tool: params.Text("name"), Arguments: params.Get("arguments"), StartedAt: s.e.Now()}
	if meta := slices.Clone(r.Meta()).Delete(append([]string{mcp.MetaProgressToken}, gateway.HopKeys...)...); len(meta) > 0 {
		rec.Meta = meta.JSON()
	}
	result, err := s.callTool(ctx, l, r, &rec)
	if s.calls.Called != nil {
		rec.DurationMs = s.e.Now().Sub(rec.StartedAt).Milliseconds()
		rec.Result = result
		if err != nil {
			rec.Error = asError(err).JSON()
		}
		s.calls.Called(rec)
	}
	return result, err
}

func (s *policy) callTool(ctx context.Context, l *gateway.Upstream, r *mcp.Request, rec *Record) (json.RawMessage, error) {
	if s.calls.Permit != nil {
		if refusal := s.calls.Permit(ctx, rec.Server, rec.Tool, rec.Arguments); refusal != "" {
			rec.Refused = true
			return l.ToClient(r, TextResult(refusal, true)), nil
		}
	}
	var t gateway.Tool
	if o := l.Offered(); o.Jobs > 0 || o.Tasks {
		t = s.e.Tools().Find(ctx, l, rec.Tool)
		if s.mayStart(l, t) {
			return s.callStarting(ctx, l, r, t, rec)
		}
	}
	result, err := l.Pass(gateway.WithHeartbeat(ctx, s.calls.Progress), r, r.Params)
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

// broken is the end of a call whose server has gone: a result that the model reads. What the server itself says goes through as it came.
func (s *policy) broken(l *gateway.Upstream, err error) (json.RawMessage, error) {
	told := l.ClientError(err)
	if errors.Is(err, mcp.ErrClosed) || errors.Is(err, gateway.ErrTimeout) {
		return TextResult(asError(told).Message, true), nil
	}
	return nil, told
}

// callStarting makes a call that may start something, or joins the equal one that runs.
func (s *policy) callStarting(ctx context.Context, l *gateway.Upstream, r *mcp.Request, t gateway.Tool, rec *Record) (json.RawMessage, error) {
	if s.turn.Err() != nil {
		rec.Refused = true
		return l.ToClient(r, TextResult("Your turn is over: end it now. What you have started goes on, and its result will be given to you in a later message.", true)), nil
	}
	key := keyOf(rec.Server, rec.Tool, rec.Arguments)
	s.mu.Lock()
	c := s.running[key]
	first := c == nil
	if first {
		c = &runningCall{started: make(chan struct{}), done: make(chan struct{})}
		s.running[key] = c
	}
	s.mu.Unlock()
	if first {
		// Neither the client's patience nor its end ends what it has begun: what came of it must be known.
		s.e.Go(func() {
			s.run(l, r, t, key, c, rec.Arguments)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.running, key)
			close(c.done) // from now on an equal call is another
		})
	}
	return s.await(ctx, l, r, c, rec)
}

// run makes the call, and follows what it starts until its result is there, the endpoint is closed, or it is left to others.
func (s *policy) run(l *gateway.Upstream, r *mcp.Request, t gateway.Tool, key CallKey, c *runningCall, arguments json.RawMessage) {
	defer l.Use()()
	ctx := s.e.Context()
	work, result, err := s.start(ctx, l, r, t, key, c, arguments)
	c.work = work
	close(c.started)
	if err == nil && work != nil {
		if !s.survivesUs(work) {
			s.changed(work, Held)
			defer s.changed(work, Released)
		}
		c.outcome, err = s.follow(ctx, l, r, work)
	} else if err == nil {
		c.outcome.Result = result
	}
	if errors.Is(err, errLeft) || ctx.Err() != nil {
		// Whoever has made the call may be gone by now; the work is not.
		if work != nil && s.survivesUs(work) {
			c.left = true
			s.changed(work, Suspended)
		}
		return
	}
	var said *mcp.Error
	answered := err == nil || errors.As(err, &said)
	switch {
	case work != nil, c.id == "", errors.Is(err, ErrUnknown):
	case answered, s.e.Server().ChildProcess && l.Offered().Jobs == 0:
		// What has started nothing may be called again, whether or not the client has heard the answer; and what a dead process has started is dead.
		if endErr := s.calls.Ledger.Ended(ctx, c.id); endErr != nil {
			err = fmt.Errorf("the end of the call could not be recorded: %w", endErr)
		}
	case !l.Offered().Deduplicates && !t.Idempotent:
		// It was broken off after it had been sent. With the same key it could be made again, without one it cannot.
		s.changed(&wait.Work{CallID: c.id, Server: key.Server, Tool: key.Tool, Arguments: arguments}, Unknown)
	}
	if err != nil {
		c.outcome = wait.Outcome{}
		result, failed := s.broken(l, err)
		if c.outcome.Result = result; failed != nil {
			c.outcome.Error = asError(failed).JSON()
		}
	}
}

// asError is an error as the client is told it.
func asError(err error) *mcp.Error {
	var said *mcp.Error
	if errors.As(err, &said) {
		return said
	}
	return mcp.Errorf(mcp.CodeInternal, "%v", err)
}

// changed says what has become of work.
func (s *policy) changed(w *wait.Work, state State) {
	if s.calls.Changed != nil {
		s.calls.Changed(*w, state)
	}
}

// settle is called when the turn of the client is over: calls that may start something are refused from now on, and what has been started and outlives us
// is left to others. It returns when all of that has been announced.
func (s *policy) settle(ctx context.Context) {
	s.endTurn()
	s.mu.Lock()
	running := slices.Collect(maps.Values(s.running))
	s.mu.Unlock()
	for _, c := range running {
		select {
		case <-c.started:
		case <-ctx.Done():
			return
		}
		if c.work == nil || !s.survivesUs(c.work) {
			continue
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return
		}
	}
}

// errLeft says that somebody else watches the work from now on.
var errLeft = errors.New("the work is left to others")

// ErrUnknown says that a call may or may not have started something before a crash, and must not be made twice.
var ErrUnknown = errors.New("the call was begun before and broken off, and nobody can tell whether it has started something; it was not made again")

// start makes the call, unless it was made before. Either work or result is set.
func (s *policy) start(ctx context.Context, l *gateway.Upstream, r *mcp.Request, t gateway.Tool, key CallKey, c *runningCall, arguments json.RawMessage) (*wait.Work, json.RawMessage, error) {
	entry, err := s.calls.Ledger.Begin(ctx, key)
	if err != nil {
		return nil, nil, fmt.Errorf("the call could not be recorded, and was not made: %w", err)
	}
	c.id = entry.ID
	work := &wait.Work{CallID: entry.ID, Server: key.Server, Tool: key.Tool, Arguments: arguments}
	o := l.Offered()
	switch {
	case entry.Work != nil:
		if entry.Work.Task != nil {
			l.Keep()
		}
		return entry.Work, nil, nil
	case !entry.New && !o.Deduplicates && !t.Idempotent:
		s.changed(work, Unknown)
		return nil, nil, ErrUnknown
	}
	result, err := l.PassWith(ctx, r, func() json.RawMessage { return s.startParams(l, r.Params, t, entry.ID) })
	if err == nil && t.TaskSupport == "optional" && mcptask.IsLost(ctx, l.Client(), result) { // the tool can do without a task
		result, err = l.PassWith(ctx, r, func() json.RawMessage { return s.startParams(l, r.Params, gateway.Tool{}, entry.ID) })
	}
	if err == nil && mcptask.IsLost(ctx, l.Client(), result) {
		err = mcptask.LostError(s.e.Server().Name)
	}
	if err != nil {
		return nil, nil, err
	}
	if !s.startedBy(l, result, work) {
		return nil, l.ToClient(r, result), nil
	}
	return work, nil, s.note(ctx, work)
}

// startParams are the params of a call that may start something: they say what the caller can wait for, as far as the server has offered it in this session.
func (s *policy) startParams(l *gateway.Upstream, params json.RawMessage, t gateway.Tool, id string) json.RawMessage {
	o := l.Offered()
	if o.Jobs > 0 {
		params = startMeta(params, o.Jobs, id)
	}
	if o.Tasks && l.Client().Era() == mcp.Legacy && (t.TaskSupport == "required" || t.TaskSupport == "optional" && !s.e.Server().ChildProcess) {
		if p, err := jsonobj.ParseObject(params); err == nil {
			params = p.Set("task", json.RawMessage("{}")).JSON()
		}
	}
	return params
}

// survivesUs reports whether work goes on without us.
func (s *policy) survivesUs(w *wait.Work) bool { return w.Job != nil || !s.e.Server().ChildProcess }

// follow waits for the result of work: as long as the soft wait allows if it outlives us, else for ever. A person is not waited for. r is nil where
// no client can be asked.
func (s *policy) follow(ctx context.Context, l *gateway.Upstream, r *mcp.Request, w *wait.Work) (wait.Outcome, error) {
	if w.Input != nil {
		return wait.Outcome{}, errLeft
	}
	if s.survivesUs(w) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.calls.SoftWait, errLeft)
		defer cancel()
		var leave context.CancelCauseFunc
		ctx, leave = context.WithCancelCause(ctx)
		defer leave(nil)
		defer context.AfterFunc(s.turn, func() { leave(errLeft) })()
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return wait.Outcome{}, context.Cause(ctx)
		case <-pause.C:
		}
		outcome, after, err := s.check(ctx, l, r, w)
		var asked *mcptask.InputRequiredError
		switch {
		case ctx.Err() != nil:
			return wait.Outcome{}, context.Cause(ctx)
		case errors.Is(err, errLeft):
			return wait.Outcome{}, err
		case errors.As(err, &asked):
			w.Input = &asked.Input
			if err := s.note(ctx, w); err != nil {
				return wait.Outcome{}, err
			}
			return wait.Outcome{}, errLeft
		case err != nil:
			// One that cannot be asked now may be later; of what we hold nobody else will know.
			if failures++; failures >= maxFailures || errors.Is(err, mcptask.ErrTaskLost) {
				if s.survivesUs(w) && !errors.Is(err, mcptask.ErrTaskLost) {
					return wait.Outcome{}, errLeft
				}
				return wait.Outcome{}, mcp.Errorf(mcp.CodeInternal, "%s", l.ErrorText(err))
			}
		case outcome != nil:
			return *outcome, nil
		default:
			failures = 0
		}
		pause.Reset(min(max(after, minPoll), maxPoll))
	}
}

const (
	minPoll     = 50 * time.Millisecond
	maxPoll     = 5 * time.Second
	maxFailures = 3
)

// check asks once for work.
func (s *policy) check(ctx context.Context, l *gateway.Upstream, r *mcp.Request, w *wait.Work) (outcome *wait.Outcome, after time.Duration, err error) {
	if w.Task != nil {
		c, leave, err := s.clientOf(ctx, l, w.Task)
		if err != nil {
			return nil, 0, err
		}
		defer leave()
		ask := mcptask.Asker(func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
			return gateway.AskClient(ctx, l.Capabilities(), r, method, params)
		})
		if s.AsksPerson() {
			ask = nil
		}
		outcome, err = mcptask.Poll(ctx, c, w.Task, ask)
		return outcome, time.Duration(w.Task.PollMs) * time.Millisecond, err
	}
	if s.calls.Check == nil {
		return nil, 0, errLeft
	}
	progress, err := s.calls.Check(ctx, *w)
	switch {
	case errors.Is(err, ErrUnwatched):
		return nil, 0, errLeft
	case err != nil || !progress.Done:
		return nil, max(progress.After, time.Second/4), err
	}
	ending := wait.EndingOf(w.Tool, *w.Job, progress.Payload)
	if !ending.Fetch {
		return &wait.Outcome{Result: TextResult(ending.Text, true)}, 0, nil
	}
	result, err := fetch(ctx, l, w.Tool, *w.Job)
	var said *mcp.Error
	switch {
	case errors.Is(err, ErrNotDone):
		return nil, time.Second, nil
	case errors.As(err, &said):
		return &wait.Outcome{Error: said.JSON()}, 0, nil
	case err != nil:
		return nil, time.Second, err
	}
	return &wait.Outcome{Result: result}, 0, nil
}

// clientOf is a connection over which a task can be asked for: those of 2025-11-25 belong to the session that has started them, which may be that of
// a process before us.
func (s *policy) clientOf(ctx context.Context, l *gateway.Upstream, t *wait.MCPTask) (c *mcp.Client, leave func(), err error) {
	if c = l.Client(); t.Era == mcp.Modern || t.Session.SessionID == c.State().SessionID {
		return c, func() {}, nil
	}
	if c, err = mcp.Connect(ctx, s.e.Server().Target, mcp.ClientOptions{Session: &t.Session, NoStream: true}); err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Detach() }, nil // its session is somebody else's
}

// ErrUnwatched says that nobody but a delivery can tell whether a job is done.
var ErrUnwatched = errors.New("nobody can tell whether the job is done")

// await waits with the client for a call, and tells it to go on without where that takes too long.
func (s *policy) await(ctx context.Context, l *gateway.Upstream, r *mcp.Request, c *runningCall, rec *Record) (json.RawMessage, error) {
	hold := time.NewTimer(s.calls.Hold)
	defer hold.Stop()
	tick := time.NewTicker(s.calls.Progress)
	defer tick.Stop()
	token := r.Meta().Get(mcp.MetaProgressToken)
	var started <-chan struct{} // looked at when the hold is over
	for n := 1; ; n++ {
		select {
		case <-c.done:
			return s.finish(r, c, rec)
		case <-hold.C:
			started = c.started
		case <-started:
			started = nil
			if c.work == nil || s.survivesUs(c.work) {
				continue // the soft wait or the server's own timeout ends it
			}
			s.countHeld(rec)
			rec.Started, rec.CallID = true, c.id
			return l.ToClient(r, TextResult(fmt.Sprintf("%s is still running. Call it again with the same arguments to go on waiting for its result; it will not be started a second time.", rec.Tool), false)), nil
		case <-tick.C:
			if token != nil {
				_ = r.Notify(mcp.NoteProgress, gateway.ProgressOf(token, n, "still running")) // a client that has gone ends ctx
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *policy) countHeld(rec *Record) {
	rec.Held = true
	s.e.CountHeld()
}

// finish gives the client what came of a call.
func (s *policy) finish(r *mcp.Request, c *runningCall, rec *Record) (json.RawMessage, error) {
	if c.work != nil {
		rec.CallID = c.id
		if !s.survivesUs(c.work) {
			s.countHeld(rec)
		}
	}
	if c.work != nil && !c.left && (c.outcome.Error != nil || c.outcome.Result != nil) {
		c.ended.Do(func() { // several may have waited
			c.err = s.calls.Ledger.Ended(s.e.Context(), c.id)
			s.changed(c.work, Arrived)
		})
		if c.err != nil {
			return nil, mcp.Errorf(mcp.CodeInternal, "the end of the call could not be recorded: %v", c.err)
		}
	}
	switch {
	case c.outcome.Error != nil:
		return nil, mcp.ParseError(c.outcome.Error)
	case c.outcome.Result != nil:
		return s.shown(r, c.outcome.Result), nil
	case !c.left:
		return nil, mcp.Errorf(mcp.CodeInternal, "the gateway was closed before the call was answered")
	}
	rec.Started = true
	return s.shown(r, TextResult(startedText(c.work), false)), nil
}

// shown is a result as the protocol of the client wants it.
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

// startedText is what a model is told of work that goes on without it.
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

// Settle is called when the turn of a client that cannot wait is over: what its calls have started is left to others, which all have been told of when it
// returns, and nothing more is started.
func Settle(ctx context.Context, a *gateway.Access) {
	for _, e := range a.Endpoints() {
		if s, ok := e.Policy().(*policy); ok {
			s.settle(ctx)
		}
	}
}
