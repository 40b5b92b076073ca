package rules

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// triggerRows are the rows of triggers: what rollouts wait for.
type triggerRows struct {
	tx      *Tx
	holders holderRows
}

const triggerColumns = `t.trigger_id, t.run_id, t.rollout_id, o.evaluation_id, o.evaluation_name, o.agent, o.epoch, t.interrupt_id, t.occurrence, t.sibling, t.type, t.name,
	t.source, t.item_key, t.folder_path, t.folder_key, t.asked_by, t.evaluator_id, t.spec, t.state, t.segment, t.taken_by, t.created_at, t.started_at, t.deadline, t.due_at,
	t.overdue_since, t.checks, t.attempts, t.failures, t.last_error, t.checked_at, t.delivered_at, t.status, t.payload, t.fault, t.delivered_by, t.person, t.machine`

const selectTrigger = "SELECT " + triggerColumns + " FROM triggers t JOIN rollouts o ON o.rollout_id = t.rollout_id "

func scanTrigger(r scanner, more ...any) (g store.Trigger, err error) {
	var created, started, deadline, due, overdue, checked, delivered sql.NullInt64
	var status sql.NullString
	var spec, payload, fault []byte
	err = r.Scan(append([]any{&g.ID, &g.RunID, &g.RolloutID, &g.EvaluationID, &g.EvaluationName, &g.Agent, &g.Epoch,
		&g.InterruptID, &g.Occurrence, &g.Sibling, &g.Type, &g.Name,
		&g.Source, &g.ItemKey, &g.FolderPath, &g.FolderKey, &g.AskedBy, &g.EvaluatorID, &spec,
		&g.State, &g.Segment, &g.TakenBy, &created, &started, &deadline, &due,
		&overdue, &g.Checks, &g.Attempts, &g.Failures, &g.LastError, &checked, &delivered, &status,
		&payload, &fault, &g.DeliveredBy, &g.Person, &g.Machine}, more...)...)
	if err != nil {
		return g, err
	}
	g.Spec, g.Payload, g.Status = spec, payload, store.Status(status.String)
	g.CreatedAt, g.StartedAt, g.Deadline, g.NextDue, g.DeliveredAt =
		fromMicros(created), fromMicros(started), fromMicros(deadline), fromMicros(due), fromMicros(delivered)
	g.OverdueSince, g.CheckedAt = fromMicros(overdue), fromMicros(checked)
	g.Fault, err = unmarshalFault(fault)
	return g, err
}

// whereWaiting selects the triggers of a rollout that its agent still waits for, or whose delivery
// the agent has not taken yet. Questions of jobs are not among them: they resume nothing.
const whereWaiting = "WHERE t.rollout_id = ? AND t.evaluator_id = '' AND t.asked_by = '' AND t.taken_by = 0 AND t.state NOT IN ('consumed', 'superseded', 'abandoned') ORDER BY t.id"

// list returns the triggers that an SQL condition selects.
func (rows triggerRows) list(where string, args ...any) (out []store.Trigger, err error) {
	err = rows.tx.rows(func(r scanner) error {
		g, err := scanTrigger(r)
		out = append(out, g)
		return err
	}, selectTrigger+where, args...)
	return out, err
}

// foreign is the condition that the job of a trigger belongs to another machine than the one with
// this name and boot, which are SQL parameters. prefix comes before the names of the columns.
func foreign(prefix, name, boot string) string {
	return fmt.Sprintf(
		"(%[1]smachine <> '' AND %[1]smachine <> %[2]s AND (%[1]sboot_id = '' OR %[1]sboot_id <> %[3]s))", prefix, name, boot)
}

// elsewhere is the condition that such a trigger is not to be claimed here. It leaves out those
// that are overdue, because any machine may let a trigger expire. ?1 is now.
func elsewhere(prefix, name, boot string) string {
	return fmt.Sprintf(
		"(%s AND NOT (%[2]sstate IN ('intended', 'starting', 'waiting') AND coalesce(%[2]sdeadline <= ?1, FALSE)))",
		foreign(prefix, name, boot), prefix)
}

