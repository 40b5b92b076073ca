package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// What goes wrong with one rollout or trigger concerns only that one. If the fault is evalrun's own it is tried again a few times and
// then gets the fault internal. Only an error of the store ends the process.

// internalAttempts is how often evalrun tries what it fails with.
const internalAttempts = 3

// internalLog is the file in a rollout's folder that says how evalrun failed with it.
const internalLog = "internal.log"

// panicError is a panic in the goroutine of a rollout or a trigger.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// protect calls f and makes an error of a panic.
func protect(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return f()
}

// attempt runs the worker. After a panic nobody waits for the processes of the rollout any more, so they are ended here.
func (w *worker) attempt(ctx context.Context) error {
	err := protect(func() error { return w.run(ctx) })
	if errors.As(err, new(*panicError)) {
		_, sweepErr := sandbox.Sweep(w.marker(w.claim.RolloutID))
		err = errors.Join(err, sweepErr)
	}
	return err
}

// settle decides what follows from an error of the claimed rollout: another attempt, or its end. The error that it returns ends the process.
func (w *worker) settle(ctx context.Context, failure error) (err error) {
	id, commit := w.claim.RolloutID, context.WithoutCancel(ctx)
	switch {
	case failure == nil:
		return nil
	case errors.Is(failure, store.ErrFenced):
		err = failure
	case store.IsBroken(failure):
		return failure
	case w.o.Store.InPlace() != nil:
		return w.o.Store.InPlace() // that is why
	case w.state != store.StateRunning && w.state != store.StateEvaluating:
		w.o.Logger.Warn("a rollout could not be tidied up after", "rollout", id, "error", failure)
		return nil
	case ctx.Err() != nil: // we ended it ourselves
		err = w.putBack(commit, failure.Error())
	default:
		var attempt int
		if attempt, err = w.o.Store.CountFailure(commit, w.claim.Token); err == nil {
			f := w.recordFailure(commit, w.claim.RunID, id, attempt, failure)
			err = w.fail(commit, f, attempt)
		}
	}
	if errors.Is(err, store.ErrFenced) {
		w.o.Logger.Warn("another process has taken over the rollout", "rollout", id)
		return nil
	}
	return err
}

// fail puts the rollout back for another attempt, or ends it after the last one.
func (w *worker) fail(ctx context.Context, f *fault.Fault, attempt int) (err error) {
	after, last := backoff(w.internalPause, lastRetry, attempt-1), attempt >= internalAttempts
	switch {
	case w.state == store.StateEvaluating && last:
		err = w.o.Store.FinishFaulted(ctx, w.claim.Token, *f)
	case w.state == store.StateEvaluating:
		err = w.o.Store.GiveBack(ctx, w.claim.Token, after)
	case last:
		_, err = w.o.Store.CommitSegment(ctx, w.claim.Token, store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: f})
	default:
		_, err = w.o.Store.CommitSegment(ctx, w.claim.Token, store.SegmentEnd{Outcome: store.OutcomeInterrupted, Fault: f, RetryAfter: after})
	}
	if last {
		w.lookAtTriggers() // jobs to cancel
	}
	return err
}

// actSafely acts on a claimed trigger, a few times if evalrun fails with it. The error that it returns ends the process.
func (r *Runner) actSafely(ctx context.Context, c store.TriggerClaim) error {
	commit := context.WithoutCancel(ctx)
	for attempt := 1; ; attempt++ {
		err := protect(func() error { return r.tryAct(ctx, c) })
		switch {
		case err == nil || errors.Is(err, store.ErrFenced):
			return nil
		case store.IsBroken(err):
			return err
		case errors.Is(err, plans.ErrLater):
			return r.postponeTrigger(commit, c)
		case r.o.Store.InPlace() != nil:
			return r.o.Store.InPlace() // that is why
		}
		f := r.recordFailure(commit, c.RunID, c.RolloutID, attempt, fmt.Errorf("trigger %s: %w", c.TriggerID, err))
		switch {
		case c.Action == store.ActionCancel:
			return nil // tried once, and nobody waits for it
		case attempt == internalAttempts:
			_, err = r.o.Store.Deliver(commit, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence, Status: store.StatusFaulted, By: c.Source, Fault: f})
		case !r.pause(ctx, backoff(r.internalPause, lastRetry, attempt-1)):
			err = r.o.Store.TriggerPending(commit, c.TriggerToken, r.o.Now()) // for whoever comes next
		default:
			continue
		}
		if errors.Is(err, store.ErrFenced) {
			return nil
		}
		return err
	}
}

// postponeTrigger leaves a trigger to another process for a while.
func (r *Runner) postponeTrigger(ctx context.Context, c store.TriggerClaim) error {
	err := r.o.Store.TriggerPending(ctx, c.TriggerToken, r.o.Now().Add(postponed))
	if errors.Is(err, store.ErrFenced) {
		return nil
	}
	return err
}

// pause waits; false means that nothing new is to be begun.
func (r *Runner) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.stop:
	case <-ctx.Done():
	}
	return false
}

// recordFailure logs how evalrun failed with a rollout or its trigger, keeps that with the stack in the rollout's folder, and returns the fault.
func (r *Runner) recordFailure(ctx context.Context, runID, rolloutID string, attempt int, failure error) *fault.Fault {
	red := r.redactorOf(ctx, runID)
	message := red.String(failure.Error())
	text := fmt.Sprintf("%s attempt %d of %d: %s\n", r.o.Now().UTC().Format(time.RFC3339Nano), attempt, internalAttempts, message)
	if p := (*panicError)(nil); errors.As(failure, &p) {
		text += red.String(string(p.stack)) + "\n"
	}
	message = workspace.Shorten(message)
	r.o.Logger.Error("evalrun failed with a rollout", "run", runID, "rollout", rolloutID, "attempt", attempt, "of", internalAttempts, "error", message)
	if err := appendText(filepath.Join(workspace.RolloutDir(r.o.Store.Dir(), runID, rolloutID), internalLog), text); err != nil {
		r.o.Logger.Error("the failure could not be kept in the rollout's folder", "rollout", rolloutID, "error", err)
	}
	return fault.Newf(fault.Internal, "evalrun itself failed with this rollout: %s (%s in the rollout's folder has more)", message, internalLog)
}

// redactorOf is the redactor of a run, or if its plan cannot be read, that of the process.
func (r *Runner) redactorOf(ctx context.Context, runID string) *redact.Redactor {
	if run, err := r.runs.get(ctx, runID); err == nil {
		return run.redact
	}
	return redact.New(r.o.Secrets)
}

func appendText(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
