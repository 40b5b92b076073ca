package rules

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// Snapshot implements Reader.
func (s reader) Snapshot(ctx context.Context, runID string, f func(store.View) error) (err error) {
	defer func() { err = s.db.describe(err, "read run", runID) }()
	var own error // of f, which says nothing of the database
	err = s.db.again(ctx, func() error {
		own = nil
		tx, err := s.db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // nothing was written
		run, err := readRun(ctx, tx, runID)
		if err != nil {
			return err
		}
		v := &view{ctx: ctx, tx: tx, run: run}
		own = f(v)
		if own == nil || v.failure == nil {
			return nil
		}
		return v.failure
	})
	return cmp.Or(own, err)
}

// view is a transaction that reads one run.
type view struct {
	ctx context.Context
	tx  *sql.Tx
	run store.Run
	// evaluation reads one of them; nil before the first time.
	evaluation *sql.Stmt
	// failure is the last error of the database.
	failure error
}

// calling makes a function of those that the view calls, and of what reads rows for it: an error of
// the function is not one of the database.
func calling[T any](v *view, f func(T) error, read func(f func(T) error) error) error {
	var own error
	err := read(func(one T) error {
		own = f(one)
		return own
	})
	if own == nil && err != nil {
		v.failure = err
	}
	return err
}

// noted notes an error of the database.
func (v *view) noted(err error) error {
	if err != nil {
		v.failure = err
	}
	return err
}

func (v *view) Run() store.Run { return v.run }

func (v *view) Evaluations(f func(store.Evaluation) error) error {
	return v.evaluations(f, "SELECT evaluation_id, data FROM evaluations WHERE run_id = ? ORDER BY ordinal", v.run.ID)
}

func (v *view) evaluations(f func(store.Evaluation) error, query string, args ...any) error {
	return calling(v, f, func(f func(store.Evaluation) error) error {
		rows, err := v.tx.QueryContext(v.ctx, query, args...)
		if err != nil {
			return err
		}
		return eachEvaluation(rows, f)
	})
}

func eachEvaluation(rows *sql.Rows, f func(store.Evaluation) error) error {
	return each(rows, func(r scanner) error {
		var e store.Evaluation
		if err := r.Scan(&e.ID, (*[]byte)(&e.Data)); err != nil {
			return err
		}
		return f(e)
	})
}

func (v *view) Rescorings() ([]store.Rescoring, error) {
	rows, err := v.tx.QueryContext(v.ctx, selectRescorings, v.run.ID)
	if err != nil {
		return nil, v.noted(err)
	}
	all, err := scanRescorings(rows)
	return all, v.noted(err)
}

func (v *view) RescoredEvaluations(number int, f func(store.Evaluation) error) error {
	return v.evaluations(f,
		"SELECT evaluation_id, data FROM rescored_evaluations WHERE run_id = ? AND number = ?", v.run.ID, number)
}

func (v *view) Evaluation(rolloutID string, rescoring int) (data json.RawMessage, err error) {
	if v.evaluation == nil {
		if v.evaluation, err = v.tx.PrepareContext(v.ctx, viewAsked); err != nil {
			return nil, v.noted(err)
		}
	}
	err = v.evaluation.QueryRowContext(v.ctx, rescoring, rolloutID).Scan((*[]byte)(&data))
	return data, v.noted(err)
}

// A view reads rows in the order of rollouts, and none of these queries needs to sort for that.
// ofRun or ofRollout stands between the two parts of each.
const (
	viewRollouts = "SELECT " + rolloutColumns +
		`, o.ordinal, coalesce(c.data, e.data), coalesce(s.number, 0), coalesce(s.due, 0), coalesce(s.unscored, '')
	FROM rollouts o JOIN evaluations e ON e.run_id = o.run_id AND e.ordinal = o.evaluation LEFT JOIN rescored s USING (rollout_id)
	LEFT JOIN rescored_evaluations c ON c.run_id = o.run_id AND c.number = s.number AND c.evaluation_id = o.evaluation_id `
	viewSegments = "SELECT " + segmentColumns +
		", g.rollout_id, o.ordinal FROM rollouts o CROSS JOIN segments g USING (rollout_id) "
	viewTriggers = "SELECT " + triggerColumns + ", o.ordinal FROM rollouts o CROSS JOIN triggers t USING (rollout_id) "
	viewResults  = "SELECT " + resultColumns + ", o.ordinal FROM rollouts o CROSS JOIN results r USING (rollout_id) "

	ofRun     = "WHERE o.run_id = ? ORDER BY o.ordinal"
	ofRollout = "WHERE o.run_id = ? AND o.rollout_id = ? ORDER BY o.ordinal"

	orderSegments, orderTriggers, orderResults = ", g.segment, g.attempt", ", t.id", ", r.ordinal"

	viewAsked = `SELECT coalesce(c.data, e.data) FROM rollouts o JOIN evaluations e ON e.run_id = o.run_id AND e.ordinal = o.evaluation
	LEFT JOIN rescored_evaluations c ON c.run_id = o.run_id AND c.number = ? AND c.evaluation_id = o.evaluation_id WHERE o.rollout_id = ?`
)

