package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/store"
)

// segmentEnd turns an outcome into the segment's end that is committed. It makes the segment's
// files durable and, if the rollout goes on later, its folders.
func (r *Rollout) segmentEnd(ctx context.Context, out agent.Outcome) (store.SegmentEnd, error) {
	limits := r.held.run.Plan.Set.Limits
	end := store.SegmentEnd{SuspendTimeout: r.held.run.Plan.SuspendTimeout(time.Now()), Queued: r.queued}
	var err error
	if end.Files, err = r.held.keepFiles(out.Files); err != nil {
		return end, err
	}
	if played := r.mocks.Played(); played != nil {
		if out.Info == nil {
			out.Info = &record.Info{}
		}
		out.Info.Mocks = &record.Mocks{Calls: played.Calls, Unmatched: played.Unmatched}
		before, err := r.held.playedBefore(ctx)
		if err != nil {
			return end, err
		}
		out.Info.Mocks.Usage = r.held.writtenUsage(played.Calls, before)
	}
	if err := r.mocks.Failed(); err != nil && out.Fault == nil {
		out.Fault = fault.New(fault.Model, err.Error())
	}
	if out.Info != nil {
		info, err := json.Marshal(out.Info)
		if err != nil {
			return end, err
		}
		end.Info = r.held.run.Redact.JSON(info)
		end.Held = time.Duration(out.Info.HeldMs) * time.Millisecond
	}
	r.keepToBudget(ctx, &out)
	if out.Limit != nil && r.held.evaluation.Task == nil {
		out.Fault = out.Limit // without a verifier nobody can tell what the output is worth
	}
	if waits := r.held.claim.Suspensions - out.Batched; out.Interrupts != nil && !out.InBatch() && waits >= limits.Suspensions {
		out.Fault = fault.Newf(fault.Suspensions, "the rollout was suspended %d times (limits.suspensions)",
			limits.Suspensions)
	}
	if end.Kept, err = (keptFolders{r.held}).keep(ctx, &out); err != nil {
		return end, err
	}
	switch {
	case out.Fault != nil:
		r.failedEnd(ctx, &end, out.Fault)
		if out.Output != nil {
			err = os.WriteFile(filepath.Join(r.held.segmentDir(), fileRefused), nil, 0o600)
		}
	case out.Interrupts != nil:
		end.Outcome = store.OutcomeSuspended
		end.Triggers, err = r.newTriggers(ctx, out.Interrupts)
	default:
		// The output is stored without secrets, because a process that does not know them may show
		// it.
		end.Outcome, end.Output = store.OutcomeCompleted, r.held.run.Redact.JSON(out.Output)
	}
	return end, err
}

// failedEnd decides what follows from a fault: the end of the rollout, or another attempt.
func (r *Rollout) failedEnd(ctx context.Context, end *store.SegmentEnd, f *fault.Fault) {
	end.Outcome = store.OutcomeFailed
	end.Fault = fault.New(f.Category, r.held.run.Redact.String(f.Message))
	switch {
	case errors.Is(context.Cause(ctx), ErrCancelled):
		end.Outcome, end.Fault = store.OutcomeCancelled, nil
	case ctx.Err() != nil:
		end.Outcome = store.OutcomeInterrupted
	default:
		again := r.held.run.Plan.Set.Retry
		hopeless := f.Category == fault.Timeout && r.timeSpent(end.Held)
		end.Retry = r.held.claim.Failures < again.Max && retryable(again.On, f.Category) && !hopeless
		if end.Retry {
			end.RetryAfter = retry.Backoff(again.Backoff, again.MaxBackoff, r.held.claim.Failures)
		}
	}
}

// neverRetried holds the faults that another attempt cannot repair.
var neverRetried = map[fault.Category]bool{
	fault.StartUnknown: true, fault.Unresumable: true, fault.Suspensions: true, fault.SuspendTimeout: true,
	fault.NotRunnable: true, fault.Workspace: true, fault.Budget: true,
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
