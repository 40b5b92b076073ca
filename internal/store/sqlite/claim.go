package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

const rolloutColumns = `o.rollout_id, o.run_id, o.evaluation_id, o.evaluation_name, o.agent, o.epoch, o.state, o.segment, o.attempt, o.failures,
	o.suspensions, o.fault, o.score, o.created_at, o.state_since, o.finished_at, o.working, o.waiting, o.queued, o.evaluating`

func scanRollout(r scanner, more ...any) (o store.Rollout, err error) {
	var fault []byte
	var created, since, finished sql.NullInt64
	var score sql.NullFloat64
	var clocks [4]int64
	err = r.Scan(append([]any{&o.ID, &o.RunID, &o.EvaluationID, &o.EvaluationName, &o.Agent, &o.Epoch, &o.State, &o.Segment, &o.Attempt, &o.Failures,
		&o.Suspensions, &fault, &score, &created, &since, &finished, &clocks[0], &clocks[1], &clocks[2], &clocks[3]}, more...)...)
	if err != nil {
		return o, err
	}
	if score.Valid {
		o.Score = &score.Float64
	}
	o.CreatedAt, o.StateSince, o.FinishedAt = fromMicros(created), fromMicros(since), fromMicros(finished)
	o.Clocks = store.Clocks{Working: duration(clocks[0]), Waiting: duration(clocks[1]), Queued: duration(clocks[2]), Evaluating: duration(clocks[3])}
	o.Fault, err = unmarshalFault(fault)
	return o, err
}

