package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// runningCall is a call that may start something, from before it is made until its final result is
// there. Equal calls of the client join the first one.
type runningCall struct {
	p *policy
	// l, r and t are the server, the request of the client that called first, and the tool.
	l         *gateway.Upstream
	r         *mcp.Request
	t         gateway.Tool
	key       CallKey
	arguments json.RawMessage

	id string
	// started is closed when it is known what the call has started, or that it has started nothing.
	// done is closed when the outcome is there.
	started, done chan struct{}
	work          *wait.Work
	// survivesUs says that the work goes on without us.
	survivesUs bool
	outcome    wait.WorkResult
	// left says that the work is left to others.
	left bool
	// ended records the end of the call once; err is the result of that.
	ended sync.Once
	err   error
}

// run makes the call and follows what it starts, until its result is there, the endpoint is closed,
// or the work is left to others.
func (c *runningCall) run() {
	defer c.l.Use()()
	ctx := c.p.e.Context()
	work, result, err := c.start(ctx)
	c.work, c.survivesUs = work, work != nil && c.p.survivesUs(work)
	close(c.started)
	if err == nil && work != nil {
		if !c.survivesUs {
			c.p.hooks.Changed(*work, Held)
			defer func() { c.p.hooks.Changed(*work, Released) }()
		}
		c.outcome, err = c.p.follow(ctx, c.l, c.r, work, c.survivesUs)
	} else if err == nil {
		c.outcome.Result = result
	}
	if errors.Is(err, errLeft) || ctx.Err() != nil {
		// The client that made the call may be gone by now, but the work is not.
		if c.survivesUs {
			c.left = true
			c.p.hooks.Changed(*work, Suspended)
		}
		return
	}
	var said *mcp.Error
	answered := err == nil || errors.As(err, &said)
	switch {
	case work != nil, c.id == "", errors.Is(err, ErrUnknown):
	case answered, c.p.e.Server().ChildProcess && c.l.Offered().Jobs == 0 && !c.p.startsMeshJobs(c.key.Tool, c.t):
		// A call that has started nothing may be made again, whether or not the client has got the
		// answer. Work that a dead process has started is dead.
		if endErr := c.p.hooks.Ledger.Ended(ctx, c.id); endErr != nil {
			err = fmt.Errorf("the end of the call could not be recorded: %w", endErr)
		}
	case !c.l.Offered().Deduplicates && !c.repeatable():
		// The call was broken off after it had been sent. It could be made again only with an idempotency
		// key.
		c.p.hooks.Changed(wait.Work{CallID: c.id, Server: c.key.Server, Tool: c.key.Tool, Arguments: c.arguments}, Unknown)
	}
	if err != nil {
		c.outcome = wait.WorkResult{}
		result, failed := c.p.broken(c.l, err)
		if c.outcome.Result = result; failed != nil {
			c.outcome.Error = asError(failed).JSON()
		}
	}
}

// repeatable reports whether the call may be made again without a key of idempotence.
func (c *runningCall) repeatable() bool { return c.t.Idempotent || c.p.hooks.Once && c.t.ReadOnly }

// start makes the call, unless it was made before. Either work or result is set.
func (c *runningCall) start(ctx context.Context) (*wait.Work, json.RawMessage, error) {
	entry, err := c.p.hooks.Ledger.Begin(ctx, c.key)
	if err != nil {
		return nil, nil, fmt.Errorf("the call could not be recorded, and was not made: %w", err)
	}
	c.id = entry.ID
	work := &wait.Work{CallID: entry.ID, Server: c.key.Server, Tool: c.key.Tool, Arguments: c.arguments}
	o := c.l.Offered()
	switch {
	case entry.Work != nil:
		if entry.Work.Task != nil {
			c.l.Keep()
		}
		return entry.Work, nil, nil
	case !entry.New && !o.Deduplicates && !c.repeatable():
		c.p.hooks.Changed(*work, Unknown)
		return nil, nil, ErrUnknown
	}
	result, err := c.l.PassWith(ctx, c.r, func() json.RawMessage { return c.p.startParams(c.l, c.r.Params, c.t, c.id) })
	// The tool can do without a task.
	if err == nil && c.t.TaskSupport == "optional" && mcptask.IsLost(ctx, c.l.Client(), result) {
		result, err = c.l.PassWith(ctx, c.r,
			func() json.RawMessage { return c.p.startParams(c.l, c.r.Params, gateway.Tool{}, c.id) })
	}
	if err == nil && mcptask.IsLost(ctx, c.l.Client(), result) {
		err = mcptask.LostError(c.p.e.Server().Name)
	}
	if err != nil {
		return nil, nil, err
	}
	if started, err := c.p.recordStarted(ctx, c.l, result, work); started {
		return work, nil, err
	}
	return nil, c.l.ToClient(c.r, result), nil
}

