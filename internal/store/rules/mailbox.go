package rules

import (
	"context"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// mailbox implements store.Mailbox.
type mailbox struct{ db *db }

// ClaimTriggers implements Mailbox.
func (s mailbox) ClaimTriggers(ctx context.Context, runID string, limit int) (claims []store.TriggerClaim, err error) {
	if limit <= 0 {
		return nil, nil
	}
	if err := s.db.InPlace(); err != nil {
		return nil, err
	}
	forget := func() {
		for _, c := range claims {
			s.db.working.end(c.TriggerID, c.Fence)
		}
		claims = nil
	}
	err = s.db.writeOp(ctx, "claim triggers", func(w *write) error {
		forget() // it is tried again
		due, err := w.triggers.due(runID, limit)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := w.holders.register(); err != nil {
			return err
		}
		for _, g := range due {
			c, err := w.triggers.claim(g)
			if err != nil {
				return fmt.Errorf("claiming trigger %s: %w", g.ID, err)
			}
			claims = append(claims, c)
			s.db.working.begin(c.TriggerID, c.Fence)
		}
		return nil
	})
	if err != nil {
		forget()
	}
	return claims, err
}

// TriggerStarted implements Mailbox.
func (s mailbox) TriggerStarted(ctx context.Context, tok store.TriggerToken, itemKey string, next time.Duration) error {
	return s.db.writeOp(ctx, "record the start of the job of trigger "+tok.TriggerID, func(w *write) error {
		g, err := w.triggers.release(tok, claimEnd{next: next, started: true})
		if err != nil || itemKey == "" {
			return err
		}
		g.ItemKey = itemKey
		if err := w.tx.Exec("UPDATE triggers SET item_key = ? WHERE trigger_id = ?", itemKey, g.ID); err != nil {
			return err
		}
		if accepted, err := w.mail.openMailbox(g); err != nil || !accepted {
			return err
		}
		return w.mail.settleDelivered(g)
	})
}

// TriggerPending implements Mailbox.
func (s mailbox) TriggerPending(ctx context.Context, tok store.TriggerToken, next time.Duration) error {
	// If a power cut takes it back, the source is asked once more when the claim has ended.
	return s.db.writeRelaxed(ctx, "put back trigger "+tok.TriggerID, func(w *write) error {
		_, err := w.triggers.release(tok, claimEnd{next: next})
		return err
	})
}

// TriggerFailed implements Mailbox.
func (s mailbox) TriggerFailed(
	ctx context.Context, tok store.TriggerToken, next time.Duration, f store.TriggerFailure,
) error {
	return s.db.writeOp(ctx, "record the failure of trigger "+tok.TriggerID, func(w *write) error {
		_, err := w.triggers.release(tok, claimEnd{next: next, failure: &f})
		return err
	})
}

// CheckNow implements Mailbox.
func (s mailbox) CheckNow(ctx context.Context, runID string) error {
	where, of := "", []any{}
	if runID != "" {
		where, of = " AND run_id = ?2", []any{runID}
	}
	return s.db.writeOp(ctx, "make triggers due", func(w *write) error {
		args := append([]any{w.tx.now}, of...) // new ones, because a transaction may be tried again
		if err := w.tx.Exec(
			"UPDATE judge_batches SET due_at = ?1 WHERE due_at > ?1 AND state <> 'open' AND owner IS NULL"+where,
			args...); err != nil {
			return err
		}
		return w.tx.Exec(
			"UPDATE triggers SET due_at = ?1 WHERE state IN ('intended', 'starting', 'waiting') AND checked AND owner IS NULL AND (due_at IS NULL OR due_at > ?1)"+where,
			args...)
	})
}

// CheckTrigger implements Mailbox.
func (s mailbox) CheckTrigger(ctx context.Context, triggerID string) error {
	return s.db.writeOp(ctx, "ask at once for trigger "+triggerID, func(w *write) error {
		return w.tx.Exec(
			"UPDATE triggers SET due_at = ? WHERE trigger_id = ? AND state = 'waiting' AND owner IS NULL", w.tx.now, triggerID)
	})
}

// Deliver implements Mailbox.
func (s mailbox) Deliver(ctx context.Context, d store.Delivery) (receipt store.Receipt, err error) {
	if delivered[d.Status] == "" {
		return store.Receipt{}, fmt.Errorf("a delivery cannot be %q", d.Status)
	}
	err = s.db.writeOp(ctx, "deliver", func(w *write) error {
		receipt, err = w.mail.take(d)
		return err
	})
	if err != nil {
		return store.Receipt{}, err
	}
	return receipt, nil
}

// Cancel implements Mailbox.
func (s mailbox) Cancel(ctx context.Context, id string, keepJobsOf ...string) (cancelled int, err error) {
	err = s.db.writeOp(ctx, "cancel "+id, func(w *write) error {
		cancelled = 0
		var known bool
		if err := w.tx.Row([]any{&known},
			"SELECT EXISTS (SELECT 1 FROM runs WHERE run_id = ?1) OR EXISTS (SELECT 1 FROM rollouts WHERE rollout_id = ?1)",
			id); err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("run or rollout %s: %w", id, store.ErrNotFound)
		}
		cancelled, err = w.segments.cancelAll(id, keepJobsOf)
		return err
	})
	if err != nil {
		return 0, err
	}
	return cancelled, nil
}
