package rules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// reader implements store.Reader.
type reader struct{ db *db }

// querier is the read pool or a read transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// runColumns are the columns of a run r that scanRun reads.
const runColumns = `r.run_id, r.name, r.evaluation_set_id, r.evaluation_set_name, r.retry_of, r.created_at, r.finished_at, r.revision, r.seq`

const selectRun = "SELECT " + runColumns + " FROM runs r"

// scanRun reads a run, and the columns that follow its own into more.
func scanRun(r scanner, more ...any) (run store.Run, err error) {
	var created, finished sql.NullInt64
	err = r.Scan(append([]any{&run.ID, &run.Name, &run.EvaluationSetID, &run.EvaluationSetName,
		&run.RetryOf, &created, &finished, &run.Revision, &run.Seq}, more...)...)
	run.CreatedAt, run.FinishedAt = fromMicros(created), fromMicros(finished)
	return run, err
}

// Run implements Reader.
func (s reader) Run(ctx context.Context, runID string) (store.Run, error) {
	run, err := readRun(ctx, s.db.read, runID)
	return run, s.db.describe(err, "read run", runID)
}

// selectRunAndStates has a row for each state that rollouts of a run are in. It is one statement,
// and so sees one moment: else a run could have no open rollout any more and yet not be finished.
const selectRunAndStates = "SELECT " + runColumns + ", s.state, s.n FROM runs r LEFT JOIN (" +
	countStates + ") s ON true WHERE r.run_id = ?"

func readRun(ctx context.Context, q querier, runID string) (run store.Run, err error) {
	rows, err := q.QueryContext(ctx, selectRunAndStates, runID, runID)
	if err != nil {
		return run, err
	}
	var counts store.Counts
	err = each(rows, func(r scanner) (err error) {
		var state sql.NullString
		var n sql.NullInt64
		if run, err = scanRun(r, &state, &n); err == nil && state.Valid {
			setCount(&counts, eval.State(state.String), int(n.Int64))
		}
		return err
	})
	if err == nil && run.ID == "" {
		err = fmt.Errorf("run %s: %w", runID, store.ErrNotFound)
	}
	run.Counts = counts
	return run, err
}

// setCount notes that n rollouts are in a state.
func setCount(c *store.Counts, state eval.State, n int) {
	*map[eval.State]*int{
		eval.StatePending: &c.Pending, eval.StateRunning: &c.Running, eval.StateSuspended: &c.Suspended,
		eval.StateEvaluating: &c.Evaluating, eval.StateScoring: &c.Scoring, eval.StateCompleted: &c.Completed,
		eval.StateFaulted: &c.Faulted, eval.StateCancelled: &c.Cancelled,
	}[state] = n
	c.Total += n
}

// Runs implements Reader.
func (s reader) Runs(ctx context.Context) (runs []store.Run, err error) {
	err = s.db.again(ctx, func() error {
		runs, err = s.runs(ctx)
		return err
	})
	return runs, s.db.describe(err, "list the runs")
}

func (s reader) runs(ctx context.Context) (runs []store.Run, err error) {
	tx, err := s.db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	rows, err := tx.QueryContext(ctx, selectRun+" ORDER BY r.created_at DESC, r.run_id DESC")
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
	index := map[string]*store.Run{}
	for i := range runs {
		index[runs[i].ID] = &runs[i]
	}
	if rows, err = tx.QueryContext(ctx,
		"SELECT run_id, state, count(*) FROM rollouts GROUP BY run_id, state"); err != nil {
		return nil, err
	}
	return runs, each(rows, func(r scanner) error {
		var id string
		var state eval.State
		var n int
		err := r.Scan(&id, &state, &n)
		if run := index[id]; err == nil && run != nil {
			setCount(&run.Counts, state, n)
		}
		return err
	})
}

