package rules

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// segments begins and ends the segments of rollouts.
type segments struct {
	tx       *Tx
	holders  holderRows
	rollouts rolloutRows
	triggers triggerRows
	mail     mail
	kept     keptRows
}

// claimable finds rollouts to claim. Those that a process left behind come first, then those that are
// next in their lanes. A lease of this process is not void for itself: it goes on when it can renew
// again. But what it does not know of it takes again at once. What it works on although the claim was
// taken back it leaves alone.
func (s segments) claimable(runID string, limit int) (ids []string, err error) {
	dead, err := s.holders.dead("rollouts")
	if err != nil {
		return nil, err
	}
	working := s.tx.db.working.list()
	if err := s.tx.rows(func(r scanner) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT rollout_id FROM rollouts
		WHERE owner IS NOT NULL AND (owner <> ?1 AND (`+lapsed("?2")+` OR owner IN (SELECT value FROM json_each(?3)))
			OR `+forgotten("rollout_id", "?1", "?6")+`) AND (?4 = '' OR run_id = ?4) AND `+fits("?7")+`
		ORDER BY renewed_at, ordinal, run_id LIMIT ?5`,
		s.tx.db.holder, s.tx.now, dead, runID, limit, working, s.tx.db.tags); err != nil || len(ids) == limit {
		return ids, err
	}
	next, err := s.nextInLanes(runID, limit-len(ids), working)
	return append(ids, next...), err
}

// notBegun is the condition that this process does not work already on a rollout that can be claimed,
// by a claim of the list working that was taken back.
func notBegun(working string) string {
	return "rollout_id || ' ' || (fence + 1) NOT IN (SELECT value FROM json_each(" + working + "))"
}

// beginning is a claim while it is made.
type beginning struct {
	store.Claim
	before store.Rollout
	owner  sql.NullString
	// state, segment, attempt and failures are what the rollout has next.
	state                      eval.State
	segment, attempt, failures int
	// lost says that the answer to an earlier claim was lost.
	lost bool
}

// claim begins the next segment of each of some rollouts, or repeats the last one, or goes on with its
// evaluators.
func (s segments) claim(ids []string) ([]store.Claim, error) {
	all := make([]*beginning, len(ids))
	for i, id := range ids {
		all[i] = &beginning{}
		all[i].RolloutID = id
	}
	id := func(i int) []any { return []any{ids[i]} }
	if err := s.tx.rowOfEach(len(ids), selectClaimed, id, func(i int, r scanner) (err error) {
		c := all[i]
		c.before, err = scanRollout(r, &c.owner, (*[]byte)(&c.Evaluation))
		return err
	}); err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.before.ID == "" || c.Evaluation == nil {
			return nil, fmt.Errorf("rollout %s, or its evaluation: %w", c.RolloutID, store.ErrNotFound)
		}
		if err := s.decide(c); err != nil {
			return nil, err
		}
	}
	if err := s.tx.rowOfEach(len(ids), updateClaimed, func(i int) []any {
		c := all[i]
		return []any{s.tx.now, string(c.state), s.tx.db.holder, s.tx.after(s.tx.db.lease), c.segment, c.attempt, c.failures, c.RolloutID}
	}, func(i int, r scanner) (err error) {
		all[i].Rollout, err = scanRollout(r, &all[i].Fence, &all[i].Cancelled)
		return err
	}); err != nil {
		return nil, err
	}
	claims := make([]store.Claim, len(all))
	for i, c := range all {
		if err := s.begin(c); err != nil {
			return nil, fmt.Errorf("rollout %s: %w", c.RolloutID, err)
		}
		claims[i] = c.Claim
	}
	return claims, nil
}

const selectClaimed = "SELECT " + rolloutColumns + `, o.owner, (SELECT e.data FROM evaluations e WHERE e.run_id = o.run_id AND e.ordinal = o.evaluation)
	FROM rollouts o WHERE o.rollout_id = ?`

var updateClaimed = "UPDATE rollouts AS o SET " + stateChange + `, owner = ?3, renewed_at = ?1, lease_until = ?4, fence = fence + 1, runnable_at = NULL,
	segment = ?5, attempt = ?6, failures = ?7,
	internal_failures = CASE WHEN segment = ?5 THEN internal_failures ELSE 0 END WHERE rollout_id = ?8 RETURNING ` +
	strings.ReplaceAll(rolloutColumns, "o.", "") + ", fence, cancel"

// decide says what a rollout is claimed for.
func (s segments) decide(c *beginning) error {
	before := c.before
	c.lost = c.owner.String == s.tx.db.holder
	c.TakenOver = c.owner.Valid && !c.lost
	if c.lost {
		if _, err := s.rollouts.countAs("queued", before, s.tx.now-before.StateSince.UnixMicro()); err != nil {
			return err
		}
	}
	if c.TakenOver {
		if err := s.rollouts.takeOver(before); err != nil {
			return err
		}
	}
	c.state, c.segment, c.attempt, c.failures = eval.StateRunning, before.Segment, before.Attempt+1, before.Failures
	switch {
	case before.State == eval.StateEvaluating, before.State == eval.StateScoring:
		c.state, c.attempt = eval.StateEvaluating, before.Attempt
	case c.lost:
		c.attempt, c.Repeats = before.Attempt, before.Attempt > 1
	case before.State == eval.StateSuspended, before.Segment == 0:
		c.segment, c.attempt, c.failures = c.segment+1, 1, 0
	default:
		c.Repeats = true
	}
	return nil
}

// begin adds to a claim what its holder needs, and announces it.
func (s segments) begin(c *beginning) (err error) {
	if c.state == eval.StateEvaluating {
		return s.claimEvaluating(&c.Claim)
	}
	if c.before.State == eval.StateSuspended {
		// A delivery that the agent cannot take stays. The next suspension settles it.
		if err := s.tx.Exec(
			`UPDATE triggers SET taken_by = ?1 WHERE rollout_id = ?2 AND evaluator_id = '' AND asked_by = '' AND taken_by = 0 AND (state = 'fired'
			OR state IN ('faulted', 'expired', 'cancelled') AND (SELECT accepts_faults FROM rollouts WHERE rollout_id = ?2))`,
			c.segment, c.RolloutID); err != nil {
			return err
		}
	}
	if c.segment > 1 {
		if c.Deliveries, err = s.triggers.list(
			"WHERE t.rollout_id = ? AND t.taken_by = ? ORDER BY t.id", c.RolloutID, c.segment); err != nil {
			return err
		}
	}
	if c.lost {
		return s.tx.touch(c.RunID) // it was announced by the claim whose answer was lost
	}
	return s.claimedEvent(c.Claim)
}

// claimEvaluating adds what the evaluators still need to a claim.
func (s segments) claimEvaluating(c *store.Claim) (err error) {
	if err := s.tx.touch(c.RunID); err != nil { // its clocks have changed
		return err
	}
	if err := s.tx.Row([]any{(*[]byte)(&c.Output)},
		`SELECT output FROM segments WHERE rollout_id = ? AND outcome = 'completed'`, c.RolloutID); err != nil {
		return err
	}
	stmt, err := s.tx.prepare(selectResults)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background(), c.RolloutID)
	if err != nil {
		return err
	}
	if c.Results, err = scanResults(rows); err != nil || c.Scorings == 0 {
		return err
	}
	return s.claimWaiting(c)
}

func (s segments) claimedEvent(c store.Claim) error {
	data := map[string]any{"segment": c.Segment, "attempt": c.Attempt}
	switch {
	case c.TakenOver:
		data["fault"] = gone
		return s.tx.event(c.RunID, c.RolloutID, store.RolloutRetried, data)
	case c.Repeats:
		return s.tx.touch(c.RunID) // it was announced when the attempt before it failed
	case c.Segment == 1:
		data["evaluationId"], data["evaluationName"], data["agent"], data["epoch"] =
			c.EvaluationID, c.EvaluationName, c.Agent, c.Epoch
		return s.tx.event(c.RunID, c.RolloutID, store.RolloutStarted, data)
	}
	ids := []string{}
	for _, d := range c.Deliveries {
		ids = append(ids, d.ID)
	}
	data["triggerIds"] = ids
	return s.tx.event(c.RunID, c.RolloutID, store.RolloutResumed, data)
}
