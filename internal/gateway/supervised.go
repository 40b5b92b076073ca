package gateway

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

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// supervised is the policy for a client that cannot wait, such as an agent whose rollout can be suspended. It knows nothing of tasks and jobs,
// which we look after: servers' advertisements of them are kept from it, and so are the output schemas of tools whose answer may be that
// something was started, since clients enforce them.
type supervised struct {
	e     *Endpoint
	calls Calls

	// turn is done when the client's turn is over.
	turn    context.Context
	endTurn context.CancelFunc

	mu      sync.Mutex
	running map[CallKey]*runningCall
}

// Policy makes the policy of an endpoint; see [AccessOptions].
func (c *Calls) Policy(e *Endpoint) Policy { return newSupervised(e, c) }

func newSupervised(e *Endpoint, calls *Calls) *supervised {
	s := &supervised{e: e, calls: *calls, running: map[CallKey]*runningCall{}}
	s.turn, s.endTurn = context.WithCancel(e.ctx)
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
	work          *Work
	outcome       Outcome
	// left says that the work is left to others; ended that the end of the call was recorded, and how.
	left  bool
	ended sync.Once
	err   error
}

func (s *supervised) hello(_ mcp.Era, capabilities, meta jsonobj.Object) (jsonobj.Object, jsonobj.Object) {
	return withoutExtension(slices.Clone(capabilities).Delete("tasks")), slices.Clone(meta).Delete(metaJob, metaIdempotency)
}

func (s *supervised) tool(l *link, t jsonobj.Object) jsonobj.Object {
	known := toolOf(t)
	if s.mayStart(l, known) {
		t = t.Delete("outputSchema")
	}
	return t.Delete("execution")
}

// capabilities are the client's, with the tasks of the modern era, and with elicitation if a person is asked.
func (s *supervised) capabilities(era mcp.Era, doc json.RawMessage) json.RawMessage {
	c, _ := jsonobj.ParseObject(doc)
	if s.asksPerson() && !c.Has("elicitation") {
		c = c.Set("elicitation", json.RawMessage(`{"form":{},"url":{}}`))
	}
	if era == mcp.Modern {
		c = c.Set("extensions", c.Object("extensions").Set(mcp.ExtensionTasks, emptyObject).JSON())
	}
	return c.JSON()
}

func (s *supervised) wantsTasks() bool { return true }

// mayStart reports whether a call of a tool may be answered by a handle. Of modern servers with tasks every tool may. That a tool only reads is believed of one
// that might start a job.
func (s *supervised) mayStart(l *link, t tool) bool {
	switch o := l.offered(); {
	case o.jobs > 0 && !t.readOnly:
		return true
	case !o.tasks:
		return false
	case l.client().Era() == mcp.Legacy:
		return t.taskSupport == "required" || t.taskSupport == "optional" && !s.e.server.ChildProcess
	}
	return true
}

func (l *link) offered() offers {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.offers
}

// call makes a call of a tool and records it.
func (s *supervised) call(ctx context.Context, l *link, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	rec := Record{Server: s.e.server.Name, Tool: params.Text("name"), Arguments: params.Get("arguments"), StartedAt: s.e.now()}
	if meta := slices.Clone(r.Meta()).Delete(append([]string{mcp.MetaProgressToken}, hopKeys...)...); len(meta) > 0 {
		rec.Meta = meta.JSON()
	}
	result, err := s.callTool(ctx, l, r, &rec)
	if s.calls.Called != nil {
		rec.DurationMs = s.e.now().Sub(rec.StartedAt).Milliseconds()
		rec.Result = result
		if err != nil {
			rec.Error = asError(err).JSON()
		}
		s.calls.Called(rec)
	}
	return result, err
}

func (s *supervised) callTool(ctx context.Context, l *link, r *mcp.Request, rec *Record) (json.RawMessage, error) {
	if s.calls.Permit != nil {
		if refusal := s.calls.Permit(ctx, rec.Server, rec.Tool, rec.Arguments); refusal != "" {
			rec.Refused = true
			return l.toClient(r, TextResult(refusal, true)), nil
		}
	}
	var t tool
	if o := l.offered(); o.jobs > 0 || o.tasks {
		t = l.known(ctx, rec.Tool)
		if s.mayStart(l, t) {
			return s.callStarting(ctx, l, r, t, rec)
		}
	}
	result, err := l.pass(withHeartbeat(ctx, s.calls.Progress), r, r.Params)
	if err != nil {
		return s.broken(l, err)
	}
	if namesTask(result) {
		return nil, errLostTask(s.e.server.Name)
	}
	if s.asksPerson() {
		if in := inputOf(result); in != nil {
			return s.askPerson(ctx, r, rec, in)
		}
	}
	return l.toClient(r, result), nil
}

// broken is the end of a call whose server has gone: a result that the model reads. What the server itself says goes through as it came.
func (s *supervised) broken(l *link, err error) (json.RawMessage, error) {
	told := l.failed(err)
	if errors.Is(err, mcp.ErrClosed) || errors.Is(err, errTimeout) {
		return TextResult(asError(told).Message, true), nil
	}
	return nil, told
}

