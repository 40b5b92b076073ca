package sqlite

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/internal/store"
)

// RolloutIDs implements Store.
func (s *SQLite) RolloutIDs(ctx context.Context, runID string) (ids []string, err error) {
	defer func() { err = s.describe(err) }()
	rows, err := s.read.QueryContext(ctx, "SELECT rollout_id FROM rollouts WHERE run_id = ? ORDER BY ordinal", runID)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// Remove implements Store.
func (s *SQLite) Remove(ctx context.Context, runID string) error {
	return s.writeOp(ctx, func(t *tx) error {
		var final bool
		if err := t.row([]any{&final}, "SELECT finished_at IS NOT NULL FROM runs WHERE run_id = ?", runID); err != nil {
			return fmt.Errorf("run %s: %w", runID, err)
		}
		if !final {
			return fmt.Errorf("run %s: %w", runID, store.ErrNotFinal)
		}
		const rollouts = " WHERE rollout_id IN (SELECT rollout_id FROM rollouts WHERE run_id = ?)"
		for _, q := range []string{
			"DELETE FROM deliveries WHERE trigger_id IN (SELECT trigger_id FROM triggers" + rollouts + ")",
			"DELETE FROM triggers" + rollouts, "DELETE FROM calls" + rollouts, "DELETE FROM results" + rollouts, "DELETE FROM segments" + rollouts,
			"DELETE FROM rollouts WHERE run_id = ?", "DELETE FROM evaluations WHERE run_id = ?", "DELETE FROM events WHERE run_id = ?",
			"DELETE FROM plans WHERE run_id = ?", "DELETE FROM runs WHERE run_id = ?",
		} {
			if err := t.exec(q, runID); err != nil {
				return err
			}
		}
		return nil
	})
}
