package rules

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// rescorings implements store.Rescorings.
type rescorings struct{ db *db }

// BeginRescoring implements Rescorings.
func (s rescorings) BeginRescoring(ctx context.Context, r store.NewRescoring) (number int, err error) {
	err = s.db.writeOp(ctx, "begin a rescoring of run "+r.RunID, func(w *write) error {
		number, err = w.rescored.begin(r)
		return err
	})
	return number, err
}

// Rescore implements Rescorings.
func (s rescorings) Rescore(ctx context.Context, runID string, number int, rollouts ...store.Rescored) error {
	return s.db.writeOp(ctx, "rescore run "+runID, func(w *write) error {
		scored, unscored := 0, 0
		for _, r := range rollouts {
			was, err := w.rescored.replace(number, r)
			switch {
			case err != nil:
				return fmt.Errorf("rollout %s: %w", r.RolloutID, err)
			case was && r.Unscored == "":
				scored++
			case was:
				unscored++
			}
		}
		if scored+unscored == 0 {
			return nil
		}
		return w.rescored.count(runID, number, scored, unscored)
	})
}

// Rescorings implements Rescorings.
func (s rescorings) Rescorings(ctx context.Context, runID string) ([]store.Rescoring, error) {
	rows, err := s.db.read.QueryContext(ctx, selectRescorings, runID)
	if err != nil {
		return nil, s.db.describe(err, "read the rescorings of run", runID)
	}
	out, err := scanRescorings(rows)
	return out, s.db.describe(err, "read the rescorings of run", runID)
}

const selectRescorings = "SELECT number, data, begun_at, ended_at, due, scored, unscored FROM rescorings WHERE run_id = ? ORDER BY number"

func scanRescorings(rows *sql.Rows) (out []store.Rescoring, err error) {
	err = each(rows, func(r scanner) error {
		var one store.Rescoring
		var begun, ended sql.NullInt64
		err := r.Scan(&one.Number, (*[]byte)(&one.Data), &begun, &ended, &one.Due, &one.Scored, &one.Unscored)
		one.BegunAt, one.EndedAt = fromMicros(begun), fromMicros(ended)
		out = append(out, one)
		return err
	})
	return out, err
}

const selectDue = "SELECT o.rollout_id FROM rollouts o JOIN rescored s USING (rollout_id) WHERE o.run_id = ? AND s.due = ? ORDER BY o.ordinal"

