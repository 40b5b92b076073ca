package rules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// listing implements store.Listing.
type listing struct{ db *db }

// ListRuns implements Listing.
func (s listing) ListRuns(ctx context.Context, q store.RunQuery) (runs []store.Run, err error) {
	defer func() { err = s.db.describe(err, "list runs") }()
	where, args := " WHERE true", []any{}
	if q.Before.ID != "" {
		where, args = where+" AND (r.created_at, r.run_id) < (?, ?)",
			append(args, q.Before.CreatedAt.UnixMicro(), q.Before.ID)
	}
	if q.Final != nil {
		where += map[bool]string{true: " AND r.finished_at IS NOT NULL", false: " AND r.finished_at IS NULL"}[*q.Final]
	}
	err = s.db.again(ctx, func() error {
		runs, err = s.listRuns(ctx, selectRun+where+" ORDER BY r.created_at DESC, r.run_id DESC LIMIT ?", append(args, q.Limit)...)
		return err
	})
	return runs, err
}

func (s listing) listRuns(ctx context.Context, query string, args ...any) (runs []store.Run, err error) {
	tx, err := s.db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	if err := each(rows, func(r scanner) error {
		run, err := scanRun(r)
		runs = append(runs, run)
		return err
	}); err != nil {
		return nil, err
	}
	for i := range runs {
		rows, err := tx.QueryContext(ctx, countStates, runs[i].ID)
		if err != nil {
			return nil, err
		}
		if err := each(rows, func(r scanner) error {
			var state eval.State
			var n int
			err := r.Scan(&state, &n)
			if err == nil {
				setCount(&runs[i].Counts, state, n)
			}
			return err
		}); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

const countStates = "SELECT state, count(*) AS n FROM rollouts WHERE run_id = ? GROUP BY state"

// ListRollouts implements Listing.
func (s listing) ListRollouts(ctx context.Context, runID string, from, limit int) (out []store.Rollout, err error) {
	defer func() { err = s.db.describe(err, "list the rollouts of run", runID) }()
	rows, err := s.db.read.QueryContext(ctx,
		"SELECT "+rolloutColumns+" FROM rollouts o WHERE o.run_id = ? AND o.ordinal >= ? ORDER BY o.ordinal LIMIT ?",
		runID, from, limit)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		o, err := scanRollout(r)
		out = append(out, o)
		return err
	})
	return out, err
}

// Rollout implements Listing.
func (s listing) Rollout(ctx context.Context, id string) (store.Rollout, error) {
	o, err := scanRollout(s.db.read.QueryRowContext(ctx,
		"SELECT "+rolloutColumns+" FROM rollouts o WHERE o.rollout_id = ?", id))
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("rollout %s: %w", id, store.ErrNotFound)
	}
	return o, s.db.describe(err, "read rollout", id)
}

// selectListedTrigger also reads the place of a trigger.
var selectListedTrigger = strings.Replace(selectTrigger, " FROM triggers", ", t.id FROM triggers", 1)

// ListTriggers implements Listing.
func (s listing) ListTriggers(ctx context.Context, q store.TriggerQuery) (out []store.Trigger, last int64, err error) {
	defer func() { err = s.db.describe(err, "list triggers") }()
	where, args := "WHERE t.id > ?", []any{q.After}
	if q.RunID != "" {
		where, args = where+" AND t.run_id = ?", append(args, q.RunID)
	}
	if q.RolloutID != "" {
		where, args = where+" AND t.rollout_id = ?", append(args, q.RolloutID)
	}
	if !q.All {
		where += " AND t.state IN ('intended', 'starting', 'waiting')"
	}
	rows, err := s.db.read.QueryContext(ctx, selectListedTrigger+where+" ORDER BY t.id LIMIT ?", append(args, q.Limit)...)
	if err != nil {
		return nil, 0, err
	}
	last = q.After
	err = each(rows, func(r scanner) error {
		g, err := scanTrigger(r, &last)
		out = append(out, g)
		return err
	})
	return out, last, err
}

// RunHead implements Listing.
func (s listing) RunHead(ctx context.Context, runID string) (store.Run, error) {
	run, err := scanRun(s.db.read.QueryRowContext(ctx, selectRun+" WHERE r.run_id = ?", runID))
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("run %s: %w", runID, store.ErrNotFound)
	}
	return run, s.db.describe(err, "read the head of run", runID)
}

const selectParked = "SELECT trigger_id, source, item_key, status, delivered_by, person, received_at FROM deliveries WHERE disposition = 'parked' AND received_at >= ? ORDER BY received_at, id LIMIT ?"

// Parked implements Listing.
func (s listing) Parked(ctx context.Context, limit int) (out []store.Delivered, err error) {
	defer func() { err = s.db.describe(err, "list parked deliveries") }()
	rows, err := s.db.read.QueryContext(ctx, selectParked, s.db.now().Add(-store.ParkedFor).UnixMicro(), limit)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		d := store.Delivered{Disposition: store.Parked}
		var at int64
		err := r.Scan(&d.TriggerID, &d.Source, &d.ItemKey, &d.Status, &d.By, &d.Person, &at)
		d.ReceivedAt = time.UnixMicro(at).UTC()
		out = append(out, d)
		return err
	})
	return out, err
}