// OpenRuns implements Reader.
func (s reader) OpenRuns(ctx context.Context) (out map[string]int64, err error) {
	defer func() { err = s.db.describe(err, "list the open runs") }()
	rows, err := s.db.read.QueryContext(ctx, selectOpenRuns)
	if err != nil {
		return nil, err
	}
	out = map[string]int64{}
	err = each(rows, func(r scanner) error {
		var id string
		var seq int64
		err := r.Scan(&id, &seq)
		out[id] = seq
		return err
	})
	return out, err
}

const selectOpenRuns = "SELECT run_id, seq FROM runs WHERE finished_at IS NULL"

// RunOf implements Reader.
func (s reader) RunOf(ctx context.Context, rolloutID string) (runID string, err error) {
	err = s.db.read.QueryRowContext(ctx, "SELECT run_id FROM rollouts WHERE rollout_id = ?", rolloutID).Scan(&runID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("rollout %s: %w", rolloutID, store.ErrNotFound)
	}
	return runID, s.db.describe(err, "find the run of rollout", rolloutID)
}

// Plan implements Reader.
func (s reader) Plan(ctx context.Context, runID string) (p store.Plan, err error) {
	defer func() { err = s.db.describe(err, "read the plan of run", runID) }()
	run, err := listing(s).RunHead(ctx, runID)
	if err != nil {
		return store.Plan{}, err
	}
	p = store.Plan{
		RunID: run.ID, Name: run.Name, EvaluationSetID: run.EvaluationSetID, EvaluationSetName: run.EvaluationSetName,
		RetryOf: run.RetryOf,
	}
	var data []byte
	err = s.db.read.QueryRowContext(ctx, "SELECT data FROM plans WHERE run_id = ?", runID).Scan(&data)
	p.Data = data
	return p, err
}

// RolloutIDs implements Reader.
func (s reader) RolloutIDs(ctx context.Context, runID string) (ids []string, err error) {
	defer func() { err = s.db.describe(err, "list the rollouts of run", runID) }()
	rows, err := s.db.read.QueryContext(ctx, "SELECT rollout_id FROM rollouts WHERE run_id = ? ORDER BY ordinal", runID)
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

// Triggers implements Reader.
func (s reader) Triggers(ctx context.Context, runID string, all bool, f func(store.Trigger) error) (err error) {
	defer func() { err = s.db.describe(err, "read the triggers of run", runID) }()
	where, args := "WHERE true", []any{}
	if runID != "" {
		where, args = "WHERE t.run_id = ?", append(args, runID)
	}
	if !all {
		where += " AND t.state IN ('intended', 'starting', 'waiting')"
	}
	rows, err := s.db.read.QueryContext(ctx, selectTrigger+where+" ORDER BY t.id", args...)
	if err != nil {
		return err
	}
	return each(rows, func(r scanner) error {
		g, err := scanTrigger(r)
		if err != nil {
			return err
		}
		return f(g)
	})
}

// Trigger implements Reader.
func (s reader) Trigger(ctx context.Context, id string) (g store.Trigger, err error) {
	defer func() { err = s.db.describe(err, "read trigger", id) }()
	if len(id) < 4 {
		return store.Trigger{}, fmt.Errorf("trigger %q: %w; give at least 4 characters of its id", id, store.ErrNotFound)
	}
	where, args := "WHERE t.trigger_id >= ? AND t.trigger_id < ?", []any{id, id + "\x7f"}
	if len(id) < len(uuid.Nil.String()) { // it may be the end of an id, for which there is no index
		where, args = "WHERE (t.trigger_id >= ? AND t.trigger_id < ? OR substr(t.trigger_id, length(t.trigger_id) - length(?) + 1) = ?)",
			append(args, id, id)
	}
	const most = 10
	rows, err := s.db.read.QueryContext(ctx, selectTrigger+where+fmt.Sprintf(" LIMIT %d", most+1), args...)
	if err != nil {
		return store.Trigger{}, err
	}
	var found []store.Trigger
	if err := each(rows, func(r scanner) error {
		g, err := scanTrigger(r)
		found = append(found, g)
		return err
	}); err != nil {
		return store.Trigger{}, err
	}
	switch len(found) {
	case 0:
		return store.Trigger{}, fmt.Errorf("trigger %s: %w", id, store.ErrNotFound)
	case 1:
		return found[0], nil
	}
	var names []string
	for _, g := range found[:min(len(found), most)] {
		names = append(names, fmt.Sprintf("%s (%s, %s)", g.ID, g.Type, g.State))
	}
	if len(found) > most {
		names = append(names, "and others")
	}
	return store.Trigger{}, fmt.Errorf("trigger %s: several begin or end like this, %s; give more of the id: %w",
		id, strings.Join(names, ", "), store.ErrNotFound)
}

// Deliveries implements Reader.
func (s reader) Deliveries(ctx context.Context, triggerID string) (out []store.Delivered, err error) {
	defer func() { err = s.db.describe(err, "read the deliveries for trigger", triggerID) }()
	rows, err := s.db.read.QueryContext(ctx,
		"SELECT "+deliveryColumns+" FROM deliveries WHERE trigger_id = ? ORDER BY received_at, coalesce(parked_id, id)",
		triggerID)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		a, as, err := scanDelivery(r)
		a.TriggerID = triggerID
		out = append(out, store.Delivered{
			Delivery: a.Delivery, ReceivedAt: time.UnixMicro(a.receivedAt).UTC(), Disposition: as,
		})
		return err
	})
	return out, err
}

