package rules

import (
	"context"
	"database/sql"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// standings implements store.Standings.
type standings struct{ db *db }

const (
	selectHeld    = "SELECT state, owner = ?2, count(*) FROM rollouts WHERE owner IS NOT NULL AND (?1 = '' OR run_id = ?1) GROUP BY 1, 2"
	fromOpen      = " FROM triggers WHERE state IN ('intended', 'starting', 'waiting')"
	fromOpenOfRun = fromOpen + " AND run_id = ?1" // apart, because each has an index of its own
	countWaiting  = "SELECT count(DISTINCT run_id)"
	countOpen     = "SELECT count(*)" + fromOpen + " AND type = ? AND source = ?"
	countScores   = "SELECT state, score >= ?2, count(*) FROM rollouts WHERE run_id = ?1 GROUP BY 1, 2"
)

// selectWaiting goes before fromOpen or fromOpenOfRun. A trigger that only another machine can ask
// for has no next check.
var selectWaiting = "SELECT type, count(*), min(CASE WHEN NOT " + foreign("", "?2", "?3") + " THEN next_check END)"

// Standing implements Standings.
func (s standings) Standing(ctx context.Context, runID string) (out store.Standing, err error) {
	defer func() { err = s.db.describe(err, "read how runs stand") }()
	rows, err := s.db.read.QueryContext(ctx, selectHeld, runID, s.db.holder)
	if err != nil {
		return out, err
	}
	if err := each(rows, func(r scanner) error {
		var state eval.State
		var own bool
		var n int
		err := r.Scan(&state, &own, &n)
		switch {
		case state != eval.StateRunning:
			out.Evaluating += n
		case own:
			out.Own = n
			fallthrough
		default:
			out.Running += n
		}
		return err
	}); err != nil {
		return out, err
	}
	from, args := fromOpen, []any{}
	if runID != "" {
		from, args = fromOpenOfRun, []any{runID}
	}
	if err := s.db.read.QueryRowContext(ctx, countWaiting+from, args...).Scan(&out.Runs); err != nil {
		return out, err
	}
	if rows, err = s.db.read.QueryContext(ctx, selectWaiting+from+" GROUP BY type",
		runID, s.db.machine.Name, s.db.machine.BootID); err != nil {
		return out, err
	}
	out.Waiting = map[string]int{}
	return out, each(rows, func(r scanner) error {
		var typ string
		var n int
		var next sql.NullInt64
		if err := r.Scan(&typ, &n, &next); err != nil {
			return err
		}
		out.Waiting[typ] = n
		if at := time.UnixMicro(next.Int64).UTC(); next.Valid && (out.NextCheck.IsZero() || at.Before(out.NextCheck)) {
			out.NextCheck = at
		}
		return nil
	})
}

// CountOpen implements Standings.
func (s standings) CountOpen(ctx context.Context, typ, source string) (n int, err error) {
	err = s.db.read.QueryRowContext(ctx, countOpen, typ, source).Scan(&n)
	return n, s.db.describe(err, "count the open triggers")
}

// Tally implements Standings.
func (s standings) Tally(ctx context.Context, runID string, pass float64) (out store.Tally, err error) {
	defer func() { err = s.db.describe(err, "count the rollouts of run", runID) }()
	rows, err := s.db.read.QueryContext(ctx, countScores, runID, pass)
	if err != nil {
		return out, err
	}
	err = each(rows, func(r scanner) error {
		var state eval.State
		var passed sql.NullBool
		var n int
		if err := r.Scan(&state, &passed, &n); err != nil {
			return err
		}
		switch {
		case state != eval.StateCompleted:
			setCount(&out.Counts, state, n)
		case !passed.Valid:
			out.Unscored = n
		case passed.Bool:
			out.Passed = n
		default:
			out.Failed = n
		}
		return nil
	})
	setCount(&out.Counts, eval.StateCompleted, out.Passed+out.Failed+out.Unscored)
	return out, err
}
