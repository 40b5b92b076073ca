package sqlite

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// Cancel implements Store.
func (s *SQLite) Cancel(ctx context.Context, id string, keepJobsOf ...string) (cancelled int, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		cancelled = 0
		var known bool
		if err := t.row([]any{&known}, "SELECT EXISTS (SELECT 1 FROM runs WHERE run_id = ?1) OR EXISTS (SELECT 1 FROM rollouts WHERE rollout_id = ?1)", id); err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("run or rollout %s: %w", id, store.ErrNotFound)
		}
		type rollout struct {
			runID, id string
			running   bool
		}
		var open []rollout
		if err := t.rows(func(r scanner) error {
			var o rollout
			err := r.Scan(&o.runID, &o.id, &o.running)
			open = append(open, o)
			return err
		}, `SELECT run_id, rollout_id, state = 'running' FROM rollouts WHERE (run_id = ?1 OR rollout_id = ?1) AND state NOT IN ('completed', 'faulted', 'cancelled')
			ORDER BY ordinal`, id); err != nil {
			return err
		}
		for _, o := range open {
			if err := t.keepJobs(o.id, keepJobsOf); err != nil {
				return err
			}
			if o.running {
				// Only whoever holds it, or takes it over, knows when its agent has ended.
				err = t.exec("UPDATE rollouts SET cancel = 1 WHERE rollout_id = ?", o.id)
			} else {
				err = t.cancel(o.runID, o.id)
			}
			if err != nil {
				return err
			}
		}
		cancelled = len(open)
		t.wake = cancelled > 0
		return nil
	})
	if err != nil {
		return 0, err
	}
	return cancelled, nil
}

// keepJobs sees to it that the jobs of some sources are not cancelled with the rollout that waits for them.
func (t *tx) keepJobs(rolloutID string, sources []string) error {
	for _, source := range sources {
		if err := t.exec("UPDATE triggers SET checked = 0 WHERE rollout_id = ? AND source = ? AND state IN ('intended', 'starting', 'waiting')", rolloutID, source); err != nil {
			return err
		}
	}
	return nil
}

// cancel ends a rollout and what it waits for.
func (t *tx) cancel(runID, rolloutID string) error {
	open, err := t.triggers("WHERE t.rollout_id = ? AND t.state IN ('intended', 'starting', 'waiting')", rolloutID)
	if err != nil {
		return err
	}
	for _, g := range open {
		if err := t.giveUp(g.ID, store.TriggerCancelled); err != nil {
			return err
		}
	}
	return t.end(runID, rolloutID, eval.StateCancelled, nil, nil)
}
