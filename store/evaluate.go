package store

import (
	"context"
	"fmt"
)

// RecordResult implements Store.
func (s *SQLite) RecordResult(ctx context.Context, tok Token, r Result) error {
	return s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, StateEvaluating)
		if err != nil {
			return err
		}
		if err := t.exec("INSERT INTO results VALUES (?1, ?2, (SELECT count(*) FROM results WHERE rollout_id = ?1), ?3)",
			tok.RolloutID, r.EvaluatorID, document(r.Data)); err != nil {
			return fmt.Errorf("the result of evaluator %s of rollout %s: %w", r.EvaluatorID, tok.RolloutID, err)
		}
		return t.touch(o.RunID)
	})
}

// Finish implements Store.
func (s *SQLite) Finish(ctx context.Context, tok Token, score *float64) error {
	return s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, StateEvaluating)
		if err != nil {
			return err
		}
		t.wake = true
		if err := t.event(o.RunID, o.ID, RolloutEvaluated, map[string]any{"score": score}); err != nil {
			return err
		}
		return t.end(o.RunID, o.ID, StateCompleted, nil, score)
	})
}