// due finds triggers to claim. Those that a dead process left come first, then those that have been
// due longest. A start that the limit of its source holds back is none of them.
func (rows triggerRows) due(runID string, limit int) ([]store.Trigger, error) {
	dead, err := rows.holders.dead("triggers")
	if err != nil {
		return nil, err
	}
	machine := rows.tx.db.machine
	here := " AND NOT " + elsewhere("t.", "?6", "?7") + " AND NOT " + heldBack("t.")
	args := []any{rows.tx.now, dead, runID, limit, rows.tx.db.holder, machine.Name, machine.BootID, rows.tx.db.working.list()}
	var left []store.Trigger
	if dead != "[]" {
		if left, err = rows.list(
			"WHERE t.owner IN (SELECT value FROM json_each(?2)) AND (?3 = '' OR t.run_id = ?3) AND ?5 <> ''"+here+
				" ORDER BY t.id LIMIT ?4",
			args...); err != nil {
			return nil, err
		}
	}
	args[3] = limit - len(left)
	due, err := rows.list(
		`WHERE t.due_at <= ?1 AND (t.owner IS NULL OR t.owner <> ?5 AND t.owner NOT IN (SELECT value FROM json_each(?2))
			OR `+forgotten("t.trigger_id", "?5", "?8")+`) AND (?3 = '' OR t.run_id = ?3)`+here+" ORDER BY t.due_at LIMIT ?4", args...)
	if err != nil {
		return nil, err
	}
	return rows.withinLimits(append(left, due...))
}

// claim gives a trigger that is due to this process, and says what to do with it.
func (rows triggerRows) claim(g store.Trigger) (store.TriggerClaim, error) {
	c := store.TriggerClaim{Trigger: g, TriggerToken: store.TriggerToken{TriggerID: g.ID}}
	machine := rows.tx.db.machine
	overdue := !g.Deadline.IsZero() && g.Deadline.UnixMicro() <= rows.tx.now
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
		// A job is cancelled once. If this process dies now, that was the one attempt.
		return c, rows.tx.Exec(
			"UPDATE triggers SET cancel = FALSE, due_at = NULL, owner = NULL, fence = fence + 1 WHERE trigger_id = ?", g.ID)
	}
	c.State, c.Attempts, c.Checks = state, g.Attempts+starting, g.Checks+1-starting
	c.Until = time.UnixMicro(rows.tx.after(rows.tx.db.lease)).UTC()
	if overdue && g.OverdueSince.IsZero() {
		c.OverdueSince = time.UnixMicro(rows.tx.now).UTC()
	}
	// Before a local job is started it is recorded where.
	if err := rows.tx.Row([]any{&c.Fence, &c.Machine, &c.Elsewhere},
		`UPDATE triggers SET state = ?1, owner = ?2, due_at = ?3, fence = fence + 1, overdue_since = ?4, attempts = ?5, checks = ?6,
				boot_id = CASE WHEN local AND machine = '' AND ?8 THEN ?10 ELSE boot_id END, machine = CASE WHEN local AND machine = '' AND ?8 THEN ?9 ELSE machine END
			WHERE trigger_id = ?7 RETURNING fence, machine, `+foreign("", "?9", "?10"),
		string(state), rows.tx.db.holder, rows.tx.after(rows.tx.db.lease), micros(c.OverdueSince), c.Attempts, c.Checks, g.ID,
		starting == 1, machine.Name, machine.BootID); err != nil || state == g.State {
		return c, err
	}
	return c, rows.tx.touch(g.RunID)
}

// claimEnd is how a claim on a trigger ends. failure is nil if the source has answered.
type claimEnd struct {
	next    time.Duration
	started bool
	failure *store.TriggerFailure
}

