package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const rolloutColumns = `o.rollout_id, o.run_id, o.evaluation_id, o.evaluation_name, o.agent, o.epoch, o.state, o.segment, o.attempt, o.failures,
	o.suspensions, o.fault, o.score, o.created_at, o.state_since, o.finished_at, o.working, o.waiting, o.queued, o.evaluating`

func scanRollout(r scanner, more ...any) (o Rollout, err error) {
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
	o.Clocks = Clocks{Working: duration(clocks[0]), Waiting: duration(clocks[1]), Queued: duration(clocks[2]), Evaluating: duration(clocks[3])}
	o.Fault, err = unmarshalFault(fault)
	return o, err
}

// Claim implements Store.
func (s *SQLite) Claim(ctx context.Context, runID string, limit int) (claims []Claim, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		claims = nil
		if err := t.register(); err != nil {
			return err
		}
		dead, err := t.deadHolders("rollouts")
		if err != nil {
			return err
		}
		var ids []string
		// What a process left behind comes first, then what has been runnable longest.
		if err := t.rows(func(r scanner) error {
			var id string
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		}, `SELECT rollout_id FROM (
				SELECT rollout_id, 0 AS rank, renewed_at AS since, ordinal FROM rollouts
				WHERE owner IS NOT NULL AND (lease_until <= ?1 OR owner IN (SELECT value FROM json_each(?2))) AND (?3 = '' OR run_id = ?3)
				UNION ALL
				SELECT rollout_id, 1, runnable_at, ordinal FROM rollouts
				WHERE runnable_at IS NOT NULL AND runnable_at <= ?1 AND (?3 = '' OR run_id = ?3))
			ORDER BY rank, since, ordinal LIMIT ?4`, t.now, dead, runID, limit); err != nil {
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

func (t *tx) claim(id string) (c Claim, err error) {
	var renewed sql.NullInt64
	var owner sql.NullString
	stmt, err := t.prepare("SELECT " + rolloutColumns + `, o.renewed_at, o.owner FROM rollouts o WHERE o.rollout_id = ?`)
	if err != nil {
		return c, err
	}
	before, err := scanRollout(stmt.QueryRowContext(context.Background(), id), &renewed, &owner)
	if err != nil {
		return c, err
	}
	c.TakenOver = owner.Valid
	if c.TakenOver {
		// Its holder worked until it last gave a sign of life; after that the rollout was only queued.
		if err := t.exec(`UPDATE rollouts SET queued = queued + max(?1 - max(?2, state_since), 0), state_since = state_since + max(?1 - max(?2, state_since), 0)
			WHERE rollout_id = ?3`, t.now, renewed.Int64, id); err != nil {
			return c, err
		}
	}
	state, segment, attempt, failures := StateRunning, before.Segment, before.Attempt+1, before.Failures
	switch {
	case before.State == StateEvaluating:
		state, attempt = StateEvaluating, before.Attempt
	case before.State == StateSuspended, before.Segment == 0:
		segment, attempt, failures = segment+1, 1, 0
	default:
		c.Repeats = true
	}
	if err := t.become(id, state); err != nil {
		return c, err
	}
	var evaluation int
	if err := t.row([]any{&c.Fence, &evaluation}, `UPDATE rollouts SET owner = ?, renewed_at = ?, lease_until = ?, fence = fence + 1, runnable_at = NULL,
			segment = ?, attempt = ?, failures = ? WHERE rollout_id = ? RETURNING fence, evaluation`,
		t.store.holder, t.now, t.after(t.store.lease), segment, attempt, failures, id); err != nil {
		return c, err
	}
	c.RolloutID = id
	if c.Rollout, err = scanRollout(stmt.QueryRowContext(context.Background(), id), &renewed, &owner); err != nil {
		return c, err
	}
	if err := t.row([]any{(*[]byte)(&c.Evaluation)}, "SELECT data FROM evaluations WHERE run_id = ? AND ordinal = ?", c.RunID, evaluation); err != nil {
		return c, err
	}
	if state == StateEvaluating {
		return c, t.claimEvaluating(&c)
	}
	if err := t.exec(`UPDATE triggers SET taken_by = ? WHERE rollout_id = ? AND taken_by = 0 AND state IN ('fired', 'faulted', 'expired', 'cancelled') AND ?`,
		segment, id, before.State == StateSuspended); err != nil {
		return c, err
	}
	if c.Deliveries, err = t.triggers("WHERE t.rollout_id = ? AND t.taken_by = ? ORDER BY t.id", id, segment); err != nil {
		return c, err
	}
	return c, t.claimedEvent(c)
}

// claimEvaluating adds what the evaluators still need to a claim.
func (t *tx) claimEvaluating(c *Claim) (err error) {
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

func (t *tx) claimedEvent(c Claim) error {
	data := map[string]any{"segment": c.Segment, "attempt": c.Attempt}
	switch {
	case c.TakenOver:
		data["fault"] = Fault{Category: "interrupted", Message: "the process that ran it is gone"}
		return t.event(c.RunID, c.RolloutID, RolloutRetried, data)
	case c.Repeats:
		return t.touch(c.RunID) // it was announced when the attempt before it failed
	case c.Segment == 1:
		data["evaluationId"], data["evaluationName"], data["agent"], data["epoch"] = c.EvaluationID, c.EvaluationName, c.Agent, c.Epoch
		return t.event(c.RunID, c.RolloutID, RolloutStarted, data)
	}
	ids := []string{}
	for _, d := range c.Deliveries {
		ids = append(ids, d.ID)
	}
	data["triggerIds"] = ids
	return t.event(c.RunID, c.RolloutID, RolloutResumed, data)
}

// register makes this process known before its first claim.
func (t *tx) register() error {
	p := t.store.process
	return t.exec("INSERT OR IGNORE INTO holders VALUES (?, ?, ?, ?, ?, ?)", t.store.holder, p.PID, p.StartTime, p.BootID, p.PIDNamespace, t.now)
}

// deadHolders returns, as a JSON array, those holders of something in a table whose process is certainly gone.
func (t *tx) deadHolders(table string) (string, error) {
	dead := []string{}
	err := t.rows(func(r scanner) error { return appendDead(&dead, r) }, selectHolders(table), t.store.holder)
	if err != nil {
		return "", err
	}
	list, err := json.Marshal(dead)
	return string(list), err
}

func selectHolders(table string) string {
	return `SELECT h.holder_id, h.pid, h.start_time, h.boot_id, h.pid_ns FROM holders h
		WHERE h.holder_id IN (SELECT owner FROM ` + table + ` WHERE owner IS NOT NULL) AND h.holder_id <> ?`
}

func appendDead(dead *[]string, r scanner) error {
	var id string
	var p Process
	err := r.Scan(&id, &p.PID, &p.StartTime, &p.BootID, &p.PIDNamespace)
	if err == nil && p.IsDead() {
		*dead = append(*dead, id)
	}
	return err
}

// Renew implements Store.
func (s *SQLite) Renew(ctx context.Context) (held, cancelled []string, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		held, cancelled = nil, nil
		if err := t.exec("UPDATE triggers SET due_at = ? WHERE owner = ?", t.after(s.lease), s.holder); err != nil {
			return err
		}
		if err := t.exec("UPDATE rollouts SET renewed_at = ?, lease_until = ? WHERE owner = ?", t.now, t.after(s.lease), s.holder); err != nil {
			return err
		}
		return t.rows(func(r scanner) error {
			var id string
			var cancel bool
			err := r.Scan(&id, &cancel)
			held = append(held, id)
			if cancel {
				cancelled = append(cancelled, id)
			}
			return err
		}, "SELECT rollout_id, cancel FROM rollouts WHERE owner = ?", s.holder)
	})
	return held, cancelled, err
}

// held checks that the bearer of a token still holds the rollout in one of the states.
func (t *tx) held(tok Token, states ...State) (Rollout, error) {
	stmt, err := t.prepare("SELECT " + rolloutColumns + ", o.owner, o.fence FROM rollouts o WHERE o.rollout_id = ?")
	if err != nil {
		return Rollout{}, err
	}
	var owner sql.NullString
	var fence int64
	o, err := scanRollout(stmt.QueryRowContext(context.Background(), tok.RolloutID), &owner, &fence)
	if errors.Is(err, sql.ErrNoRows) {
		return o, fmt.Errorf("rollout %s: %w", tok.RolloutID, ErrNotFound)
	}
	if err != nil {
		return o, err
	}
	if checkFence && (owner.String != t.store.holder || fence != tok.Fence) {
		return o, fmt.Errorf("rollout %s: %w", tok.RolloutID, ErrFenced)
	}
	if !checkFence {
		return o, nil
	}
	for _, state := range states {
		if o.State == state {
			return o, nil
		}
	}
	return o, fmt.Errorf("rollout %s is %s, not %s: %w", tok.RolloutID, o.State, strings.Join(names(states), " or "), ErrFenced)
}

func names(states []State) []string {
	out := make([]string, len(states))
	for i, s := range states {
		out[i] = string(s)
	}
	return out
}