// Claim implements Store. A claim that a power cut takes back was an attempt that has left nothing behind: the segment is begun again.
func (s *SQLite) Claim(ctx context.Context, runID string, limit int) (claims []store.Claim, err error) {
	if limit <= 0 {
		return nil, nil
	}
	if err := s.InPlace(); err != nil {
		return nil, err
	}
	err = s.writeRelaxed(ctx, func(t *tx) error {
		claims = nil
		ids, err := t.claimable(runID, limit)
		if err != nil || len(ids) == 0 {
			return err
		}
		if err := t.register(); err != nil {
			return err
		}
		for _, id := range ids {
			c, err := t.claim(id)
			if err != nil {
				return fmt.Errorf("claiming rollout %s: %w", id, err)
			}
			claims = append(claims, c)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claims, nil
}

// claimable finds rollouts to claim: what a process left behind comes first, then what has been runnable longest. What this
// process holds is not void for itself: it goes on with it when it can renew again.
func (t *tx) claimable(runID string, limit int) (ids []string, err error) {
	dead, err := t.deadHolders("rollouts")
	if err != nil {
		return nil, err
	}
	add := func(r scanner) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}
	if err := t.rows(add, `SELECT rollout_id FROM rollouts
		WHERE owner IS NOT NULL AND owner <> ?1 AND (lease_until <= ?2 OR owner IN (SELECT value FROM json_each(?3))) AND (?4 = '' OR run_id = ?4)
		ORDER BY renewed_at, ordinal, run_id LIMIT ?5`, t.store.holder, t.now, dead, runID, limit); err != nil || len(ids) == limit {
		return ids, err
	}
	err = t.rows(add, `SELECT rollout_id FROM rollouts WHERE runnable_at <= ?1 AND (?2 = '' OR run_id = ?2)
		ORDER BY runnable_at, ordinal, run_id LIMIT ?3`, t.now, runID, limit-len(ids))
	return ids, err
}

func (t *tx) claim(id string) (c store.Claim, err error) {
	var owner sql.NullString
	stmt, err := t.prepare("SELECT " + rolloutColumns + `, o.owner FROM rollouts o WHERE o.rollout_id = ?`)
	if err != nil {
		return c, err
	}
	before, err := scanRollout(stmt.QueryRowContext(context.Background(), id), &owner)
	if err != nil {
		return c, err
	}
	c.RolloutID, c.TakenOver = id, owner.Valid
	if c.TakenOver {
		if err := t.takeOver(before); err != nil {
			return c, err
		}
	}
	state, segment, attempt, failures := eval.StateRunning, before.Segment, before.Attempt+1, before.Failures
	switch {
	case before.State == eval.StateEvaluating:
		state, attempt = eval.StateEvaluating, before.Attempt
	case before.State == eval.StateSuspended, before.Segment == 0:
		segment, attempt, failures = segment+1, 1, 0
	default:
		c.Repeats = true
	}
	update, err := t.prepare("UPDATE rollouts AS o SET " + stateChange + `, owner = ?3, renewed_at = ?1, lease_until = ?4, fence = fence + 1, runnable_at = NULL,
		segment = ?5, attempt = ?6, failures = ?7,
		internal_failures = CASE WHEN segment = ?5 THEN internal_failures ELSE 0 END WHERE rollout_id = ?8 RETURNING ` + strings.ReplaceAll(rolloutColumns, "o.", "") + ", fence, evaluation, cancel")
	if err != nil {
		return c, err
	}
	var evaluation int
	if c.Rollout, err = scanRollout(update.QueryRowContext(context.Background(), t.now, string(state), t.store.holder, t.after(t.store.lease),
		segment, attempt, failures, id), &c.Fence, &evaluation, &c.Cancelled); err != nil {
		return c, err
	}
	if err := t.row([]any{(*[]byte)(&c.Evaluation)}, "SELECT data FROM evaluations WHERE run_id = ? AND ordinal = ?", c.RunID, evaluation); err != nil {
		return c, err
	}
	if state == eval.StateEvaluating {
		return c, t.claimEvaluating(&c)
	}
	if before.State == eval.StateSuspended {
		// What the agent cannot take stays: it is settled with the next suspension.
		if err := t.exec(`UPDATE triggers SET taken_by = ?1 WHERE rollout_id = ?2 AND taken_by = 0 AND (state = 'fired'
			OR state IN ('faulted', 'expired', 'cancelled') AND (SELECT accepts_faults FROM rollouts WHERE rollout_id = ?2))`, segment, id); err != nil {
			return c, err
		}
	}
	if segment > 1 {
		if c.Deliveries, err = t.triggers("WHERE t.rollout_id = ? AND t.taken_by = ? ORDER BY t.id", id, segment); err != nil {
			return c, err
		}
	}
	return c, t.claimedEvent(c)
}

// takeOver settles what the holder of a rollout, which is gone, left: it worked until it last gave a sign of life, and after that
// the rollout was only queued. Its attempt was interrupted.
func (t *tx) takeOver(o store.Rollout) error {
	var renewed int64
	if err := t.row([]any{&renewed}, `UPDATE rollouts SET queued = queued + max(?1 - max(renewed_at, state_since), 0),
			state_since = state_since + max(?1 - max(renewed_at, state_since), 0)
		WHERE rollout_id = ?2 RETURNING renewed_at`, t.now, o.ID); err != nil {
		return err
	}
	if o.State != eval.StateRunning {
		return nil
	}
	return t.exec("INSERT OR IGNORE INTO segments (rollout_id, segment, attempt, outcome, started_at, ended_at, fault) VALUES (?, ?, ?, ?, ?, ?, ?)",
		o.ID, o.Segment, o.Attempt, string(store.OutcomeInterrupted), o.StateSince.UnixMicro(), max(renewed, o.StateSince.UnixMicro()), marshal(gone))
}

// gone is the fault of an attempt whose process ended before it.
var gone = fault.New("interrupted", "the process that ran it is gone")

// claimEvaluating adds what the evaluators still need to a claim.
func (t *tx) claimEvaluating(c *store.Claim) (err error) {
	if err := t.touch(c.RunID); err != nil { // its clocks have changed
		return err
	}
	if err := t.row([]any{(*[]byte)(&c.Output)}, `SELECT output FROM segments WHERE rollout_id = ? AND outcome = 'completed'`, c.RolloutID); err != nil {
		return err
	}
	stmt, err := t.prepare(selectResults)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background(), c.RolloutID)
	if err != nil {
		return err
	}
	c.Results, err = scanResults(rows)
	return err
}

func (t *tx) claimedEvent(c store.Claim) error {
	data := map[string]any{"segment": c.Segment, "attempt": c.Attempt}
	switch {
	case c.TakenOver:
		data["fault"] = gone
		return t.event(c.RunID, c.RolloutID, store.RolloutRetried, data)
	case c.Repeats:
		return t.touch(c.RunID) // it was announced when the attempt before it failed
	case c.Segment == 1:
		data["evaluationId"], data["evaluationName"], data["agent"], data["epoch"] = c.EvaluationID, c.EvaluationName, c.Agent, c.Epoch
		return t.event(c.RunID, c.RolloutID, store.RolloutStarted, data)
	}
	ids := []string{}
	for _, d := range c.Deliveries {
		ids = append(ids, d.ID)
	}
	data["triggerIds"] = ids
	return t.event(c.RunID, c.RolloutID, store.RolloutResumed, data)
}

func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