// DueRollouts implements Rescorings.
func (s rescorings) DueRollouts(ctx context.Context, runID string, number int) (ids []string, err error) {
	defer func() { err = s.db.describe(err, "find what is to be rescored of run", runID) }()
	rows, err := s.db.read.QueryContext(ctx, selectDue, runID, number)
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

// These select rows of some rollouts, whose ids are a JSON array; i.key is the place of one in it.
const (
	selectRescorables = "SELECT " + rolloutColumns +
		`, i.key, coalesce(c.data, e.data), coalesce(s.number, 0), coalesce(s.due, 0), coalesce(s.unscored, '')
	FROM json_each(?1) i CROSS JOIN rollouts o ON o.rollout_id = i.value JOIN evaluations e ON e.run_id = o.run_id AND e.ordinal = o.evaluation LEFT JOIN rescored s USING (rollout_id)
	LEFT JOIN rescored_evaluations c ON c.run_id = o.run_id AND c.number = ?2 AND c.evaluation_id = o.evaluation_id`
	selectTheirSegments = "SELECT " + segmentColumns +
		", i.key FROM json_each(?1) i CROSS JOIN segments g ON g.rollout_id = i.value ORDER BY g.segment, g.attempt"
	selectTheirResults = "SELECT " + resultColumns +
		", i.key FROM json_each(?1) i CROSS JOIN results r ON r.rollout_id = i.value ORDER BY r.ordinal"
)

// Rescorables implements Rescorings.
func (s rescorings) Rescorables(
	ctx context.Context, number int, rolloutIDs ...string,
) (out []store.Rescorable, err error) {
	defer func() { err = s.db.describe(err, "read what is to be rescored") }()
	ids, err := json.Marshal(rolloutIDs)
	if err != nil {
		return nil, err
	}
	out = make([]store.Rescorable, len(rolloutIDs))
	var i int
	if err := s.each(ctx, func(r scanner) (err error) {
		var one store.Rescorable
		one.Rollout, err = scanRollout(r, &i, (*[]byte)(&one.Evaluation), &one.Rescoring, &one.Due, &one.Unscored)
		out[i] = one
		return err
	}, selectRescorables, string(ids), number); err != nil {
		return nil, err
	}
	for i, id := range rolloutIDs {
		if out[i].ID == "" {
			return nil, fmt.Errorf("rollout %s: %w", id, store.ErrNotFound)
		}
	}
	if err := s.each(ctx, func(r scanner) error {
		g, err := scanSegment(r, &i)
		g.RolloutID = rolloutIDs[i]
		out[i].Segments = append(out[i].Segments, g)
		return err
	}, selectTheirSegments, string(ids)); err != nil {
		return nil, err
	}
	return out, s.each(ctx, func(r scanner) error {
		res, err := scanResult(r, &i)
		out[i].Results = append(out[i].Results, res)
		return err
	}, selectTheirResults, string(ids))
}

func (s rescorings) each(ctx context.Context, scan func(scanner) error, query string, args ...any) error {
	stmt, err := s.db.query(ctx, query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	return each(rows, scan)
}

// rescoredRows are the rows of rescorings, and of the rollouts that they score again.
type rescoredRows struct{ tx *Tx }

func (rows rescoredRows) begin(r store.NewRescoring) (number int, err error) {
	var last int
	if err := rows.tx.Row([]any{&last},
		"SELECT coalesce((SELECT max(number) FROM rescorings WHERE run_id = r.run_id), 0) FROM runs r WHERE r.run_id = ?",
		r.RunID); err != nil {
		return 0, fmt.Errorf("run %s: %w", r.RunID, err)
	}
	if last != r.After {
		return 0, fmt.Errorf("run %s is scored again by another process: %w", r.RunID, store.ErrFenced)
	}
	number = last + 1
	if err := rows.giveUp(r.RunID); err != nil {
		return 0, err
	}
	for _, e := range r.Evaluations {
		if err := rows.tx.Exec("INSERT INTO rescored_evaluations (run_id, number, evaluation_id, data) VALUES (?, ?, ?, ?)",
			r.RunID, number, e.ID, document(e.Data)); err != nil {
			return 0, fmt.Errorf("evaluation %s: %w", e.ID, err)
		}
	}
	due, err := rows.mark(r, number)
	if err != nil {
		return 0, err
	}
	if err := rows.tx.Exec("INSERT INTO rescorings (run_id, number, data, begun_at, due) VALUES (?, ?, ?, ?, ?)",
		r.RunID, number, document(r.Data), rows.tx.now, due); err != nil {
		return 0, err
	}
	return number, rows.count(r.RunID, number, 0, 0)
}

// giveUp ends a rescoring that has not ended.
func (rows rescoredRows) giveUp(runID string) error {
	n, err := rows.tx.change(
		"UPDATE rescorings SET ended_at = ? WHERE run_id = ? AND ended_at IS NULL", rows.tx.now, runID)
	if err != nil || n == 0 {
		return err
	}
	return rows.tx.Exec(
		"UPDATE rescored SET due = NULL WHERE due IS NOT NULL AND rollout_id IN (SELECT rollout_id FROM rollouts WHERE run_id = ?)",
		runID)
}

// mark marks the rollouts that are due for a rescoring and returns how many they are.
func (rows rescoredRows) mark(r store.NewRescoring, number int) (due int, err error) {
	const mark = "INSERT INTO rescored (rollout_id, number, due) SELECT rollout_id, 0, ? FROM rollouts WHERE run_id = ? AND state = ?"
	const again = " ON CONFLICT (rollout_id) DO UPDATE SET due = excluded.due"
	if r.Rollouts == nil {
		n, err := rows.tx.change(mark+again, number, r.RunID, string(eval.StateCompleted))
		return int(n), err
	}
	for _, id := range r.Rollouts {
		n, err := rows.tx.change(mark+" AND rollout_id = ?"+again, number, r.RunID, string(eval.StateCompleted), id)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, fmt.Errorf("rollout %s is no completed rollout of run %s: %w", id, r.RunID, store.ErrNotFound)
		}
		due++
	}
	return due, nil
}

// replace replaces the results of a rollout, or notes why they stay, and reports whether the
// rollout was due.
func (rows rescoredRows) replace(number int, r store.Rescored) (due bool, err error) {
	if r.Unscored != "" {
		n, err := rows.tx.change(
			"UPDATE rescored SET due = NULL, unscored = ? WHERE rollout_id = ? AND due = ?", r.Unscored, r.RolloutID, number)
		return n > 0, err
	}
	n, err := rows.tx.change(
		"UPDATE rescored SET number = ?1, due = NULL, unscored = '' WHERE rollout_id = ?2 AND due = ?1", number, r.RolloutID)
	if err != nil || n == 0 {
		return false, err
	}
	if err := rows.tx.Exec("DELETE FROM results WHERE rollout_id = ?", r.RolloutID); err != nil {
		return false, err
	}
	for i, one := range r.Results {
		if err := rows.tx.Exec(
			"INSERT INTO results (rollout_id, evaluator_id, ordinal, data, rescoring) VALUES (?, ?, ?, ?, ?)",
			r.RolloutID, one.EvaluatorID, i, document(one.Data), one.Rescoring); err != nil {
			return false, fmt.Errorf("evaluator %s: %w", one.EvaluatorID, err)
		}
	}
	return true, rows.tx.Exec("UPDATE rollouts SET score = ? WHERE rollout_id = ?", r.Score, r.RolloutID)
}

// count counts rollouts that are not due any more. With the last one the rescoring ends.
func (rows rescoredRows) count(runID string, number, scored, unscored int) error {
	var left int
	ended := struct {
		Number    int `json:"number"`
		Scored    int `json:"scored"`
		NotScored int `json:"notScored"`
	}{Number: number}
	if err := rows.tx.Row([]any{&left, &ended.Scored, &ended.NotScored},
		`UPDATE rescorings SET scored = scored + ?1, unscored = unscored + ?2, due = due - ?1 - ?2
		WHERE run_id = ?3 AND number = ?4 RETURNING due, scored, unscored`, scored, unscored, runID, number); err != nil {
		return err
	}
	if left > 0 {
		return rows.tx.touch(runID)
	}
	if err := rows.tx.Exec(
		"UPDATE rescorings SET ended_at = ? WHERE run_id = ? AND number = ?", rows.tx.now, runID, number); err != nil {
		return err
	}
	return rows.tx.event(runID, "", store.RunRescored, ended)
}
