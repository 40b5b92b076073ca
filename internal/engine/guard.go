package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// internalAttempts is how many attempts evalrun makes when it fails itself.
const internalAttempts = 3

// postponed is how long a process leaves a trigger alone whose plan it cannot read. Another process
// may read it.
const postponed = time.Minute

// guard keeps the failure of one rollout or trigger from harming others. If evalrun itself is at
// fault, the work is tried again a few times, and then the rollout gets the fault internal. Only an
// error of the store ends the process.
type guard struct {
	o    *Options
	runs *runCache
	stop <-chan struct{}
	// pause is the first pause after evalrun itself has failed.
	pause time.Duration
}

// run runs a claimed rollout and handles its failures. An error that it returns ends the process.
func (g *guard) run(ctx context.Context, ro *rollout.Rollout, c store.Claim) error {
	err := protect(func() error { return ro.Run(ctx) })
	if errors.As(err, new(*panicError)) {
		// Nobody waits for the processes of the rollout any more.
		_, sweepErr := sandbox.Sweep(rollout.Marker(g.o.Store.ID(), c.RolloutID))
		err = errors.Join(err, sweepErr)
	}
	if err != nil {
		err = g.settle(ctx, ro, c, err)
	}
	if errors.Is(err, store.ErrFenced) {
		if !g.cancelled(ctx, c) {
			g.o.Logger.Warn("another process has taken over the rollout", "rollout", c.RolloutID)
		}
		return nil
	}
	return err
}

// cancelled reports whether a rollout was cancelled while it was worked on. It reads the rollout's
// events.
func (g *guard) cancelled(ctx context.Context, c store.Claim) (yes bool) {
	// The answer is only for a message.
	_ = g.o.Store.Snapshot(context.WithoutCancel(ctx), c.RunID, func(v store.View) error {
		one, err := v.Rollout(c.RolloutID)
		yes = err == nil && one.State == eval.StateCancelled
		return err
	})
	return yes
}

// settle decides what follows when evalrun has failed with a rollout: another attempt, or the end.
func (g *guard) settle(ctx context.Context, ro *rollout.Rollout, c store.Claim, failure error) error {
	commit := context.WithoutCancel(ctx)
	switch state := ro.State(); {
	case errors.Is(failure, store.ErrFenced), store.IsBroken(failure):
		return failure
	case g.o.Store.InPlace() != nil:
		return g.o.Store.InPlace() // the store is not in place, which explains the failure
	case state != eval.StateRunning && state != eval.StateEvaluating:
		g.o.Logger.Warn("a rollout could not be tidied up after", "rollout", c.RolloutID, "error", failure)
		return nil
	case ctx.Err() != nil: // we ended it ourselves
		why := g.runs.redactor(commit, c.RunID).String(failure.Error())
		return ro.PutBack(commit, fault.New(fault.Interrupted, why), 0)
	}
	attempt, err := g.o.Store.CountFailure(commit, c.Token)
	if err != nil {
		return err
	}
	f := g.record(commit, c.RunID, c.RolloutID, attempt, failure)
	if attempt >= internalAttempts {
		return ro.EndFaulted(commit, f)
	}
	return ro.PutBack(commit, f, retry.Backoff(g.pause, lastRetry, attempt-1))
}

// handle has a claimed trigger handled, a few times if evalrun fails with it. An error that it
// returns ends the process.
func (g *guard) handle(ctx context.Context, c store.TriggerClaim,
	handler func(context.Context, store.TriggerClaim) error) error {
	commit := context.WithoutCancel(ctx)
	for attempt := 1; ; attempt++ {
		err := protect(func() error { return handler(ctx, c) })
		switch {
		case err == nil || errors.Is(err, store.ErrFenced):
			return nil
		case store.IsBroken(err):
			return err
		case errors.Is(err, plans.ErrLater):
			return unlessFenced(g.o.putBack(ctx, c, postponed, c.Action == store.ActionStart))
		case g.o.Store.InPlace() != nil:
			return g.o.Store.InPlace() // the store is not in place, which explains the failure
		case ctx.Err() != nil && c.Action != store.ActionCancel:
			return unlessFenced(g.o.putBack(ctx, c, 0, false)) // for whoever comes next
		}
		f := g.record(commit, c.RunID, c.RolloutID, attempt, fmt.Errorf("trigger %s: %w", c.TriggerID, err))
		switch {
		case c.Action == store.ActionCancel:
			return nil // a cancellation is tried once, and nobody waits for it
		case attempt == internalAttempts:
			_, err = g.o.Store.Deliver(commit, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence,
				Status: store.StatusFaulted, By: c.Source, Fault: f})
			return unlessFenced(err)
		case !g.sleep(ctx, retry.Backoff(g.pause, lastRetry, attempt-1)):
			return unlessFenced(g.o.putBack(ctx, c, 0, false)) // for whoever comes next
		}
	}
}

// unlessFenced drops the error which says that another process has taken the trigger over.
func unlessFenced(err error) error {
	if errors.Is(err, store.ErrFenced) {
		return nil
	}
	return err
}

// sleep waits. It returns false if nothing new may be started.
func (g *guard) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-g.stop:
	case <-ctx.Done():
	}
	return false
}

// record logs how evalrun failed with a rollout or its trigger, writes it with the stack to the
// rollout's folder, and returns the fault.
func (g *guard) record(ctx context.Context, runID, rolloutID string, attempt int, failure error) *fault.Fault {
	red := g.runs.redactor(ctx, runID)
	message := red.String(failure.Error())
	text := fmt.Sprintf("%s attempt %d of %d: %s\n", g.o.Now().UTC().Format(time.RFC3339Nano), attempt,
		internalAttempts, message)
	if p := (*panicError)(nil); errors.As(failure, &p) {
		text += red.String(string(p.stack)) + "\n"
	}
	message = workspace.Shorten(message)
	g.o.Logger.Error("evalrun failed with a rollout",
		"run", runID, "rollout", rolloutID, "attempt", attempt, "of", internalAttempts, "error", message)
	if err := appendText(files.Of(g.o.Store).Run(runID).Rollout(rolloutID).InternalLog(), text); err != nil {
		g.o.Logger.Error("the failure could not be kept in the rollout's folder", "rollout", rolloutID, "error", err)
	}
	if errors.Is(failure, snapshot.ErrLost) { // what a rollout was suspended with says so itself
		return fault.Newf(fault.Workspace,
			"%s; run where the eval set's folder is, restore the store from a backup that has them, or run the evaluation again", message)
	}
	return fault.Newf(fault.Internal, "evalrun itself failed with this rollout: %s (%s in the rollout's folder has more)",
		message, files.InternalLog)
}

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