// Rollouts reads all rows once, in the order of their rollouts, so that memory and the number of
// queries do not grow with the run.
func (v *view) Rollouts(f func(store.RolloutView) error) error {
	return calling(v, f, func(f func(store.RolloutView) error) error { return v.rollouts(f, ofRun, v.run.ID) })
}

func (v *view) Rollout(rolloutID string) (out store.RolloutView, err error) {
	err = v.rollouts(func(o store.RolloutView) error {
		out = o
		return nil
	}, ofRollout, v.run.ID, rolloutID)
	if v.noted(err) == nil && out.ID == "" {
		err = fmt.Errorf("rollout %s: %w", rolloutID, store.ErrNotFound)
	}
	return out, err
}

func (v *view) rollouts(f func(store.RolloutView) error, of string, args ...any) error {
	rows, err := v.tx.QueryContext(v.ctx, viewRollouts+of, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	segments, err := follow(v, func(r scanner, ordinal *int) (g store.Segment, err error) {
		var rolloutID string
		g, err = scanSegment(r, &rolloutID, ordinal)
		g.RolloutID = rolloutID
		return g, err
	}, viewSegments+of+orderSegments, args...)
	if err != nil {
		return err
	}
	defer segments.close()
	triggers, err := follow(v, func(r scanner, ordinal *int) (store.Trigger, error) {
		return scanTrigger(r, ordinal)
	}, viewTriggers+of+orderTriggers, args...)
	if err != nil {
		return err
	}
	defer triggers.close()
	results, err := follow(v, func(r scanner, ordinal *int) (store.Result, error) {
		return scanResult(r, ordinal)
	}, viewResults+of+orderResults, args...)
	if err != nil {
		return err
	}
	defer results.close()
	return each(rows, func(r scanner) (err error) {
		var o store.RolloutView
		var ordinal int
		if o.Rollout, err = scanRollout(r, &ordinal,
			(*[]byte)(&o.Evaluation), &o.Rescoring, &o.Due, &o.Unscored); err != nil {
			return err
		}
		if o.Segments, err = segments.of(ordinal); err != nil {
			return err
		}
		if o.Triggers, err = triggers.of(ordinal); err != nil {
			return err
		}
		if o.Results, err = results.of(ordinal); err != nil {
			return err
		}
		if o.State != eval.StateEvaluating && o.State != eval.StateScoring && !o.State.IsTerminal() {
			o.Results = nil
		}
		return f(o)
	})
}

// followers are rows that belong to rollouts, read in the order of these.
type followers[T any] struct {
	rows *sql.Rows
	scan func(r scanner, ordinal *int) (T, error)
	// next is the row that was read last, and ordinal the rollout that it belongs to.
	next    T
	ordinal int
	ended   bool
}

func follow[T any](
	v *view, scan func(scanner, *int) (T, error), query string, args ...any,
) (*followers[T], error) {
	rows, err := v.tx.QueryContext(v.ctx, query, args...) //nolint:rowserrcheck // of checks it at the last row
	if err != nil {
		return nil, err
	}
	return &followers[T]{rows: rows, scan: scan, ordinal: -1}, nil
}

// of returns the rows of the rollout with this ordinal, which is higher than at the call before.
func (fs *followers[T]) of(ordinal int) (out []T, err error) {
	for {
		if !fs.ended && fs.ordinal == ordinal {
			out = append(out, fs.next)
		}
		if fs.ended || fs.ordinal > ordinal {
			return out, nil
		}
		if !fs.rows.Next() {
			fs.ended = true
			return out, fs.rows.Err()
		}
		if fs.next, err = fs.scan(fs.rows, &fs.ordinal); err != nil {
			return nil, err
		}
	}
}

func (fs *followers[T]) close() { _ = fs.rows.Close() } // an error of reading has been returned by of

const resultColumns = "r.evaluator_id, r.data, r.rescoring"

const selectResults = "SELECT " + resultColumns + " FROM results r WHERE r.rollout_id = ? ORDER BY r.ordinal"

func scanResults(rows *sql.Rows) (out []store.Result, err error) {
	err = each(rows, func(r scanner) error {
		res, err := scanResult(r)
		out = append(out, res)
		return err
	})
	return out, err
}

func scanResult(r scanner, more ...any) (res store.Result, err error) {
	err = r.Scan(append([]any{&res.EvaluatorID, (*[]byte)(&res.Data), &res.Rescoring}, more...)...)
	return res, err
}
