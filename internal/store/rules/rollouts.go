package rules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// rolloutRows are the rows of rollouts, and the states and clocks in them. Only the holder of a
// rollout changes them, except to end it from outside.
type rolloutRows struct{ tx *Tx }

const rolloutColumns = `o.rollout_id, o.run_id, o.evaluation_id, o.evaluation_name, o.agent, o.epoch, o.state, o.segment, o.attempt, o.failures,
	o.suspensions, o.scorings, o.fault, o.score, o.created_at, o.state_since, o.finished_at, o.working, o.waiting, o.queued, o.evaluating, o.scoring`

func scanRollout(r scanner, more ...any) (o store.Rollout, err error) {
	var fault []byte
	var created, since, finished sql.NullInt64
	var score sql.NullFloat64
	var clocks [5]int64
	err = r.Scan(append([]any{&o.ID, &o.RunID, &o.EvaluationID, &o.EvaluationName, &o.Agent, &o.Epoch,
		&o.State, &o.Segment, &o.Attempt, &o.Failures,
		&o.Suspensions, &o.Scorings, &fault, &score, &created, &since, &finished,
		&clocks[0], &clocks[1], &clocks[2], &clocks[3], &clocks[4]}, more...)...)
	if err != nil {
		return o, err
	}
	if score.Valid {
		o.Score = &score.Float64
	}
	o.CreatedAt, o.StateSince, o.FinishedAt = fromMicros(created), fromMicros(since), fromMicros(finished)
	o.Clocks = store.Clocks{
		Working: duration(clocks[0]), Waiting: duration(clocks[1]), Queued: duration(clocks[2]),
		Evaluating: duration(clocks[3]), Scoring: duration(clocks[4]),
	}
	o.Fault, err = unmarshalFault(fault)
	return o, err
}

// heldRollout is a rollout that the bearer of a token holds.
type heldRollout struct {
	store.Rollout
	// cancelled says that its holder was told to end it.
	cancelled bool
	owner     sql.NullString
	fence     int64
}

const selectHeldRollout = "SELECT " + rolloutColumns + ", o.cancel, o.owner, o.fence FROM rollouts o WHERE o.rollout_id = ?"

func (o *heldRollout) scan(r scanner) (err error) {
	o.Rollout, err = scanRollout(r, &o.cancelled, &o.owner, &o.fence)
	return err
}

// readAhead reads the rollouts that a group of operations will ask for, where that is faster than to read each of them
// when it is asked for.
func (rows rolloutRows) readAhead(group []*operation) error {
	t := rows.tx
	t.ahead = map[string]*heldRollout{}
	if t.careful {
		return nil
	}
	var ids []string
	for _, op := range group {
		if op.token != nil {
			ids = append(ids, op.token.RolloutID)
		}
	}
	return t.rowOfEach(len(ids), selectHeldRollout, func(i int) []any { return []any{ids[i]} }, func(i int, r scanner) error {
		o := &heldRollout{}
		t.ahead[ids[i]] = o
		return o.scan(r)
	})
}

// held checks that the bearer of a token still holds the rollout, and that the rollout is in the
// state.
func (rows rolloutRows) held(tok store.Token, state eval.State) (o heldRollout, err error) {
	if ahead, ok := rows.tx.ahead[tok.RolloutID]; ok {
		o = *ahead
		delete(rows.tx.ahead, tok.RolloutID) // what asks for it will change it
	} else {
		stmt, err := rows.tx.prepare(selectHeldRollout)
		if err != nil {
			return o, err
		}
		err = o.scan(stmt.QueryRowContext(context.Background(), tok.RolloutID))
		if errors.Is(err, sql.ErrNoRows) {
			return o, fmt.Errorf("rollout %s: %w", tok.RolloutID, store.ErrNotFound)
		} else if err != nil {
			rows.tx.failed = true
			return o, err
		}
	}
	switch {
	case !checkFence:
		return o, nil
	case o.State.IsTerminal():
		return o, fmt.Errorf("rollout %s is %s already: %w", tok.RolloutID, o.State, store.ErrFenced)
	case o.owner.String != rows.tx.db.holder || o.fence != tok.Fence:
		return o, fmt.Errorf("rollout %s was taken over: %w", tok.RolloutID, store.ErrFenced)
	case o.State != state:
		return o, fmt.Errorf("rollout %s is %s, not %s", tok.RolloutID, o.State, state)
	}
	return o, nil
}

