package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// CreateRun implements Store.
func (s *SQLite) CreateRun(ctx context.Context, p store.Plan) (created bool, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		created = false
		var n int
		if err := t.row([]any{&n}, "SELECT count(*) FROM runs WHERE run_id = ?", p.RunID); err != nil || n > 0 {
			return err
		}
		created, t.wake = true, true
		return t.createRun(p)
	})
	return created && err == nil, err
}

func (t *tx) createRun(p store.Plan) error {
	if err := t.exec(`INSERT INTO runs (run_id, name, evaluation_set_id, evaluation_set_name, retry_of, created_at, open)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, p.RunID, p.Name, p.EvaluationSetID, p.EvaluationSetName, p.RetryOf, t.now, len(p.Rollouts)); err != nil {
		return err
	}
	if err := t.exec("INSERT INTO plans (run_id, data) VALUES (?, ?)", p.RunID, document(p.Data)); err != nil {
		return err
	}
	for i, e := range p.Evaluations {
		if err := t.exec("INSERT INTO evaluations (run_id, ordinal, evaluation_id, data) VALUES (?, ?, ?, ?)", p.RunID, i, e.ID, document(e.Data)); err != nil {
			return err
		}
	}
	if err := t.event(p.RunID, "", store.RunCreated, map[string]any{
		"name": p.Name, "evaluationSetId": p.EvaluationSetID, "evaluationSetName": p.EvaluationSetName, "total": len(p.Rollouts),
	}); err != nil {
		return err
	}
	for i, r := range p.Rollouts {
		if r.Evaluation < 0 || r.Evaluation >= len(p.Evaluations) {
			return fmt.Errorf("planning %s: the plan has no evaluation %d", r.EvaluationName, r.Evaluation)
		}
		if err := t.exec(`INSERT INTO rollouts (rollout_id, run_id, ordinal, evaluation, evaluation_id, evaluation_name, agent, epoch,
				resume_all, accepts_faults, state, state_since, runnable_at, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?)`,
			r.ID, p.RunID, i, r.Evaluation, p.Evaluations[r.Evaluation].ID, r.EvaluationName, r.Agent, r.Epoch, r.All, r.AcceptsFaults, t.now, t.now, t.now); err != nil {
			return fmt.Errorf("planning %s: %w", r.EvaluationName, err)
		}
		if r.Fault != nil {
			if err := t.end(p.RunID, r.ID, eval.StateFaulted, r.Fault, nil); err != nil {
				return err
			}
		}
	}
	if len(p.Rollouts) == 0 {
		return t.finishRun(p.RunID)
	}
	return nil
}

// end brings a rollout into a terminal state, whatever state it is in, and with it, if it was the last one, the run.
func (t *tx) end(runID, rolloutID string, state eval.State, f *fault.Fault, score *float64) error {
	if err := t.become(rolloutID, state, `, runnable_at = NULL, owner = NULL, lease_until = NULL, cancel = 0, fault = ?4, score = ?5, finished_at = ?1`,
		marshal(f), score); err != nil {
		return err
	}
	data := map[string]any{"state": state, "score": score}
	if f != nil {
		data["fault"] = f
	}
	var seq, open int64
	if err := t.row([]any{&seq, &open}, "UPDATE runs SET seq = seq + 1, revision = revision + 1, open = open - 1 WHERE run_id = ? RETURNING seq, open", runID); err != nil {
		return err
	}
	if err := t.addEvent(runID, seq, rolloutID, store.RolloutFinished, data); err != nil || open > 0 {
		return err
	}
	return t.finishRun(runID)
}

func (t *tx) finishRun(runID string) error {
	if err := t.exec("UPDATE runs SET finished_at = ? WHERE run_id = ?", t.now, runID); err != nil {
		return err
	}
	counts := map[string]int{}
	if err := t.rows(func(r scanner) error {
		var state string
		var n int
		err := r.Scan(&state, &n)
		counts[state] = n
		return err
	}, "SELECT state, count(*) FROM rollouts WHERE run_id = ? GROUP BY state", runID); err != nil {
		return err
	}
	return t.event(runID, "", store.RunFinished, counts)
}

// stateChange gives the time since the last change of a rollout's state (?1 is now) to the clock of the state that it leaves, for the
// state ?2. A suspended rollout waited until it became runnable and was queued after that.
const stateChange = `working = working + CASE WHEN state = 'running' THEN max(?1 - state_since, 0) ELSE 0 END,
	evaluating = evaluating + CASE WHEN state = 'evaluating' THEN max(?1 - state_since, 0) ELSE 0 END,
	waiting    = waiting    + CASE WHEN state = 'suspended' THEN max(coalesce(runnable_at, ?1) - state_since, 0) ELSE 0 END,
	queued     = queued     + CASE WHEN state = 'pending' THEN max(?1 - state_since, 0)
	                               WHEN state = 'suspended' THEN max(?1 - coalesce(runnable_at, ?1), 0) ELSE 0 END,
	state = ?2, state_since = ?1`

// countAs counts some microseconds of the state that a rollout is in for another clock, as far as they have passed. since is when it got into that
// state, if they were the first.
func (t *tx) countAs(clock string, o store.Rollout, micros int64) (since time.Time, err error) {
	micros = min(micros, t.now-o.StateSince.UnixMicro())
	if micros <= 0 {
		return o.StateSince, nil
	}
	return o.StateSince.Add(duration(micros)), t.exec("UPDATE rollouts SET "+clock+" = "+clock+" + ?1, state_since = state_since + ?1 WHERE rollout_id = ?2", micros, o.ID)
}

// become changes a rollout's state, and with it what else is to be set, whose arguments begin with ?4.
func (t *tx) become(rolloutID string, state eval.State, also string, args ...any) error {
	return t.exec("UPDATE rollouts SET "+stateChange+also+" WHERE rollout_id = ?3", append([]any{t.now, string(state), rolloutID}, args...)...)
}

// event appends to a run's log. Every transaction that changes a run makes at least one event or calls touch.
func (t *tx) event(runID, rolloutID string, typ store.EventType, data any) error {
	var seq int64
	if err := t.row([]any{&seq}, "UPDATE runs SET seq = seq + 1, revision = revision + 1 WHERE run_id = ? RETURNING seq", runID); err != nil {
		return err
	}
	return t.addEvent(runID, seq, rolloutID, typ, data)
}

func (t *tx) addEvent(runID string, seq int64, rolloutID string, typ store.EventType, data any) error {
	t.changed[runID] = true
	return t.exec("INSERT INTO events (run_id, seq, time, type, rollout_id, data) VALUES (?, ?, ?, ?, ?, ?)", runID, seq, t.now, string(typ), rolloutID, marshal(data))
}

func (t *tx) touch(runID string) error {
	return t.exec("UPDATE runs SET revision = revision + 1 WHERE run_id = ?", runID)
}

const selectRun = `SELECT r.run_id, r.name, r.evaluation_set_id, r.evaluation_set_name, r.retry_of, r.created_at, r.finished_at, r.revision, r.seq FROM runs r`

func scanRun(r scanner) (run store.Run, err error) {
	var created, finished sql.NullInt64
	err = r.Scan(&run.ID, &run.Name, &run.EvaluationSetID, &run.EvaluationSetName, &run.RetryOf, &created, &finished, &run.Revision, &run.Seq)
	run.CreatedAt, run.FinishedAt = fromMicros(created), fromMicros(finished)
	return run, err
}

// querier is the read pool or a read transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Run implements Store.
func (s *SQLite) Run(ctx context.Context, runID string) (store.Run, error) {
	run, err := readRun(ctx, s.read, runID)
	return run, s.describe(err)
}

func readRun(ctx context.Context, q querier, runID string) (store.Run, error) {
	run, err := scanRun(q.QueryRowContext(ctx, selectRun+" WHERE r.run_id = ?", runID))
	if errors.Is(err, sql.ErrNoRows) {
		return run, fmt.Errorf("run %s: %w", runID, store.ErrNotFound)
	}
	if err != nil {
		return run, err
	}
	rows, err := q.QueryContext(ctx, "SELECT state, count(*) FROM rollouts WHERE run_id = ? GROUP BY state", runID)
	if err != nil {
		return run, err
	}
	return run, each(rows, func(r scanner) error {
		var state eval.State
		var n int
		if err := r.Scan(&state, &n); err != nil {
			return err
		}
		setCount(&run.Counts, state, n)
		return nil
	})
}

// setCount notes that n rollouts are in a state.
func setCount(c *store.Counts, state eval.State, n int) {
	*map[eval.State]*int{
		eval.StatePending: &c.Pending, eval.StateRunning: &c.Running, eval.StateSuspended: &c.Suspended,
		eval.StateEvaluating: &c.Evaluating, eval.StateCompleted: &c.Completed, eval.StateFaulted: &c.Faulted,
		eval.StateCancelled: &c.Cancelled,
	}[state] = n
	c.Total += n
}

// Runs implements Store.
func (s *SQLite) Runs(ctx context.Context) (runs []store.Run, err error) {
	defer func() { err = s.describe(err) }()
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
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
	if rows, err = tx.QueryContext(ctx, "SELECT run_id, state, count(*) FROM rollouts GROUP BY run_id, state"); err != nil {
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

// OpenRuns implements Store.
func (s *SQLite) OpenRuns(ctx context.Context) (out map[string]int64, err error) {
	defer func() { err = s.describe(err) }()
	rows, err := s.read.QueryContext(ctx, selectOpenRuns)
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

// RunOf implements Store.
func (s *SQLite) RunOf(ctx context.Context, rolloutID string) (runID string, err error) {
	err = s.read.QueryRowContext(ctx, "SELECT run_id FROM rollouts WHERE rollout_id = ?", rolloutID).Scan(&runID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", fmt.Errorf("rollout %s: %w", rolloutID, store.ErrNotFound)
	}
	return runID, s.describe(err)
}

// Plan implements Store.
func (s *SQLite) Plan(ctx context.Context, runID string) (p store.Plan, err error) {
	defer func() { err = s.describe(err) }()
	run, err := readRun(ctx, s.read, runID)
	if err != nil {
		return store.Plan{}, err
	}
	p = store.Plan{RunID: run.ID, Name: run.Name, EvaluationSetID: run.EvaluationSetID, EvaluationSetName: run.EvaluationSetName, RetryOf: run.RetryOf}
	var data []byte
	err = s.read.QueryRowContext(ctx, "SELECT data FROM plans WHERE run_id = ?", runID).Scan(&data)
	p.Data = data
	return p, err
}

// marshal gives JSON for a column; nil, also of a pointer type, is null.
func marshal(v any) any {
	switch v := v.(type) {
	case *fault.Fault:
		if v == nil {
			return nil
		}
	case []store.File:
		if len(v) == 0 {
			return nil
		}
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic("store: " + err.Error()) // only values made in this package come here
	}
	return data
}

func unmarshalFault(data []byte) (*fault.Fault, error) {
	if data == nil {
		return nil, nil
	}
	f := new(fault.Fault)
	return f, json.Unmarshal(data, f)
}

// document is a JSON column that is never null.
func document(data json.RawMessage) []byte {
	if data == nil {
		return []byte("null")
	}
	return data
}

// raw is a JSON column; nil is null.
func raw(data json.RawMessage) any {
	if data == nil {
		return nil
	}
	return []byte(data)
}
