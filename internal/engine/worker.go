package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// worker takes one claimed rollout as far as it goes: to its next suspension, its repetition or its end.
type worker struct {
	*Runner
	claim store.Claim
	// state is that of the rollout, as this worker has committed it.
	state store.State
	// leftover is why processes of an earlier holder could not be ended.
	leftover error
	plan     *activeRun
	// evaluation and entry are those of the claimed rollout.
	evaluation eval.Evaluation
	entry      agent.Entry
	// files are those of the segment that has just ended.
	files []store.File
	// claimed is when it was claimed and began when its agent was started, zero if it has no place; queued is the time between.
	claimed, began time.Time
	queued         time.Duration
	// declared are the MCP servers of the environment with their ${VAR}s.
	declared []tasks.MCPServer
	// left says that it is not active any more.
	left bool
}

// leave lets the next agent start. It is called as soon as the own one has ended; what is left is commits and evaluators.
func (w *worker) leave() {
	if w.left {
		return
	}
	w.left = true
	if !w.began.IsZero() {
		w.places.free(time.Since(w.began))
	}
	w.mu.Lock()
	w.active--
	w.mu.Unlock()
	w.wakeUp()
}

// run runs a segment, or only the evaluators of a rollout that lacks no more than them. ctx ends the agent; what it has done is committed all the same.
func (w *worker) run(ctx context.Context) (err error) {
	failpoint.Hit("runner.claimed")
	defer w.leave()
	commit := context.WithoutCancel(ctx)
	if w.leftover != nil {
		return w.leftover
	}
	if w.plan, err = w.runs.get(commit, w.claim.RunID); errors.Is(err, plans.ErrLater) {
		return w.postpone(commit, err.Error())
	} else if err != nil {
		return err
	}
	if err := w.look(); err != nil {
		return err
	}
	if w.claim.State == store.StateEvaluating {
		w.leave()
		return w.evaluate(ctx, w.claim.Output)
	}
	if w.claim.Cancelled {
		done, err := w.o.Store.CommitSegment(commit, w.claim.Token, store.SegmentEnd{Outcome: store.OutcomeCancelled})
		if err == nil {
			w.state = done.State
		}
		w.lookAtTriggers() // jobs to cancel
		return err
	}
	if missing := w.missing(); missing != nil && w.o.RunID == "" {
		return w.postpone(commit, fmt.Sprintf("this executor lacks ${%s}; pass it with --env or --env-file", strings.Join(missing, "}, ${")))
	}
	out, err := w.segment(ctx)
	w.leave()
	failpoint.Hit("runner.agentEnded")
	switch {
	case errors.Is(err, errNoPlace):
		return w.o.Store.GiveBack(commit, w.claim.Token, 0)
	case err != nil:
		return err // something is wrong with us, not with the agent: see settle
	case errors.Is(context.Cause(ctx), errLeaseLost):
		return w.putBack(commit, errLeaseLost.Error()) // unless somebody has it already, who runs the segment again
	}
	end, err := w.end(ctx, out)
	if err != nil {
		return err
	}
	w.files = end.Files
	failpoint.Hit("runner.filesSynced")
	done, err := w.o.Store.CommitSegment(commit, w.claim.Token, end)
	if err != nil {
		return err
	}
	w.state = done.State
	failpoint.Hit("runner.segmentCommitted")
	switch {
	case done.State == store.StateEvaluating:
		err = w.evaluate(ctx, out.Output)
	case end.Outcome == store.OutcomeSuspended:
		w.lookAtTriggers()
	case done.State.IsTerminal():
		w.lookAtTriggers() // jobs to cancel
	}
	if done.State == store.StatePending {
		return err // the copy is still needed
	}
	if done.State != store.StateEvaluating && w.entry.LivesInEnvironment() {
		err = errors.Join(err, w.joinTrajectory(commit)) // whoever evaluates does it himself
	}
	if w.claim.Segment == 1 {
		return err // there is no copy
	}
	return errors.Join(err, os.RemoveAll(w.copyDir()))
}