// stateChange changes the state of a rollout to ?2 at the time ?1. The time since the last change
// goes to the clock of the state that it leaves. A suspended or scoring rollout was waiting until
// it became runnable, and queued after that.
const stateChange = `working = working + CASE WHEN state = 'running' THEN max(?1 - state_since, 0) ELSE 0 END,
	evaluating = evaluating + CASE WHEN state = 'evaluating' THEN max(?1 - state_since, 0) ELSE 0 END,
	waiting    = waiting    + CASE WHEN state IN ('suspended', 'scoring') THEN max(coalesce(runnable_at, ?1) - state_since, 0) ELSE 0 END,
	scoring    = scoring    + CASE WHEN state = 'scoring' THEN max(coalesce(runnable_at, ?1) - state_since, 0) ELSE 0 END,
	queued     = queued     + CASE WHEN state = 'pending' THEN max(?1 - state_since, 0)
	                               WHEN state IN ('suspended', 'scoring') THEN max(?1 - coalesce(runnable_at, ?1), 0) ELSE 0 END,
	state = ?2, state_since = ?1`

// become changes a rollout's state. The assignments in also are made with it; their arguments begin
// with ?4.
func (rows rolloutRows) become(rolloutID string, state eval.State, also string, args ...any) error {
	return rows.tx.Exec("UPDATE rollouts SET "+stateChange+also+" WHERE rollout_id = ?3",
		append([]any{rows.tx.now, string(state), rolloutID}, args...)...)
}

// countAs moves some microseconds from the clock of the present state to another clock, at most
// those that have passed. They count as the first of the state: since is when it began after them.
func (rows rolloutRows) countAs(clock string, o store.Rollout, micros int64) (since time.Time, err error) {
	micros = min(micros, rows.tx.now-o.StateSince.UnixMicro())
	if micros <= 0 {
		return o.StateSince, nil
	}
	return o.StateSince.Add(duration(micros)), rows.tx.Exec(
		"UPDATE rollouts SET "+clock+" = "+clock+" + ?1, state_since = state_since + ?1 WHERE rollout_id = ?2", micros, o.ID)
}

// takeOver settles a rollout whose holder is gone. The holder worked until its last sign of life,
// and after that the rollout was queued. The attempt counts as interrupted.
func (rows rolloutRows) takeOver(o store.Rollout) error {
	var renewed int64
	if err := rows.tx.Row([]any{&renewed},
		`UPDATE rollouts SET queued = queued + max(?1 - max(renewed_at, state_since), 0),
			state_since = state_since + max(?1 - max(renewed_at, state_since), 0)
		WHERE rollout_id = ?2 RETURNING renewed_at`, rows.tx.now, o.ID); err != nil {
		return err
	}
	if o.State != eval.StateRunning {
		return nil
	}
	return rows.tx.Exec(
		"INSERT INTO segments (rollout_id, segment, attempt, outcome, started_at, ended_at, fault) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		o.ID, o.Segment, o.Attempt, string(store.OutcomeInterrupted), o.StateSince.UnixMicro(),
		max(renewed, o.StateSince.UnixMicro()), marshal(gone))
}

// gone is the fault of an attempt whose process is gone.
var gone = fault.New("interrupted", "the process that ran it is gone")