// release ends a claim on a trigger, and returns the fields of the trigger that say where it
// belongs. A trigger that was delivered in the meantime has no claim any more. One that was given
// up while its job was being started still has its claim: the job, if it can have begun, is
// cancelled now.
func (rows triggerRows) release(tok store.TriggerToken, end claimEnd) (g store.Trigger, err error) {
	var failure store.TriggerFailure
	if end.failure != nil {
		failure = *end.failure
	}
	failed, notStarted := end.failure != nil && !failure.NotTried, failure.NotStarted
	g.ID = tok.TriggerID
	var failedBefore int
	if err := rows.tx.Row([]any{&failedBefore},
		"SELECT failures FROM triggers WHERE trigger_id = ?", g.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
		return g, err
	}
	err = rows.tx.Row([]any{&g.Source, &g.RunID, &g.RolloutID, &g.Segment, &g.EvaluatorID, &g.Occurrence},
		`UPDATE triggers SET owner = NULL, cancel = cancel AND NOT ?7,
			next_check = CASE WHEN cancel THEN NULL ELSE ?1 END,
			due_at = CASE WHEN cancel AND ?7 THEN NULL WHEN cancel THEN ?3 WHEN overdue_since IS NOT NULL THEN max(coalesce(?1, ?3), ?3)
				WHEN NOT ?8 AND `+hasAnswer+` THEN ?3
				ELSE max(min(coalesce(?1, deadline), coalesce(deadline, ?1)), ?3) END,
			state = CASE WHEN cancel THEN state WHEN ?2 THEN 'waiting' WHEN ?7 AND state = 'starting' THEN 'intended' ELSE state END,
			started_at = CASE WHEN ?2 THEN ?3 ELSE started_at END,
			failures = CASE WHEN ?8 THEN failures + 1 WHEN ?10 THEN failures ELSE 0 END, last_error = CASE WHEN ?10 THEN last_error ELSE ?9 END,
			attempts = attempts - CASE WHEN ?10 AND ?7 AND state = 'starting' THEN 1 ELSE 0 END, machine = CASE WHEN ?7 AND state = 'starting' THEN '' ELSE machine END,
			checked_at = CASE WHEN state = 'waiting' AND NOT ?10 THEN ?3 ELSE checked_at END
		WHERE trigger_id = ?4 AND owner = ?5 AND fence = ?6 AND (state IN ('intended', 'starting', 'waiting') OR cancel) RETURNING source, run_id, rollout_id, segment, evaluator_id, occurrence`,
		rows.tx.due(end.next), end.started, rows.tx.now, tok.TriggerID, rows.tx.db.holder, tok.Fence, notStarted, failed,
		failure.Error, failure.NotTried)
	if errors.Is(err, store.ErrNotFound) {
		return g, fmt.Errorf("trigger %s was taken over, or nobody waits for it any more: %w", tok.TriggerID, store.ErrFenced)
	}
	if err != nil || !end.started && !failed && !notStarted && (failedBefore == 0 || failure.NotTried) {
		return g, err // that it still waits is nothing new
	}
	return g, rows.tx.touch(g.RunID)
}

// abandon gives up every trigger of a rollout whose interrupt is not named any more. Its job is
// cancelled if the source can do that.
func (rows triggerRows) abandon(rolloutID string, named map[string]bool) error {
	waiting, err := rows.list(whereWaiting, rolloutID)
	if err != nil {
		return err
	}
	for _, g := range waiting {
		if named[g.InterruptID] {
			continue
		}
		if err := rows.giveUp(g.ID, store.TriggerAbandoned); err != nil {
			return err
		}
	}
	return nil
}

// giveUp ends a trigger that nobody waits for any more. If its job may be running, the trigger
// becomes due once more to have it cancelled. If the job is being started at this moment, that
// comes later, when its key is known. A trigger whose job is to be cancelled already stays due for
// that.
func (rows triggerRows) giveUp(triggerID string, state store.TriggerState) error {
	rows.tx.wake = true
	if err := rows.endQuestions(triggerID); err != nil {
		return err
	}
	// Perhaps nobody waits for its batch any more. Then the batch is cancelled.
	if err := rows.tx.Exec(
		"UPDATE judge_batches SET due_at = ? WHERE batch_id = (SELECT batch_id FROM judge_requests WHERE trigger_id = ?) AND owner IS NULL AND due_at IS NOT NULL",
		rows.tx.now, triggerID); err != nil {
		return err
	}
	return rows.tx.Exec(
		`UPDATE triggers SET state = ?2, next_check = NULL, cancel = cancel OR checked AND state IN ('starting', 'waiting'),
			due_at = CASE WHEN cancel OR checked AND state = 'starting' AND owner IS NOT NULL THEN due_at WHEN checked AND state IN ('starting', 'waiting') THEN ?1 END,
			fence = CASE WHEN cancel OR checked AND state = 'starting' AND owner IS NOT NULL THEN fence ELSE fence + 1 END,
			owner = CASE WHEN cancel OR checked AND state = 'starting' THEN owner END
		WHERE trigger_id = ?3`, rows.tx.now, string(state), triggerID)
}

// keepJobs marks the jobs of some sources, so that they are not cancelled with the rollout that
// waits for them.
func (rows triggerRows) keepJobs(rolloutID string, sources []string) error {
	for _, source := range sources {
		if err := rows.tx.Exec(
			"UPDATE triggers SET checked = FALSE WHERE rollout_id = ? AND source = ? AND state IN ('intended', 'starting', 'waiting')",
			rolloutID, source); err != nil {
			return err
		}
	}
	return nil
}