// look finds what the claimed rollout is of.
func (w *worker) look() error {
	if err := json.Unmarshal(w.claim.Evaluation, &w.evaluation); err != nil {
		return err
	}
	for _, e := range w.plan.Agents {
		if e.Name == w.claim.Agent {
			w.entry = e
			return nil
		}
	}
	return fmt.Errorf("the plan has no agent %q", w.claim.Agent)
}

// putBack puts the rollout back so that its segment is begun again, or what is left of its evaluators is run.
func (w *worker) putBack(ctx context.Context, why string) error {
	if w.state == store.StateEvaluating {
		return w.o.Store.GiveBack(ctx, w.claim.Token, 0)
	}
	_, err := w.o.Store.CommitSegment(ctx, w.claim.Token, store.SegmentEnd{Outcome: store.OutcomeInterrupted,
		Fault: fault.New(fault.Interrupted, w.redactorOf(ctx, w.claim.RunID).String(why))})
	return err
}

// missing names the variables that the rollout needs and this process does not have.
func (w *worker) missing() (names []string) {
	needed := w.entry.Required()
	if w.entry.LivesInEnvironment() {
		needed = append(needed, w.plan.Env...)
	}
	for _, name := range needed {
		if _, ok := w.o.Resolve(name); !ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// postponed is how long an executor leaves a rollout alone that it cannot run here. Somebody else may.
const postponed = time.Minute

// postpone puts a rollout back that this process cannot run, and another one may.
func (w *worker) postpone(ctx context.Context, why string) error {
	w.mu.Lock()
	w.postponed[w.claim.RolloutID] = true
	w.mu.Unlock()
	w.o.Logger.Warn("a rollout cannot be gone on with here", "rollout", w.claim.RolloutID, "run", w.claim.RunID, "reason", why)
	if w.state == store.StateEvaluating {
		return w.o.Store.GiveBack(ctx, w.claim.Token, postponed)
	}
	_, err := w.o.Store.CommitSegment(ctx, w.claim.Token, store.SegmentEnd{Outcome: store.OutcomeInterrupted, RetryAfter: postponed,
		Fault: fault.New(fault.Interrupted, why)})
	return err
}

// segment runs the agent once.
func (w *worker) segment(ctx context.Context) (agent.Outcome, error) {
	c := w.claim
	a, err := w.plan.agentFor(c.Agent)
	if err != nil {
		return agent.Outcome{}, err
	}
	if err := w.prepareWorkspace(); err != nil {
		return workspaceFault(err)
	}
	seg := agent.Segment{
		RolloutID: c.RolloutID, Marker: w.marker(c.RolloutID), Number: c.Segment, Attempt: c.Attempt, Input: w.evaluation.Inputs,
		Workspace: w.workspace(), Dir: w.segmentDir(), BaseDir: w.plan.baseDir,
		OutputBytes: w.plan.Set.Limits.OutputBytes, Ended: w.leave, Consume: ledger{w.o.Store, w.claim.Token}.consume,
	}
	var f *fault.Fault
	if seg.Timeout, f = w.timeLeft(); f != nil {
		return agent.Outcome{Fault: f}, nil
	}
	if c.Segment > 1 {
		seg.Resume, seg.Deliveries = resumeDocument(c.Deliveries)
	}
	if err := os.MkdirAll(seg.Dir, 0o700); err != nil {
		return agent.Outcome{}, err
	}
	failpoint.Hit("runner.prepared")
	if err := w.places.take(ctx, w.stop); err != nil {
		return agent.Outcome{}, err
	}
	w.began = time.Now()
	w.queued = w.began.Sub(w.claimed)
	if w.entry.LivesInEnvironment() {
		return w.live(ctx, a, seg)
	}
	return a.Run(ctx, seg)
}

func (w *worker) segmentDir() string {
	return workspace.SegmentDir(w.o.Store.Dir(), w.claim.RunID, w.claim.RolloutID, w.claim.Segment, w.claim.Attempt)
}

// timeLeft is what the limits leave for the segment; 0 means no limit.
func (w *worker) timeLeft() (time.Duration, *fault.Fault) {
	limits := w.plan.Set.Limits
	if limits.Timeout == 0 {
		return limits.SegmentTimeout, nil
	}
	left := limits.Timeout - w.claim.Clocks.Working
	if left <= 0 {
		return 0, fault.Newf(fault.Timeout, "the rollout has worked for %v (limits.timeout)", limits.Timeout)
	}
	if limits.SegmentTimeout > 0 {
		left = min(left, limits.SegmentTimeout)
	}
	return left, nil
}

// timeSpent reports whether nothing is left of limits.timeout, so that another attempt would only time out again.
func (w *worker) timeSpent(held time.Duration) bool {
	worked := w.claim.Clocks.Working
	if !w.began.IsZero() {
		worked += time.Since(w.began) - held
	}
	limit := w.plan.Set.Limits.Timeout
	return limit > 0 && worked >= limit
}

// resumeDocument makes what a resumed agent reads of the deliveries. A fault takes the place of a payload; agents that cannot take one never
// come here with one.
func resumeDocument(deliveries []store.Trigger) (map[string]json.RawMessage, map[string]agent.Delivery) {
	resume := map[string]json.RawMessage{}
	envelopes := map[string]agent.Delivery{}
	for _, d := range deliveries {
		e := agent.Delivery{TriggerID: d.ID, Status: string(d.Status), Payload: d.Payload, ReceivedAt: d.DeliveredAt}
		if e.Payload == nil {
			e.Payload = json.RawMessage("null")
		}
		resume[d.InterruptID] = e.Payload
		if d.Status != store.StatusSuccessful {
			e.Error = &wait.Error{Code: string(d.Status), Message: "the job was " + string(d.Status)}
			if d.Fault != nil {
				e.Error = &wait.Error{Code: string(d.Fault.Category), Message: d.Fault.Message}
			}
			resume[d.InterruptID], _ = json.Marshal(map[string]any{"error": e.Error}) // two strings always marshal
		}
		envelopes[d.InterruptID] = e
	}
	return resume, envelopes
}

// end says what to commit of an outcome, after the segment's files and, if it goes on later, its workspace have been made durable.
func (w *worker) end(ctx context.Context, out agent.Outcome) (store.SegmentEnd, error) {
	limits := w.plan.Set.Limits
	end := store.SegmentEnd{SuspendTimeout: limits.SuspendTimeout, Queued: w.queued}
	var err error
	if end.Files, err = w.syncFiles(out.Files); err != nil {
		return end, err
	}
	if out.Info != nil {
		info, err := json.Marshal(out.Info)
		if err != nil {
			return end, err
		}
		end.Info = w.plan.redact.JSON(info)
		end.Held = time.Duration(out.Info.HeldMs) * time.Millisecond
	}
	if out.Limit != nil && w.evaluation.Task == nil {
		out.Fault = out.Limit // nobody can say what it is worth
	}
	if out.Interrupts != nil && w.claim.Suspensions >= limits.Suspensions {
		out.Fault = fault.Newf(fault.Suspensions, "the rollout was suspended %d times (limits.suspensions)", limits.Suspensions)
	}
	// What is gone on with, or verified, must be there after a power failure as well.
	if out.Fault == nil && (out.Interrupts != nil || w.evaluation.Task != nil) {
		folders := w.keptFolders()
		if out.Interrupts == nil {
			folders = slices.DeleteFunc(slices.Clone(folders), func(name string) bool { return name == workspace.FolderHome }) // the verifier has one of its own
		}
		if err := workspace.Keep(w.root(), folders); err != nil {
			unkept, err := workspaceFault(err)
			if err != nil {
				return end, err
			}
			if out.Interrupts != nil {
				out.Fault = unkept.Fault
			} else { // it is verified all the same: else an agent could escape its verdict by what it leaves
				w.o.Logger.Warn("what the agent has left would not survive a power failure", "rollout", w.claim.RolloutID, "reason", unkept.Fault.Message)
			}
		}
	}
	switch {
	case out.Fault != nil:
		w.failed(ctx, &end, out.Fault)
	case out.Interrupts != nil:
		end.Outcome = store.OutcomeSuspended
		end.Triggers, err = w.triggers(out.Interrupts)
	default:
		// What is stored is what will be shown, also by a process that does not know the secrets.
		end.Outcome, end.Output = store.OutcomeCompleted, w.plan.redact.JSON(out.Output)
	}
	return end, err
}

// workspaceFault is the outcome if the agent has left something in its workspace that cannot be kept: what evalrun may not read, or folders
// that are nested deeper than a path can be long. Any other error is evalrun's own.
func workspaceFault(err error) (agent.Outcome, error) {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENAMETOOLONG) {
		return agent.Outcome{Fault: fault.New(fault.Unresumable, "the workspace cannot be kept: "+workspace.Shorten(err.Error()))}, nil
	}
	return faultOrError(err)
}

// failed decides what follows from a fault: the end of the rollout, or another attempt.
func (w *worker) failed(ctx context.Context, end *store.SegmentEnd, f *fault.Fault) {
	end.Outcome = store.OutcomeFailed
	end.Fault = fault.New(f.Category, w.plan.redact.String(f.Message))
	switch {
	case errors.Is(context.Cause(ctx), errCancelled):
		end.Outcome, end.Fault = store.OutcomeCancelled, nil
	case ctx.Err() != nil:
		end.Outcome = store.OutcomeInterrupted
	default:
		retry := w.plan.Set.Retry
		hopeless := f.Category == fault.Timeout && w.timeSpent(end.Held)
		end.Retry = w.claim.Failures < retry.Max && retryable(retry.On, f.Category) && !hopeless
		if end.Retry {
			end.RetryAfter = backoff(retry.Backoff, retry.MaxBackoff, w.claim.Failures)
		}
	}
}

// neverRetried are the faults that another attempt cannot mend.
var neverRetried = map[fault.Category]bool{
	fault.StartUnknown: true, fault.Unresumable: true, fault.Suspensions: true, fault.SuspendTimeout: true, fault.NotRunnable: true,
	fault.Workspace: true,
}

func retryable(on []string, category fault.Category) bool {
	if neverRetried[category] {
		return false
	}
	for _, c := range on {
		if c == "*" || c == string(category) {
			return true
		}
	}
	return false
}

// backoff doubles with each earlier failure.
func backoff(first, most time.Duration, failures int) time.Duration {
	d := first
	for range failures {
		if d *= 2; d >= most {
			return most
		}
	}
	return min(d, most)
}

// triggers makes of interrupts what the store keeps of them.
func (w *worker) triggers(interrupts []wait.Interrupt) ([]store.NewTrigger, error) {
	var out []store.NewTrigger
	for _, in := range interrupts {
		for _, spec := range in.Specs {
			if err := w.addServer(&spec); err != nil {
				return nil, err
			}
			if shown := w.plan.redact.JSON(spec.Payload); !bytes.Equal(shown, spec.Payload) {
				spec.Shown = shown
			}
			data, err := json.Marshal(spec)
			if err != nil {
				return nil, err
			}
			n := store.NewTrigger{
				InterruptID: in.ID, Type: string(spec.Type), Name: spec.Name, Source: w.plan.sources.Name(spec),
				ItemKey: spec.ItemKey, KeyPrefix: keyPrefix(spec.Type), FolderPath: spec.FolderPath, FolderKey: spec.FolderKey, Spec: data,
				Digest: spec.Digest(),
			}
			n.Checked = n.Source != wait.SourceExternal
			n.Start = n.Checked && n.Source != wait.SourceTimer && spec.ItemKey == ""
			if spec.ResumeAt != nil {
				n.NextCheck = *spec.ResumeAt
			}
			out = append(out, n)
		}
	}
	return out, nil
}

// keyPrefix makes the key of something that waits and has none of its own: job-…, task-….
func keyPrefix(t wait.Type) string {
	return strings.ReplaceAll(strings.ToLower(string(t)), "_", "-") + "-"
}
