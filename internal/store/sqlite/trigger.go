package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

const selectTrigger = `SELECT t.trigger_id, t.run_id, t.rollout_id, o.evaluation_id, o.evaluation_name, t.interrupt_id, t.occurrence, t.sibling, t.type, t.name,
	t.source, t.item_key, t.folder_path, t.folder_key, t.spec, t.state, t.segment, t.taken_by, t.created_at, t.started_at, t.deadline, t.due_at,
	t.overdue_since, t.checks, t.attempts, t.failures, t.last_error, t.delivered_at, t.status, t.payload, t.fault FROM triggers t JOIN rollouts o ON o.rollout_id = t.rollout_id `

func scanTrigger(r scanner) (g store.Trigger, err error) {
	var created, started, deadline, due, overdue, delivered sql.NullInt64
	var status sql.NullString
	var spec, payload, fault []byte
	err = r.Scan(&g.ID, &g.RunID, &g.RolloutID, &g.EvaluationID, &g.EvaluationName, &g.InterruptID, &g.Occurrence, &g.Sibling, &g.Type, &g.Name,
		&g.Source, &g.ItemKey, &g.FolderPath, &g.FolderKey, &spec, &g.State, &g.Segment, &g.TakenBy, &created, &started, &deadline, &due,
		&overdue, &g.Checks, &g.Attempts, &g.Failures, &g.LastError, &delivered, &status, &payload, &fault)
	if err != nil {
		return g, err
	}
	g.Spec, g.Payload, g.Status = spec, payload, store.Status(status.String)
	g.CreatedAt, g.StartedAt, g.Deadline, g.NextDue, g.DeliveredAt = fromMicros(created), fromMicros(started), fromMicros(deadline), fromMicros(due), fromMicros(delivered)
	g.OverdueSince = fromMicros(overdue)
	g.Fault, err = unmarshalFault(fault)
	return g, err
}

func (t *tx) triggers(where string, args ...any) (out []store.Trigger, err error) {
	err = t.rows(func(r scanner) error {
		g, err := scanTrigger(r)
		out = append(out, g)
		return err
	}, selectTrigger+where, args...)
	return out, err
}

