package sqlite

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// CommitSegment implements Store.
func (s *SQLite) CommitSegment(ctx context.Context, tok store.Token, end store.SegmentEnd) (done store.Committed, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, eval.StateRunning)
		if err != nil {
			return err
		}
		t.wake = true
		done, err = t.commitSegment(o, end)
		return err
	})
	if err != nil {
		return store.Committed{}, err
	}
	return done, nil
}

func (t *tx) commitSegment(o heldRollout, end store.SegmentEnd) (store.Committed, error) {
	var err error
	if o.StateSince, err = t.countAs("queued", o.Rollout, end.Queued.Microseconds()); err != nil {
		return store.Committed{}, err
	}
	if _, err = t.countAs("waiting", o.Rollout, end.Held.Microseconds()); err != nil {
		return store.Committed{}, err
	}
	if err := t.exec(`INSERT OR REPLACE INTO segments (rollout_id, segment, attempt, outcome, started_at, ended_at, output, fault, files, info)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, o.ID, o.Segment, o.Attempt, string(end.Outcome),
		o.StateSince.UnixMicro(), t.now, raw(end.Output), marshal(end.Fault), marshal(end.Files), raw(end.Info)); err != nil {
		return store.Committed{}, err
	}
	if o.cancelled {
		end.Outcome = store.OutcomeCancelled // whatever it did: nobody wants it any more
	}
	switch end.Outcome {
	case store.OutcomeInterrupted:
		return store.Committed{State: eval.StatePending}, t.repeat(o.Rollout, end)
	case store.OutcomeFailed:
		if end.Retry {
			return store.Committed{State: eval.StatePending}, t.repeat(o.Rollout, end)
		}
	case store.OutcomeCompleted, store.OutcomeSuspended, store.OutcomeCancelled:
	default:
		return store.Committed{}, fmt.Errorf("rollout %s: a segment cannot end as %q", o.ID, end.Outcome)
	}
	if o.Segment > 1 {
		if err := t.exec("UPDATE triggers SET state = 'consumed' WHERE rollout_id = ? AND taken_by = ? AND state IN ('fired', 'faulted', 'expired', 'cancelled')",
			o.ID, o.Segment); err != nil {
			return store.Committed{}, err
		}
	}
	if end.Outcome == store.OutcomeSuspended {
		return t.suspend(o.Rollout, end)
	}
	if end.Outcome == store.OutcomeCancelled {
		return store.Committed{State: eval.StateCancelled}, t.cancel(o.RunID, o.ID)
	}
	if o.Suspensions > 0 {
		if err := t.abandon(o.ID, nil); err != nil {
			return store.Committed{}, err
		}
	}
	if end.Outcome == store.OutcomeFailed {
		return store.Committed{State: eval.StateFaulted}, t.end(o.RunID, o.ID, eval.StateFaulted, end.Fault, nil)
	}
	if err := t.touch(o.RunID); err != nil {
		return store.Committed{}, err
	}
	return store.Committed{State: eval.StateEvaluating}, t.become(o.ID, eval.StateEvaluating, ", internal_failures = 0") // still held
}

// repeat puts a rollout back so that its segment is tried again.
func (t *tx) repeat(o store.Rollout, end store.SegmentEnd) error {
	failures, also := o.Failures, ""
	if end.Outcome == store.OutcomeFailed { // by the agent, so evalrun itself did not fail
		failures, also = failures+1, ", internal_failures = 0"
	}
	if err := t.become(o.ID, eval.StatePending, ", owner = NULL, lease_until = NULL, failures = ?4, runnable_at = ?5"+also, failures, t.after(end.RetryAfter)); err != nil {
		return err
	}
	data := map[string]any{"segment": o.Segment, "attempt": o.Attempt + 1, "afterMs": end.RetryAfter.Milliseconds()}
	if end.Fault != nil {
		data["fault"] = end.Fault
	}
	return t.event(o.RunID, o.ID, store.RolloutRetried, data)
}
