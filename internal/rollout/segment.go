package rollout

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/workspace"
)

// runSegment runs the agent once.
func (r *Rollout) runSegment(ctx context.Context) (_ agent.Outcome, err error) {
	c := r.held.claim
	if out, err := r.takeOutput(); out != nil || err != nil {
		return *cmp.Or(out, &agent.Outcome{}), err
	}
	a, err := r.held.run.agents.acquire(r.held.entry)
	if err != nil {
		return agent.Outcome{}, err
	}
	defer func() {
		if closeErr := r.held.run.agents.release(); closeErr != nil {
			r.held.host.Logger.Warn("an agent could not be ended", "run", c.RunID, "error", closeErr)
		}
	}()
	if err := (keptFolders{r.held}).prepare(ctx); err != nil {
		return workspaceFault(err)
	}
	seg := agent.Segment{
		RolloutID: c.RolloutID, Marker: r.held.marker(), Number: c.Segment, Attempt: c.Attempt, Failures: c.Failures,
		Input:     r.held.evaluation.Inputs,
		Prompt:    promptOf(r.held.evaluation.Inputs),
		Workspace: r.held.workspace(), Dir: r.held.segmentDir(), BaseDir: r.held.run.Dir,
		OutputBytes: r.held.run.Plan.Set.Limits.OutputBytes, Ended: r.slot.Release,
		Consume: ledger{r.held.host.Store, c.Token}.consume,
	}
	seg.GoesOnFrom = r.held.goesOnFrom
	if r.mocks, err = r.held.newMockPlayer(ctx); err != nil {
		return agent.Outcome{}, err
	}
	seg.Mocks, seg.Functions = r.mocks, r.held.run.Plan.Mocks.OfFunctions(r.held.evaluation.ID)
	var f *fault.Fault
	if f = r.limitTime(&seg); f != nil {
		return agent.Outcome{Fault: f}, nil
	}
	if r.budget, seg.Earlier, err = r.held.newBudget(ctx); err != nil {
		return agent.Outcome{}, err
	}
	if f := r.budget.Exceeded(nil); f != nil { // an earlier attempt was broken off
		return agent.Outcome{Fault: f}, nil
	}
	seg.Budget = r.budget
	if c.Segment > 1 {
		seg.Resume, seg.Deliveries = resumeDocument(c.Deliveries)
	}
	if err := os.MkdirAll(seg.Dir, 0o700); err != nil {
		return agent.Outcome{}, err
	}
	var spec *sandboxSpec
	if r.held.entry.Needs().Sandbox { // fetching an image may take minutes, during which no slot is held
		if spec, err = r.held.newSandboxSpec(ctx, seg.Number == 1 && seg.GoesOnFrom == ""); err != nil {
			return faultOrError(err)
		}
		defer spec.release()
	}
	failpoint.Hit("rollout.prepared")
	if err := r.slot.Acquire(ctx); err != nil {
		return agent.Outcome{}, err
	}
	if err := r.held.stillHeld(); err != nil { // our agent would work in the next holder's folders
		return agent.Outcome{}, err
	}
	r.started = time.Now()
	r.queued = r.started.Sub(r.held.claimed)
	if spec != nil {
		return r.runInSandbox(ctx, a, seg, spec)
	}
	return a.Run(ctx, seg)
}

// limitTime sets the time that the limits leave for the segment.
func (r *Rollout) limitTime(seg *agent.Segment) *fault.Fault {
	limits := r.held.run.Plan.Set.Limits
	seg.LimitTo(limits.SegmentTimeout, limits.SegmentTimeout, "limits.segmentTimeout")
	if limits.Timeout == 0 {
		return nil
	}
	left := limits.Timeout - r.held.claim.Clocks.Working
	if left <= 0 {
		return fault.Newf(fault.Timeout, "the rollout has worked for %v (limits.timeout)", limits.Timeout)
	}
	seg.LimitTo(left, limits.Timeout, "limits.timeout")
	return nil
}

// timeSpent reports whether limits.timeout is used up, so that another attempt would only time out
// again. The time of calls that were held open is waiting time, not working time.
func (r *Rollout) timeSpent(held time.Duration) bool {
	worked := r.held.claim.Clocks.Working
	if !r.started.IsZero() {
		worked += time.Since(r.started) - held
	}
	limit := r.held.run.Plan.Set.Limits.Timeout
	return limit > 0 && worked >= limit
}

// workspaceFault returns the outcome if the workspace cannot be kept: it has files that evalrun may
// not read, folders that are nested too deep for a path, or files that still change. Any other
// error is evalrun's own.
func workspaceFault(err error) (agent.Outcome, error) {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, snapshot.ErrChanged) {
		return agent.Outcome{Fault: fault.New(fault.Unresumable,
			"the workspace cannot be kept: "+workspace.Shorten(err.Error()))}, nil
	}
	return faultOrError(err)
}

// faultOrError separates faults of the task or the agent from errors of evalrun.
func faultOrError(err error) (agent.Outcome, error) {
	var f *fault.Fault
	if errors.As(err, &f) {
		return agent.Outcome{Fault: f}, nil
	}
	return agent.Outcome{}, err
}
