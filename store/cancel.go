package store

import (
	"context"
	"fmt"
)

// Cancel implements Store.
func (s *SQLite) Cancel(ctx context.Context, id string) (cancelled int, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		cancelled = 0
		t.wake = true
		var known int
		if err := t.row([]any{&known}, "SELECT (SELECT count(*) FROM runs WHERE run_id = ?1) + (SELECT count(*) FROM rollouts WHERE rollout_id = ?1)", id); err != nil {
			return err
		}
		if known == 0 {
			return fmt.Errorf("run or rollout %s: %w", id, ErrNotFound)
		}
		held, free := []string{}, []string{}
		if err := t.rows(func(r scanner) error {
			var rollout string
			var owned bool
			err := r.Scan(&rollout, &owned)
			if owned {
				held = append(held, rollout)
			} else {
				free = append(free, rollout)
			}
			return err
		}, "SELECT rollout_id, owner IS NOT NULL FROM rollouts WHERE (run_id = ?1 OR rollout_id = ?1) AND state NOT IN ('completed', 'faulted', 'cancelled')", id); err != nil {
			return err
		}
		for _, rollout := range held {
			if err := t.exec("UPDATE rollouts SET cancel = 1 WHERE rollout_id = ?", rollout); err != nil {
				return err
			}
		}
		for _, rollout := range free {
			if err := t.cancelTriggers(rollout); err != nil {
				return err
			}
			if err := t.end(rollout, StateCancelled, nil, nil); err != nil {
				return err
			}
		}
		cancelled = len(held) + len(free)
		return nil
	})
	return cancelled, err
}

func (t *tx) cancelTriggers(rolloutID string) error {
	open, err := t.triggers("WHERE t.rollout_id = ? AND t.state IN ('intended', 'starting', 'waiting')", rolloutID)
	if err != nil {
		return err
	}
	for _, g := range open {
		if err := t.giveUp(g.ID, TriggerCancelled); err != nil {
			return err
		}
	}
	return nil
}