// recordStarted records in w and in the ledger what the result of a call has started, or asks. It
// returns false for a final result.
func (s *policy) recordStarted(ctx context.Context, l *gateway.Upstream,
	result json.RawMessage, w *wait.Work) (started bool, err error) {
	w.Input = nil
	if w.Task = mcptask.HandleIn(result, l.Client(), s.e.Now()); w.Task == nil && l.Offered().Jobs > 0 {
		w.Job = jobOf(result)
	}
	if w.Job != nil && l.Client().Era() == mcp.Legacy {
		if state := l.Client().State(); state.SessionID != "" {
			w.Session = &state
			l.Keep() // the server may know the job by this session
		}
	}
	if w.Task == nil && w.Job == nil {
		w.MeshJob = s.meshJobOf(ctx, l, w.Tool, result)
	}
	if w.Task == nil && w.Job == nil && w.MeshJob == nil && s.AsksPerson() {
		w.Input = mcptask.InputOf(result)
	}
	if w.Task != nil {
		l.Keep() // whatever happens to us, the task is in this session
	}
	if w.Task == nil && w.Job == nil && w.MeshJob == nil && w.Input == nil {
		return false, nil
	}
	return true, s.hooks.Ledger.Started(ctx, w)
}

// await waits with a client for the call. If that takes too long, it tells the client to go on
// without.
func (c *runningCall) await(ctx context.Context, l *gateway.Upstream,
	r *mcp.Request, rec *Record) (json.RawMessage, error) {
	hold := time.NewTimer(c.p.hooks.Hold)
	defer hold.Stop()
	tick := time.NewTicker(c.p.hooks.Progress)
	defer tick.Stop()
	token := r.Meta().Get(mcp.MetaProgressToken)
	var started <-chan struct{} // checked when the hold is over
	for n := 1; ; n++ {
		select {
		case <-c.done:
			return c.finish(r, rec)
		case <-hold.C:
			started = c.started
		case <-started:
			started = nil
			if c.work == nil || c.survivesUs {
				continue // the soft wait or the server's own timeout ends it
			}
			c.p.countHeld(rec)
			rec.Started, rec.CallID = true, c.id
			return l.ToClient(r, TextResult(fmt.Sprintf("%s is still running. Call it again with the same arguments to go on waiting for its result; it will not be started a second time.",
				rec.Tool), false)), nil
		case <-tick.C:
			if token != nil {
				_ = r.Notify(mcp.NoteProgress, gateway.ProgressOf(token, n, "still running")) // a client that has gone ends ctx
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// finish gives the client the outcome of a call.
func (c *runningCall) finish(r *mcp.Request, rec *Record) (json.RawMessage, error) {
	if c.work != nil {
		rec.CallID = c.id
		if !c.survivesUs {
			c.p.countHeld(rec)
		}
	}
	if c.work != nil && !c.left && (c.outcome.Error != nil || c.outcome.Result != nil) {
		c.ended.Do(func() { // several clients may have waited
			c.err = c.p.hooks.Ledger.Ended(c.p.e.Context(), c.id)
			c.p.hooks.Changed(*c.work, Arrived)
		})
		if c.err != nil {
			return nil, mcp.Errorf(mcp.CodeInternal, "the end of the call could not be recorded: %v", c.err)
		}
	}
	switch {
	case c.outcome.Error != nil:
		return nil, mcp.ParseError(c.outcome.Error)
	case c.outcome.Result != nil:
		return c.p.shown(r, c.outcome.Result), nil
	case !c.left:
		return nil, mcp.Errorf(mcp.CodeInternal, "the gateway was closed before the call was answered")
	}
	rec.Started = true
	return c.p.shown(r, TextResult(startedText(c.work), false)), nil
}
