package sqlite

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// RecordResult implements Store.
func (s *SQLite) RecordResult(ctx context.Context, tok store.Token, r store.Result) error {
	return s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, eval.StateEvaluating)
		if err != nil {
			return err
		}
		if err := t.addResult(tok.RolloutID, r); err != nil {
			return err
		}
		return t.touch(o.RunID)
	})
}

func (t *tx) addResult(rolloutID string, r store.Result) error {
	err := t.exec("INSERT INTO results (rollout_id, evaluator_id, ordinal, data) VALUES (?1, ?2, (SELECT count(*) FROM results WHERE rollout_id = ?1), ?3)", rolloutID, r.EvaluatorID, document(r.Data))
	if err != nil {
		return fmt.Errorf("the result of evaluator %s of rollout %s: %w", r.EvaluatorID, rolloutID, err)
	}
	return nil
}

// Finish implements Store.
func (s *SQLite) Finish(ctx context.Context, tok store.Token, score *float64, last ...store.Result) error {
	return s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, eval.StateEvaluating)
		if err != nil {
			return err
		}
		t.wake = true
		for _, r := range last {
			if err := t.addResult(o.ID, r); err != nil {
				return err
			}
		}
		if err := t.event(o.RunID, o.ID, store.RolloutEvaluated, map[string]any{"score": score}); err != nil {
			return err
		}
		return t.end(o.RunID, o.ID, eval.StateCompleted, nil, score)
	})
}

// FinishFaulted implements Store.
func (s *SQLite) FinishFaulted(ctx context.Context, tok store.Token, fault fault.Fault) error {
	return s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, eval.StateEvaluating)
		if err != nil {
			return err
		}
		t.wake = true
		return t.end(o.RunID, o.ID, eval.StateFaulted, &fault, nil)
	})
}
