package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// Snapshot implements Reader.
func (s reader) Snapshot(ctx context.Context, runID string, f func(store.View) error) (err error) {
	defer func() { err = s.db.describe(err) }()
	conn, err := s.db.read.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	run, err := readRun(ctx, tx, runID)
	if err != nil {
		return err
	}
	return f(&sqliteView{ctx: ctx, tx: tx, run: run})
}

type sqliteView struct {
	ctx context.Context
	tx  *sql.Tx
	run store.Run
}

func (v *sqliteView) Run() store.Run { return v.run }

func (v *sqliteView) Evaluations(f func(store.Evaluation) error) error {
	rows, err := v.tx.QueryContext(v.ctx, "SELECT evaluation_id, data FROM evaluations WHERE run_id = ? ORDER BY ordinal", v.run.ID)
	if err != nil {
		return err
	}
	return eachEvaluation(rows, f)
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

func (v *sqliteView) Rescorings() ([]store.Rescoring, error) {
	rows, err := v.tx.QueryContext(v.ctx, selectRescorings, v.run.ID)
	if err != nil {
		return nil, err
	}
	return scanRescorings(rows)
}

func (v *sqliteView) RescoredEvaluations(number int, f func(store.Evaluation) error) error {
	rows, err := v.tx.QueryContext(v.ctx, "SELECT evaluation_id, data FROM rescored_evaluations WHERE run_id = ? AND number = ?", v.run.ID, number)
	if err != nil {
		return err
	}
	return eachEvaluation(rows, f)
}

// batch is how many rollouts are read before the rows that belong to them.
const batch = 256

// selectRolloutView is completed by what belongs to a rollout.
var selectRolloutView = "SELECT " + rolloutColumns + ", coalesce(s.number, 0), coalesce(s.due, 0), coalesce(s.unscored, '') FROM rollouts o LEFT JOIN rescored s USING (rollout_id)"

var selectTriggersOf = selectTrigger + "WHERE t.rollout_id = ? ORDER BY t.id"

func scanRolloutView(r scanner) (o store.RolloutView, err error) {
	o.Rollout, err = scanRollout(r, &o.Rescoring, &o.Due, &o.Unscored)
	return o, err
}

func (v *sqliteView) Rollouts(f func(store.RolloutView) error) error {
	parts, err := v.prepare(selectRolloutView+" WHERE o.run_id = ? AND o.ordinal >= ? ORDER BY o.ordinal LIMIT ?", selectSegments, selectTriggersOf, selectResults)
	if err != nil {
		return err
	}
	for from := 0; ; from += batch {
		rows, err := parts[0].QueryContext(v.ctx, v.run.ID, from, batch)
		if err != nil {
			return err
		}
		var rollouts []store.RolloutView
		if err := each(rows, func(r scanner) error {
			o, err := scanRolloutView(r)
			rollouts = append(rollouts, o)
			return err
		}); err != nil {
			return err
		}
		for _, o := range rollouts {
			if err := v.complete(&o, parts[1:]); err != nil {
				return err
			}
			if err := f(o); err != nil {
				return err
			}
		}
		if len(rollouts) < batch {
			return nil
		}
	}
}

func (v *sqliteView) Rollout(rolloutID string) (o store.RolloutView, err error) {
	parts, err := v.prepare(selectRolloutView+" WHERE o.run_id = ? AND o.rollout_id = ?", selectSegments, selectTriggersOf, selectResults)
	if err != nil {
		return o, err
	}
	o, err = scanRolloutView(parts[0].QueryRowContext(v.ctx, v.run.ID, rolloutID))
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("rollout %s: %w", rolloutID, store.ErrNotFound)
	}
	if err != nil {
		return o, err
	}
	return o, v.complete(&o, parts[1:])
}

func (v *sqliteView) prepare(queries ...string) ([]*sql.Stmt, error) {
	out := make([]*sql.Stmt, len(queries))
	for i, q := range queries {
		var err error
		if out[i], err = v.tx.PrepareContext(v.ctx, q); err != nil {
			return nil, err
		}
	}
	return out, nil // closed with the transaction
}

func (v *sqliteView) complete(o *store.RolloutView, parts []*sql.Stmt) error {
	if o.Segment == 0 {
		return nil
	}
	rows, err := parts[0].QueryContext(v.ctx, o.ID)
	if err != nil {
		return err
	}
	if o.Segments, err = scanSegments(o.ID, rows); err != nil {
		return err
	}
	if o.Suspensions+o.Scorings > 0 {
		if rows, err = parts[1].QueryContext(v.ctx, o.ID); err != nil {
			return err
		}
		if err := each(rows, func(r scanner) error {
			g, err := scanTrigger(r)
			o.Triggers = append(o.Triggers, g)
			return err
		}); err != nil {
			return err
		}
	}
	if o.State != eval.StateEvaluating && o.State != eval.StateScoring && !o.State.IsTerminal() {
		return nil
	}
	if rows, err = parts[2].QueryContext(v.ctx, o.ID); err != nil {
		return err
	}
	o.Results, err = scanResults(rows)
	return err
}

const selectResults = "SELECT evaluator_id, data, rescoring FROM results WHERE rollout_id = ? ORDER BY ordinal"

func scanResults(rows *sql.Rows) (out []store.Result, err error) {
	err = each(rows, func(r scanner) error {
		var res store.Result
		err := r.Scan(&res.EvaluatorID, (*[]byte)(&res.Data), &res.Rescoring)
		out = append(out, res)
		return err
	})
	return out, err
}