// Segments implements Reader.
func (s reader) Segments(ctx context.Context, rolloutID string) ([]store.Segment, error) {
	rows, err := s.db.read.QueryContext(ctx, selectSegments, rolloutID)
	if err != nil {
		return nil, s.db.describe(err, "read the segments of rollout", rolloutID)
	}
	out, err := scanSegments(rolloutID, rows)
	return out, s.db.describe(err, "read the segments of rollout", rolloutID)
}

const segmentColumns = "g.segment, g.attempt, g.outcome, g.started_at, g.ended_at, g.output, g.fault, g.files, g.info"

const selectSegments = "SELECT " + segmentColumns +
	" FROM segments g WHERE g.rollout_id = ? ORDER BY g.segment, g.attempt"

func scanSegments(rolloutID string, rows *sql.Rows) (out []store.Segment, err error) {
	err = each(rows, func(r scanner) error {
		g, err := scanSegment(r)
		g.RolloutID = rolloutID
		out = append(out, g)
		return err
	})
	return out, err
}

func scanSegment(r scanner, more ...any) (g store.Segment, err error) {
	var started, ended sql.NullInt64
	var fault, files []byte
	if err := r.Scan(append([]any{&g.Number, &g.Attempt, &g.Outcome, &started, &ended, (*[]byte)(&g.Output),
		&fault, &files, (*[]byte)(&g.Info)}, more...)...); err != nil {
		return g, err
	}
	g.StartedAt, g.EndedAt = fromMicros(started), fromMicros(ended)
	if files != nil {
		if err := decode(files, &g.Files); err != nil {
			return g, err
		}
	}
	g.Fault, err = unmarshalFault(fault)
	return g, err
}

// Events implements Reader.
func (s reader) Events(ctx context.Context, runID string, after int64, limit int) (out []store.Event, err error) {
	defer func() { err = s.db.describe(err, "read the events of run", runID) }()
	rows, err := s.db.read.QueryContext(ctx,
		"SELECT seq, time, type, rollout_id, data FROM events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?",
		runID, after, limit)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		e := store.Event{RunID: runID}
		var at int64
		err := r.Scan(&e.Seq, &at, &e.Type, &e.RolloutID, (*[]byte)(&e.Data))
		e.Time = time.UnixMicro(at).UTC()
		out = append(out, e)
		return err
	})
	return out, err
}