// ClaimTriggers implements Store.
func (s *SQLite) ClaimTriggers(ctx context.Context, runID string, limit int) (claims []store.TriggerClaim, err error) {
	if limit <= 0 {
		return nil, nil
	}
	if err := s.InPlace(); err != nil {
		return nil, err
	}
	err = s.writeOp(ctx, func(t *tx) error {
		claims = nil
		due, err := t.dueTriggers(runID, limit)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := t.register(); err != nil {
			return err
		}
		for _, g := range due {
			c, err := t.claimTrigger(g)
			if err != nil {
				return fmt.Errorf("claiming trigger %s: %w", g.ID, err)
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

// dueTriggers finds triggers to claim: what a process left behind comes first, then what has been due longest.
func (t *tx) dueTriggers(runID string, limit int) ([]store.Trigger, error) {
	dead, err := t.deadHolders("triggers")
	if err != nil {
		return nil, err
	}
	var left []store.Trigger
	if dead != "[]" {
		if left, err = t.triggers("WHERE t.owner IN (SELECT value FROM json_each(?1)) AND (?2 = '' OR t.run_id = ?2) ORDER BY t.id LIMIT ?3", dead, runID, limit); err != nil {
			return nil, err
		}
	}
	due, err := t.triggers(`WHERE t.due_at <= ?1 AND (t.owner IS NULL OR t.owner <> ?2 AND t.owner NOT IN (SELECT value FROM json_each(?3)))
		AND (?4 = '' OR t.run_id = ?4) ORDER BY t.due_at LIMIT ?5`, t.now, t.store.holder, dead, runID, limit-len(left))
	return append(left, due...), err
}

func (t *tx) claimTrigger(g store.Trigger) (store.TriggerClaim, error) {
	c := store.TriggerClaim{Trigger: g, TriggerToken: store.TriggerToken{TriggerID: g.ID}}
	overdue := !g.Deadline.IsZero() && g.Deadline.UnixMicro() <= t.now
	state, starting := g.State, 0
	switch {
	case !g.State.IsOpen():
		c.Action = store.ActionCancel
	case g.State == store.TriggerStarting: // also if it is overdue: its job may be running, and is looked for then
		c.Action, starting = store.ActionResolve, 1
	case overdue:
		c.Action = store.ActionExpire
	case g.State == store.TriggerIntended:
		c.Action, state, starting = store.ActionStart, intendedBecomes, 1
	default:
		c.Action = store.ActionCheck
	}
	if c.Action == store.ActionCancel {
		// Tried once: whoever dies now has tried.
		return c, t.exec("UPDATE triggers SET cancel = 0, due_at = NULL, owner = NULL, fence = fence + 1 WHERE trigger_id = ?", g.ID)
	}
	c.State, c.Attempts, c.Checks = state, g.Attempts+starting, g.Checks+1-starting
	c.Until = time.UnixMicro(t.after(t.store.lease)).UTC()
	if overdue && g.OverdueSince.IsZero() {
		c.OverdueSince = time.UnixMicro(t.now).UTC()
	}
	if err := t.row([]any{&c.Fence}, `UPDATE triggers SET state = ?, owner = ?, due_at = ?, fence = fence + 1, overdue_since = ?, attempts = ?, checks = ?
			WHERE trigger_id = ? RETURNING fence`,
		string(state), t.store.holder, t.after(t.store.lease), micros(c.OverdueSince), c.Attempts, c.Checks, g.ID); err != nil || state == g.State {
		return c, err
	}
	return c, t.touch(g.RunID)
}

// TriggerStarted implements Store.
func (s *SQLite) TriggerStarted(ctx context.Context, tok store.TriggerToken, itemKey string, next time.Time) error {
	return s.writeOp(ctx, func(t *tx) error {
		g, err := t.release(tok, release{next: next, started: true})
		if err != nil || itemKey == "" {
			return err
		}
		g.ItemKey = itemKey
		if err := t.exec("UPDATE triggers SET item_key = ? WHERE trigger_id = ?", itemKey, g.ID); err != nil {
			return err
		}
		if accepted, err := t.openMailbox(g); err != nil || !accepted {
			return err
		}
		return t.settleDelivered(g)
	})
}

// TriggerPending implements Store.
func (s *SQLite) TriggerPending(ctx context.Context, tok store.TriggerToken, next time.Time) error {
	// If a power cut takes it back, the source is asked once more when the claim has ended.
	return s.writeRelaxed(ctx, func(t *tx) error {
		_, err := t.release(tok, release{next: next})
		return err
	})
}

// TriggerFailed implements Store.
func (s *SQLite) TriggerFailed(ctx context.Context, tok store.TriggerToken, next time.Time, f store.TriggerFailure) error {
	return s.writeOp(ctx, func(t *tx) error {
		_, err := t.release(tok, release{next: next, failure: &f})
		return err
	})
}

// release is how a claim on a trigger ends. failure is nil if the source has answered.
type release struct {
	next    time.Time
	started bool
	failure *store.TriggerFailure
}

// release gives up a claim on a trigger, and returns as much of it as says where it belongs. A trigger that was delivered in the meantime
// has no claim any more. One that was given up while its job was being started has: the job is cancelled now, if it can have begun.
func (t *tx) release(tok store.TriggerToken, r release) (g store.Trigger, err error) {
	failed, notStarted, message := r.failure != nil, false, ""
	if failed {
		notStarted, message = r.failure.NotStarted, r.failure.Error
	}
	g.ID = tok.TriggerID
	err = t.row([]any{&g.Source, &g.RunID, &g.RolloutID, &g.Segment}, `UPDATE triggers SET owner = NULL, cancel = cancel AND NOT ?7,
			next_check = CASE WHEN cancel THEN NULL ELSE ?1 END,
			due_at = CASE WHEN cancel AND ?7 THEN NULL WHEN cancel THEN ?3 WHEN overdue_since IS NOT NULL THEN max(coalesce(?1, ?3), ?3)
				ELSE max(min(coalesce(?1, deadline), coalesce(deadline, ?1)), ?3) END,
			state = CASE WHEN cancel THEN state WHEN ?2 THEN 'waiting' WHEN ?7 AND state = 'starting' THEN 'intended' ELSE state END,
			started_at = CASE WHEN ?2 THEN ?3 ELSE started_at END,
			failures = CASE WHEN ?8 THEN failures + 1 ELSE 0 END, last_error = ?9
		WHERE trigger_id = ?4 AND owner = ?5 AND fence = ?6 AND (state IN ('intended', 'starting', 'waiting') OR cancel) RETURNING source, run_id, rollout_id, segment`,
		micros(r.next), r.started, t.now, tok.TriggerID, t.store.holder, tok.Fence, notStarted, failed, message)
	if errors.Is(err, store.ErrNotFound) {
		return g, fmt.Errorf("trigger %s was taken over, or nobody waits for it any more: %w", tok.TriggerID, store.ErrFenced)
	}
	if err != nil || !r.started && !notStarted {
		return g, err // that it still waits is nothing new
	}
	return g, t.touch(g.RunID)
}

// CheckNow implements Store.
func (s *SQLite) CheckNow(ctx context.Context, runID string) error {
	where, args := "", []any{}
	if runID != "" {
		where, args = " AND run_id = ?2", append(args, runID)
	}
	return s.writeOp(ctx, func(t *tx) error {
		return t.exec("UPDATE triggers SET due_at = ?1 WHERE state IN ('intended', 'starting', 'waiting') AND checked AND owner IS NULL AND (due_at IS NULL OR due_at > ?1)"+where,
			append([]any{t.now}, args...)...)
	})
}

// CheckTrigger implements Store.
func (s *SQLite) CheckTrigger(ctx context.Context, triggerID string) error {
	return s.writeOp(ctx, func(t *tx) error {
		return t.exec("UPDATE triggers SET due_at = ? WHERE trigger_id = ? AND state = 'waiting' AND owner IS NULL", t.now, triggerID)
	})
}

// Triggers implements Store.
func (s *SQLite) Triggers(ctx context.Context, runID string, all bool, f func(store.Trigger) error) (err error) {
	defer func() { err = s.describe(err) }()
	where, args := "WHERE true", []any{}
	if runID != "" {
		where, args = "WHERE t.run_id = ?", append(args, runID)
	}
	if !all {
		where += " AND t.state IN ('intended', 'starting', 'waiting')"
	}
	rows, err := s.read.QueryContext(ctx, selectTrigger+where+" ORDER BY t.id", args...)
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

// Trigger implements Store.
func (s *SQLite) Trigger(ctx context.Context, id string) (g store.Trigger, err error) {
	defer func() { err = s.describe(err) }()
	if len(id) < 4 {
		return store.Trigger{}, fmt.Errorf("trigger %q: %w; give at least 4 characters of its id", id, store.ErrNotFound)
	}
	rows, err := s.read.QueryContext(ctx, selectTrigger+"WHERE t.trigger_id >= ? AND t.trigger_id < ? LIMIT 2", id, id+"\x7f")
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
	return store.Trigger{}, fmt.Errorf("trigger %s: several begin like this; give more of the id: %w", id, store.ErrNotFound)
}
