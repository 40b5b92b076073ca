package rules

import (
	"context"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// runs makes and removes runs.
type runs struct{ db *db }

// CreateRun implements Runs.
func (s runs) CreateRun(ctx context.Context, p store.Plan) (created bool, err error) {
	err = s.db.writeOp(ctx, "create run "+p.RunID, func(w *write) error {
		created = false
		var n int
		if err := w.tx.Row([]any{&n}, "SELECT count(*) FROM runs WHERE run_id = ?", p.RunID); err != nil || n > 0 {
			return err
		}
		created, w.tx.wake = true, true
		if p.Job != nil {
			if err := w.jobs.add(p.RunID, *p.Job); err != nil {
				return err
			}
		}
		if err := w.outbox.addTargets(p.RunID, p.Notify, nil); err != nil {
			return err
		}
		if err := w.rollouts.create(p); err != nil || p.Job == nil {
			return err
		}
		return w.endDueJob(p.RunID, nil)
	})
	return created && err == nil, err
}

// Remove implements Runs.
func (s runs) Remove(ctx context.Context, runID string) error {
	return s.db.writeOp(ctx, "remove run "+runID, func(w *write) error {
		var final bool
		if err := w.tx.Row([]any{&final}, "SELECT finished_at IS NOT NULL FROM runs WHERE run_id = ?", runID); err != nil {
			return fmt.Errorf("run %s: %w", runID, err)
		}
		if !final {
			return fmt.Errorf("run %s: %w", runID, store.ErrNotFinal)
		}
		w.tx.changed[runID] = true
		const rollouts = " WHERE rollout_id IN (SELECT rollout_id FROM rollouts WHERE run_id = ?)"
		for _, q := range []string{
			"DELETE FROM deliveries WHERE trigger_id IN (SELECT trigger_id FROM triggers" + rollouts + ")",
			"DELETE FROM judge_requests WHERE trigger_id IN (SELECT trigger_id FROM triggers" + rollouts + ")",
			"DELETE FROM judge_batches WHERE run_id = ?",
			"DELETE FROM triggers" + rollouts, "DELETE FROM calls" + rollouts, "DELETE FROM results" + rollouts,
			"DELETE FROM rescored" + rollouts, "DELETE FROM segments" + rollouts,
			"DELETE FROM kept" + rollouts, "DELETE FROM kept_blocks" + rollouts,
			"DELETE FROM kept_blocks WHERE rollout_id = ?", // what its plan needs
			"DELETE FROM rollouts WHERE run_id = ?",
			"DELETE FROM evaluations WHERE run_id = ?", "DELETE FROM events WHERE run_id = ?",
			"DELETE FROM rescorings WHERE run_id = ?", "DELETE FROM rescored_evaluations WHERE run_id = ?",
			"DELETE FROM plans WHERE run_id = ?", "DELETE FROM runs WHERE run_id = ?",
			"DELETE FROM notifications WHERE run_id = ?", "DELETE FROM notify_targets WHERE run_id = ?",
			"DELETE FROM job_events WHERE run_id = ?", "DELETE FROM jobs WHERE run_id = ?",
		} {
			if err := w.tx.Exec(q, runID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (rows rolloutRows) create(p store.Plan) error {
	if err := rows.tx.Exec(
		`INSERT INTO runs (run_id, name, evaluation_set_id, evaluation_set_name, retry_of, created_at, open, priority)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		p.RunID, p.Name, p.EvaluationSetID, p.EvaluationSetName, p.RetryOf, rows.tx.now, len(p.Rollouts), p.Priority); err != nil {
		return err
	}
	if err := rows.tx.Exec("INSERT INTO plans (run_id, data) VALUES (?, ?)", p.RunID, document(p.Data)); err != nil {
		return err
	}
	if err := keptRows(rows).need(p.RunID, p.Blocks); err != nil {
		return err
	}
	for i, e := range p.Evaluations {
		if err := rows.tx.Exec("INSERT INTO evaluations (run_id, ordinal, evaluation_id, data) VALUES (?, ?, ?, ?)",
			p.RunID, i, e.ID, document(e.Data)); err != nil {
			return err
		}
	}
	if err := rows.tx.event(p.RunID, "", store.RunCreated, map[string]any{
		"name": p.Name, "evaluationSetId": p.EvaluationSetID, "evaluationSetName": p.EvaluationSetName,
		"total": len(p.Rollouts),
	}); err != nil {
		return err
	}
	for i, r := range p.Rollouts {
		if r.Evaluation < 0 || r.Evaluation >= len(p.Evaluations) {
			return fmt.Errorf("planning %s: the plan has no evaluation %d", r.EvaluationName, r.Evaluation)
		}
		if err := rows.tx.Exec(
			`INSERT INTO rollouts (rollout_id, run_id, ordinal, evaluation, evaluation_id, evaluation_name, agent, epoch,
				resume_all, accepts_faults, state, state_since, runnable_at, created_at, tags)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?)`,
			r.ID, p.RunID, i, r.Evaluation, p.Evaluations[r.Evaluation].ID, r.EvaluationName, r.Agent, r.Epoch, r.All,
			r.AcceptsFaults, rows.tx.now, rows.tx.now, rows.tx.now, store.TagList(r.Tags)); err != nil {
			return fmt.Errorf("planning %s: %w", r.EvaluationName, err)
		}
		if r.Fault != nil {
			if err := rows.end(p.RunID, r.ID, eval.StateFaulted, r.Fault, nil); err != nil {
				return err
			}
		}
	}
	if len(p.Rollouts) == 0 {
		return rows.finishRun(p.RunID)
	}
	return nil
}
