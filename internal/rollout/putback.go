package rollout

import (
	"context"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// postponed is how long a process leaves a rollout alone that it cannot run. Another process may
// run it.
const postponed = time.Minute

// postpone puts a rollout back that this process cannot run.
func (r *Rollout) postpone(ctx context.Context, why string) error {
	r.postponed = why
	r.held.host.Logger.Warn("a rollout cannot be gone on with here",
		"rollout", r.held.claim.RolloutID, "run", r.held.claim.RunID, "reason", why)
	return r.PutBack(ctx, interrupted(why), postponed)
}

// PutBack puts the rollout back after a pause: its segment will be begun again or, if its agent has
// finished, the evaluators that have no result yet are run.
func (r *Rollout) PutBack(ctx context.Context, why *fault.Fault, pause time.Duration) error {
	if r.state == eval.StateEvaluating {
		return r.held.host.Store.Release(ctx, r.held.claim.Token, pause)
	}
	_, err := r.held.host.Store.CommitSegment(ctx, r.held.claim.Token,
		store.SegmentEnd{Outcome: store.OutcomeInterrupted, Fault: why, RetryAfter: pause})
	return err
}

// EndFaulted ends the rollout with a fault.
func (r *Rollout) EndFaulted(ctx context.Context, f *fault.Fault) (err error) {
	if r.state == eval.StateEvaluating {
		err = r.held.host.Store.FinishFaulted(ctx, r.held.claim.Token, *f)
	} else {
		_, err = r.held.host.Store.CommitSegment(ctx, r.held.claim.Token,
			store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: f})
	}
	r.held.host.JobsChanged()
	return err
}

// endCancelled ends a rollout that was cancelled, and whose holder died before it had ended it.
func (r *Rollout) endCancelled(ctx context.Context) error {
	done, err := r.held.host.Store.CommitSegment(ctx, r.held.claim.Token,
		store.SegmentEnd{Outcome: store.OutcomeCancelled})
	if err == nil {
		r.state = done.State
	}
	r.held.host.JobsChanged()
	return err
}

func interrupted(why string) *fault.Fault {
	return fault.New(fault.Interrupted, why)
}