// callStarting makes a call that may start something, or joins the equal one that runs.
func (s *supervised) callStarting(ctx context.Context, l *link, r *mcp.Request, t tool, rec *Record) (json.RawMessage, error) {
	if s.turn.Err() != nil {
		rec.Refused = true
		return l.toClient(r, TextResult("Your turn is over: end it now. What you have started goes on, and its result will be given to you in a later message.", true)), nil
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
		s.e.running.Go(func() {
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
func (s *supervised) run(l *link, r *mcp.Request, t tool, key CallKey, c *runningCall, arguments json.RawMessage) {
	defer l.use()()
	ctx := s.e.ctx
	work, result, err := s.start(ctx, l, r, t, key, c, arguments)
	c.work = work
	close(c.started)
	if err == nil && work != nil {
		if !s.survivesUs(work) && s.calls.Holding != nil {
			s.calls.Holding(true)
			defer s.calls.Holding(false)
		}
		c.outcome, err = s.follow(ctx, l, r, work)
	} else if err == nil {
		c.outcome.Result = result
	}
	if errors.Is(err, errLeft) || ctx.Err() != nil {
		// Whoever has made the call may be gone by now; the work is not.
		if work != nil && s.survivesUs(work) && s.calls.Suspended != nil {
			c.left = true
			s.calls.Suspended(*work)
		}
		return
	}
	var said *mcp.Error
	answered := err == nil || errors.As(err, &said)
	switch {
	case work != nil, c.id == "", errors.Is(err, ErrUnknown):
	case answered, s.e.server.ChildProcess && l.offered().jobs == 0:
		// What has started nothing may be called again, whether or not the client has heard the answer; and what a dead process has started is dead.
		if endErr := s.calls.Ledger.Ended(ctx, c.id); endErr != nil {
			err = fmt.Errorf("the end of the call could not be recorded: %w", endErr)
		}
	case !l.offered().deduplicates && !t.idempotent:
		// It was broken off after it had been sent. With the same key it could be made again, without one it cannot.
		s.unknown(Work{CallID: c.id, Server: key.Server, Tool: key.Tool, Arguments: arguments})
	}
	if err != nil {
		c.outcome = Outcome{}
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

// unknown says that nobody can tell whether a call has started something.
func (s *supervised) unknown(w Work) {
	if s.calls.Unknown != nil {
		s.calls.Unknown(w)
	}
}

// settle is called when the turn of the client is over: calls that may start something are refused from now on, and what has been started and outlives us
// is left to others. It returns when all of that has been announced.
func (s *supervised) settle(ctx context.Context) {
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
func (s *supervised) start(ctx context.Context, l *link, r *mcp.Request, t tool, key CallKey, c *runningCall, arguments json.RawMessage) (*Work, json.RawMessage, error) {
	entry, err := s.calls.Ledger.Begin(ctx, key)
	if err != nil {
		return nil, nil, fmt.Errorf("the call could not be recorded, and was not made: %w", err)
	}
	c.id = entry.ID
	work := &Work{CallID: entry.ID, Server: key.Server, Tool: key.Tool, Arguments: arguments}
	o := l.offered()
	switch {
	case entry.Work != nil:
		if err := json.Unmarshal(entry.Work, work); err != nil {
			return nil, nil, err
		}
		if work.Task != nil {
			l.keep()
		}
		return work, nil, nil
	case !entry.New && !o.deduplicates && !t.idempotent:
		s.unknown(*work)
		return nil, nil, ErrUnknown
	}
	result, err := l.passWith(ctx, r, func() json.RawMessage { return s.startParams(l, r.Params, t, entry.ID) })
	if err == nil && t.taskSupport == "optional" && lostTask(ctx, l.client(), result) { // the tool can do without a task
		result, err = l.passWith(ctx, r, func() json.RawMessage { return s.startParams(l, r.Params, tool{}, entry.ID) })
	}
	if err == nil && lostTask(ctx, l.client(), result) {
		err = errLostTask(s.e.server.Name)
	}
	if err != nil {
		return nil, nil, err
	}
	if !s.startedBy(l, result, work) {
		return nil, l.toClient(r, result), nil
	}
	return work, nil, s.note(ctx, work)
}

// startParams are the params of a call that may start something: they say what the caller can wait for, as far as the server has offered it in this session.
func (s *supervised) startParams(l *link, params json.RawMessage, t tool, id string) json.RawMessage {
	o := l.offered()
	if o.jobs > 0 {
		params = startMeta(params, o.jobs, id)
	}
	if o.tasks && l.client().Era() == mcp.Legacy && (t.taskSupport == "required" || t.taskSupport == "optional" && !s.e.server.ChildProcess) {
		if p, err := jsonobj.ParseObject(params); err == nil {
			params = p.Set("task", json.RawMessage("{}")).JSON()
		}
	}
	return params
}

// survivesUs reports whether work goes on without us.
func (s *supervised) survivesUs(w *Work) bool { return w.Job != nil || !s.e.server.ChildProcess }

// follow waits for the result of work: as long as the soft wait allows if it outlives us, else for ever. A person is not waited for. r is nil where
// no client can be asked.
func (s *supervised) follow(ctx context.Context, l *link, r *mcp.Request, w *Work) (Outcome, error) {
	if w.Input != nil {
		return Outcome{}, errLeft
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
			return Outcome{}, context.Cause(ctx)
		case <-pause.C:
		}
		outcome, after, err := s.look(ctx, l, r, w)
		var asked *InputRequiredError
		switch {
		case ctx.Err() != nil:
			return Outcome{}, context.Cause(ctx)
		case errors.Is(err, errLeft):
			return Outcome{}, err
		case errors.As(err, &asked):
			w.Input = &asked.Input
			if err := s.note(ctx, w); err != nil {
				return Outcome{}, err
			}
			return Outcome{}, errLeft
		case err != nil:
			// One that cannot be asked now may be later; of what we hold nobody else will know.
			if failures++; failures >= maxFailures || errors.Is(err, ErrTaskLost) {
				if s.survivesUs(w) && !errors.Is(err, ErrTaskLost) {
					return Outcome{}, errLeft
				}
				return Outcome{}, mcp.Errorf(mcp.CodeInternal, "%s", l.gone(err))
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

// look asks once for work.
func (s *supervised) look(ctx context.Context, l *link, r *mcp.Request, w *Work) (outcome *Outcome, after time.Duration, err error) {
	if w.Task != nil {
		c, leave, err := s.clientOf(ctx, l, w.Task)
		if err != nil {
			return nil, 0, err
		}
		defer leave()
		ask := Asker(func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
			return l.askClient(ctx, r, method, params)
		})
		if s.asksPerson() {
			ask = nil
		}
		outcome, err = Poll(ctx, c, w.Task, ask)
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
	ending := EndingOf(w.Tool, *w.Job, progress.Payload)
	if !ending.Fetch {
		return &Outcome{Result: TextResult(ending.Text, true)}, 0, nil
	}
	result, err := fetch(ctx, l, w.Tool, *w.Job)
	var said *mcp.Error
	switch {
	case errors.Is(err, ErrNotDone):
		return nil, time.Second, nil
	case errors.As(err, &said):
		return &Outcome{Error: said.JSON()}, 0, nil
	case err != nil:
		return nil, time.Second, err
	}
	return &Outcome{Result: result}, 0, nil
}

// clientOf is a connection over which a task can be asked for: those of 2025-11-25 belong to the session that has started them, which may be that of
// a process before us.
func (s *supervised) clientOf(ctx context.Context, l *link, t *Task) (c *mcp.Client, leave func(), err error) {
	if c = l.client(); t.Era == mcp.Modern || t.Session.SessionID == c.State().SessionID {
		return c, func() {}, nil
	}
	if c, err = mcp.Connect(ctx, s.e.server.Target, mcp.ClientOptions{Session: &t.Session, NoStream: true}); err != nil {
		return nil, nil, err
	}
	return c, func() { _ = c.Detach() }, nil // its session is somebody else's
}

// ErrUnwatched says that nobody but a delivery can tell whether a job is done.
var ErrUnwatched = errors.New("nobody can tell whether the job is done")

// await waits with the client for a call, and tells it to go on without where that takes too long.
func (s *supervised) await(ctx context.Context, l *link, r *mcp.Request, c *runningCall, rec *Record) (json.RawMessage, error) {
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
			return l.toClient(r, TextResult(fmt.Sprintf("%s is still running. Call it again with the same arguments to go on waiting for its result; it will not be started a second time.", rec.Tool), false)), nil
		case <-tick.C:
			if token != nil {
				_ = r.Notify(mcp.NoteProgress, progressOf(token, n, "still running")) // a client that has gone ends ctx
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *supervised) countHeld(rec *Record) {
	rec.Held = true
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.stats.Held++
}

// finish gives the client what came of a call.
func (s *supervised) finish(r *mcp.Request, c *runningCall, rec *Record) (json.RawMessage, error) {
	if c.work != nil {
		rec.CallID = c.id
		if !s.survivesUs(c.work) {
			s.countHeld(rec)
		}
	}
	if c.work != nil && !c.left && (c.outcome.Error != nil || c.outcome.Result != nil) {
		c.ended.Do(func() { // several may have waited
			c.err = s.calls.Ledger.Ended(s.e.ctx, c.id)
			if s.calls.Arrived != nil {
				s.calls.Arrived(*c.work)
			}
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
func (s *supervised) shown(r *mcp.Request, result json.RawMessage) json.RawMessage {
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
func startedText(w *Work) string {
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
func Settle(ctx context.Context, a *Access) {
	for _, e := range a.Endpoints() {
		if s, ok := e.policy.(*supervised); ok {
			s.settle(ctx)
		}
	}
}
