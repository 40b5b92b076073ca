package rules

import (
	"context"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// queue implements store.Queue.
type queue struct{ db *db }

// Claim implements Queue. A claim that a power cut takes back was an attempt that has left nothing
// behind: the segment is begun again.
func (s queue) Claim(ctx context.Context, runID string, limit int) (claims []store.Claim, err error) {
	if limit <= 0 {
		return nil, nil
	}
	if err := s.db.InPlace(); err != nil {
		return nil, err
	}
	forget := func() {
		for _, c := range claims {
			s.db.working.end(c.RolloutID, c.Fence)
		}
		claims = nil
	}
	err = s.db.writeRelaxed(ctx, "claim rollouts", func(w *write) error {
		forget() // it is tried again
		ids, err := w.segments.claimable(runID, limit)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := w.holders.register(); err != nil {
			return err
		}
		if claims, err = w.segments.claim(ids); err != nil {
			claims = nil
			return fmt.Errorf("claiming rollouts: %w", err)
		}
		for _, c := range claims {
			s.db.working.begin(c.RolloutID, c.Fence)
		}
		return nil
	})
	if err != nil {
		forget()
	}
	return claims, err
}

// Release implements Queue.
func (s queue) Release(ctx context.Context, tok store.Token, pause time.Duration) error {
	return s.db.writeRelaxed(ctx, "release rollout "+tok.RolloutID, func(w *write) error {
		o, err := w.rollouts.held(tok, eval.StateRunning)
		attempts, state := 1, eval.StatePending
		if o.State == eval.StateEvaluating {
			o, err = w.rollouts.held(tok, eval.StateEvaluating)
			attempts, state = 0, eval.StateEvaluating
		}
		if err != nil {
			return err
		}
		w.tx.wake = true
		if o.cancelled {
			return w.segments.cancel(o.RunID, o.ID)
		}
		if state == eval.StatePending {
			if _, err := w.rollouts.countAs("queued", o.Rollout, w.tx.now-o.StateSince.UnixMicro()); err != nil {
				return err
			}
		}
		if err := w.rollouts.become(o.ID, state,
			", owner = NULL, lease_until = NULL, runnable_at = ?5, attempt = attempt - ?4",
			attempts, w.tx.after(pause)); err != nil {
			return err
		}
		return w.tx.touch(o.RunID)
	})
}

// Renew implements Queue.
func (s queue) Renew(ctx context.Context, t store.Tokens) (held, cancelled []string, err error) {
	err = s.db.writeOp(ctx, "renew leases", func(w *write) error {
		held, cancelled = nil, nil
		until := w.tx.after(s.db.lease)
		if err := w.tx.Exec("UPDATE triggers SET due_at = ?3"+claimed("trigger_id"),
			s.db.holder, tokens(t.Triggers, func(t store.TriggerToken) (string, int64) { return t.TriggerID, t.Fence }), until); err != nil {
			return err
		}
		if err := w.tx.Exec("UPDATE judge_batches SET due_at = ?3"+claimed("batch_id"),
			s.db.holder, tokens(t.Batches, func(t store.BatchToken) (string, int64) { return t.BatchID, t.Fence }), until); err != nil {
			return err
		}
		return w.tx.rows(func(r scanner) error {
			var id string
			var cancel bool
			err := r.Scan(&id, &cancel)
			held = append(held, id)
			if cancel {
				cancelled = append(cancelled, id)
			}
			return err
		}, "UPDATE rollouts SET renewed_at = ?4, lease_until = ?3"+claimed("rollout_id")+
			" RETURNING rollout_id, cancel",
			s.db.holder, tokens(t.Rollouts, func(t store.Token) (string, int64) { return t.RolloutID, t.Fence }), until, w.tx.now)
	})
	return held, cancelled, err
}

// claimed is the condition that the process ?1 has a row by one of the tokens ?2.
func claimed(column string) string {
	if !byToken {
		return " WHERE owner = ?1"
	}
	return " WHERE owner = ?1 AND " + column + " || ' ' || fence IN (SELECT value FROM json_each(?2))"
}

// tokens is a JSON array of the ids and fences of tokens, as claimed compares them.
func tokens[T any](all []T, parts func(T) (id string, fence int64)) string {
	var out []string
	for _, t := range all {
		out = append(out, claimName(parts(t)))
	}
	return list(out)
}

// CountFailure implements Queue.
func (s queue) CountFailure(ctx context.Context, tok store.Token) (count int, err error) {
	err = s.db.writeOp(ctx, "count a failure of rollout "+tok.RolloutID, func(w *write) error {
		_, err := w.rollouts.held(tok, eval.StateRunning)
		if err != nil {
			if _, err = w.rollouts.held(tok, eval.StateEvaluating); err != nil {
				return err
			}
		}
		return w.tx.Row([]any{&count},
			"UPDATE rollouts SET internal_failures = internal_failures + 1 WHERE rollout_id = ? RETURNING internal_failures",
			tok.RolloutID)
	})
	return count, err
}

// CommitSegment implements Queue.
func (s queue) CommitSegment(
	ctx context.Context, tok store.Token, end store.SegmentEnd,
) (done store.Committed, err error) {
	err = s.db.writeHeld(ctx, "commit a segment of rollout "+tok.RolloutID, tok, func(w *write) error {
		o, err := w.rollouts.held(tok, eval.StateRunning)
		if err != nil {
			return err
		}
		w.tx.wake = true
		done, err = w.segments.commit(o, end)
		return err
	})
	if err != nil {
		return store.Committed{}, err
	}
	return done, nil
}

// RecordResult implements Queue.
func (s queue) RecordResult(ctx context.Context, tok store.Token, r store.Result) error {
	return s.db.writeHeld(ctx, "record a result of rollout "+tok.RolloutID, tok, func(w *write) error {
		o, err := w.rollouts.held(tok, eval.StateEvaluating)
		if err != nil {
			return err
		}
		if err := w.rollouts.addResult(o.Rollout, r); err != nil {
			return err
		}
		return w.tx.touch(o.RunID)
	})
}

// Finish implements Queue.
func (s queue) Finish(ctx context.Context, tok store.Token, score *float64, last ...store.Result) error {
	return s.db.writeHeld(ctx, "end rollout "+tok.RolloutID, tok, func(w *write) error {
		o, err := w.rollouts.held(tok, eval.StateEvaluating)
		if err != nil {
			return err
		}
		w.tx.wake = true
		for _, r := range last {
			if err := w.rollouts.addResult(o.Rollout, r); err != nil {
				return err
			}
		}
		if err := w.segments.stopWaiting(o.Rollout); err != nil {
			return err
		}
		if err := w.tx.event(o.RunID, o.ID, store.RolloutEvaluated, map[string]any{"score": score}); err != nil {
			return err
		}
		return w.rollouts.end(o.RunID, o.ID, eval.StateCompleted, nil, score)
	})
}

// FinishFaulted implements Queue.
func (s queue) FinishFaulted(ctx context.Context, tok store.Token, fault fault.Fault) error {
	return s.db.writeHeld(ctx, "record the fault of rollout "+tok.RolloutID, tok, func(w *write) error {
		o, err := w.rollouts.held(tok, eval.StateEvaluating)
		if err != nil {
			return err
		}
		w.tx.wake = true
		if err := w.segments.stopWaiting(o.Rollout); err != nil {
			return err
		}
		return w.rollouts.end(o.RunID, o.ID, eval.StateFaulted, &fault, nil)
	})
}