// repeat puts a rollout back so that its segment is tried again.
func (rows rolloutRows) repeat(o store.Rollout, end store.SegmentEnd) error {
	failures, also := o.Failures, ""
	if end.Outcome == store.OutcomeFailed { // by the agent, so evalrun itself did not fail
		failures, also = failures+1, ", internal_failures = 0"
	}
	if err := rows.become(o.ID, eval.StatePending,
		", owner = NULL, lease_until = NULL, failures = ?4, runnable_at = ?5"+also,
		failures, rows.tx.after(end.RetryAfter)); err != nil {
		return err
	}
	data := map[string]any{"segment": o.Segment, "attempt": o.Attempt + 1, "afterMs": end.RetryAfter.Milliseconds()}
	if end.Fault != nil {
		data["fault"] = end.Fault
	}
	return rows.tx.event(o.RunID, o.ID, store.RolloutRetried, data)
}

// addResult stores the result of one evaluator after those that are there. The evaluator has
// thereby consumed what it was resumed with.
func (rows rolloutRows) addResult(o store.Rollout, r store.Result) error {
	rolloutID := o.ID
	err := rows.tx.Exec(
		"INSERT INTO results (rollout_id, evaluator_id, ordinal, data) VALUES (?1, ?2, (SELECT count(*) FROM results WHERE rollout_id = ?1), ?3)",
		rolloutID, r.EvaluatorID, document(r.Data))
	if err != nil {
		return fmt.Errorf("the result of evaluator %s of rollout %s: %w", r.EvaluatorID, rolloutID, err)
	}
	if o.Scorings == 0 {
		return nil
	}
	return rows.consume(rolloutID, r.EvaluatorID)
}

// consume marks what has arrived for an evaluator as consumed.
func (rows rolloutRows) consume(rolloutID, evaluatorID string) error {
	return rows.tx.Exec(
		"UPDATE triggers SET state = 'consumed' WHERE rollout_id = ? AND evaluator_id = ? AND asked_by = '' AND state IN ('fired', 'faulted', 'expired', 'cancelled')",
		rolloutID, evaluatorID)
}

// end brings a rollout from any state into a terminal one. If no other rollout of the run is left,
// the run ends with it.
func (rows rolloutRows) end(runID, rolloutID string, state eval.State, f *fault.Fault, score *float64) error {
	if err := rows.become(rolloutID, state,
		`, runnable_at = NULL, owner = NULL, lease_until = NULL, cancel = FALSE, fault = ?4, score = ?5, finished_at = ?1`,
		marshal(f), score); err != nil {
		return err
	}
	data := map[string]any{"state": state, "score": score}
	if f != nil {
		data["fault"] = f
	}
	if state != eval.StateCompleted {
		if err := rows.nameUnstarted(rolloutID, data); err != nil {
			return err
		}
	}
	open, err := rows.tx.endRollout(runID, rolloutID, data)
	if err != nil || open > 0 {
		return err
	}
	return rows.finishRun(runID)
}

// nameUnstarted adds to the data of an event which rollout it is about, if that was never started:
// then no other event has said so.
func (rows rolloutRows) nameUnstarted(rolloutID string, data map[string]any) error {
	var id, name, agent string
	var epoch int
	err := rows.tx.Row([]any{&id, &name, &agent, &epoch},
		"SELECT evaluation_id, evaluation_name, agent, epoch FROM rollouts WHERE rollout_id = ? AND segment = 0", rolloutID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	data["evaluationId"], data["evaluationName"], data["agent"], data["epoch"] = id, name, agent, epoch
	return err
}

// finishRun ends a run of which no rollout is left.
func (rows rolloutRows) finishRun(runID string) error {
	if err := rows.tx.Exec("UPDATE runs SET finished_at = ? WHERE run_id = ?", rows.tx.now, runID); err != nil {
		return err
	}
	counts := map[string]int{}
	if err := rows.tx.rows(func(r scanner) error {
		var state string
		var n int
		err := r.Scan(&state, &n)
		counts[state] = n
		return err
	}, "SELECT state, count(*) FROM rollouts WHERE run_id = ? GROUP BY state", runID); err != nil {
		return err
	}
	if err := jobRows(rows).runEnded(runID, counts); err != nil {
		return err
	}
	return rows.tx.event(runID, "", store.RunFinished, counts)
}
