package store

import (
	"context"
	"fmt"
	"time"
)

// CommitSegment implements Store.
func (s *SQLite) CommitSegment(ctx context.Context, tok Token, end SegmentEnd) (done Committed, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, StateRunning)
		if err != nil {
			return err
		}
		t.wake = true
		done = Committed{}
		done.State, err = t.commitSegment(o, end, &done)
		return err
	})
	return done, err
}

func (t *tx) commitSegment(o Rollout, end SegmentEnd, done *Committed) (State, error) {
	if err := t.exec("INSERT OR REPLACE INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", o.ID, o.Segment, o.Attempt, string(end.Outcome),
		o.StateSince.UnixMicro(), t.now, raw(end.Output), marshal(end.Fault), marshal(end.Files)); err != nil {
		return "", err
	}
	repeated := end.Outcome == OutcomeInterrupted || (end.Outcome == OutcomeFailed && end.Retry)
	if !repeated {
		if err := t.exec("UPDATE triggers SET state = 'consumed' WHERE rollout_id = ? AND taken_by = ? AND state IN ('fired', 'faulted', 'expired', 'cancelled')",
			o.ID, o.Segment); err != nil {
			return "", err
		}
	}
	switch {
	case end.Outcome == OutcomeCompleted:
		if err := t.abandon(o.ID, nil); err != nil {
			return "", err
		}
		if err := t.touch(o.RunID); err != nil {
			return "", err
		}
		return StateEvaluating, t.become(o.ID, StateEvaluating) // still held
	case end.Outcome == OutcomeSuspended:
		return t.suspend(o, end, done)
	case repeated:
		return StatePending, t.repeat(o, end)
	case end.Outcome == OutcomeCancelled:
		if err := t.abandon(o.ID, nil); err != nil {
			return "", err
		}
		return StateCancelled, t.end(o.ID, StateCancelled, nil, nil)
	}
	if err := t.abandon(o.ID, nil); err != nil {
		return "", err
	}
	return StateFaulted, t.end(o.ID, StateFaulted, end.Fault, nil)
}

// repeat puts a rollout back so that its segment is tried again.
func (t *tx) repeat(o Rollout, end SegmentEnd) error {
	failures := o.Failures
	if end.Outcome == OutcomeFailed {
		failures++
	}
	if err := t.become(o.ID, StatePending); err != nil {
		return err
	}
	if err := t.exec("UPDATE rollouts SET owner = NULL, lease_until = NULL, failures = ?, runnable_at = ? WHERE rollout_id = ?",
		failures, t.after(end.RetryAfter), o.ID); err != nil {
		return err
	}
	data := map[string]any{"segment": o.Segment, "attempt": o.Attempt + 1, "afterMs": end.RetryAfter.Milliseconds()}
	if end.Fault != nil {
		data["fault"] = end.Fault
	}
	return t.event(o.RunID, o.ID, RolloutRetried, data)
}

// suspend makes the triggers of a suspension. An interrupt that is open already keeps its triggers; an id that comes
// again after it was consumed is a new occurrence; an open one that the agent no longer names is abandoned.
func (t *tx) suspend(o Rollout, end SegmentEnd, done *Committed) (State, error) {
	if err := t.become(o.ID, StateSuspended); err != nil {
		return "", err
	}
	if err := t.exec("UPDATE rollouts SET owner = NULL, lease_until = NULL, suspensions = suspensions + 1 WHERE rollout_id = ?", o.ID); err != nil {
		return "", err
	}
	named := map[string]bool{}
	for _, n := range end.Triggers {
		named[n.InterruptID] = true
	}
	if err := t.abandon(o.ID, named); err != nil {
		return "", err
	}
	if err := t.addTriggers(o, end.Triggers); err != nil {
		return "", err
	}
	if end.SuspendTimeout > 0 {
		if err := t.exec(`UPDATE triggers SET deadline = ?1, due_at = min(coalesce(due_at, ?1), ?1)
			WHERE rollout_id = ?2 AND state IN ('intended', 'starting', 'waiting')`, t.after(end.SuspendTimeout), o.ID); err != nil {
			return "", err
		}
	}
	if err := t.suspendedEvent(o); err != nil {
		return "", err
	}
	return t.settle(o.ID, done)
}

// addTriggers makes the triggers of those interrupts that are not open already.
func (t *tx) addTriggers(o Rollout, triggers []NewTrigger) error {
	type interrupt struct{ occurrence, siblings, open int }
	interrupts := map[string]*interrupt{}
	for _, n := range triggers {
		in := interrupts[n.InterruptID]
		if in == nil {
			in = new(interrupt)
			interrupts[n.InterruptID] = in
			if err := t.row([]any{&in.open, &in.occurrence}, `SELECT coalesce(sum(taken_by = 0 AND state NOT IN ('consumed', 'superseded', 'abandoned')), 0),
				coalesce(max(occurrence), -1) + 1 FROM triggers WHERE rollout_id = ? AND interrupt_id = ?`, o.ID, n.InterruptID); err != nil {
				return err
			}
		}
		if in.open > 0 {
			continue
		}
		if err := t.addTrigger(o, n, in.occurrence, in.siblings); err != nil {
			return err
		}
		in.siblings++
	}
	return nil
}

func (t *tx) addTrigger(o Rollout, n NewTrigger, occurrence, sibling int) error {
	id := TriggerID(o.ID, n.InterruptID, occurrence, sibling)
	key := n.ItemKey
	if key == "" {
		key = n.KeyPrefix + id
	}
	state, next := TriggerWaiting, micros(n.NextCheck)
	switch {
	case n.Start:
		state, next = TriggerIntended, t.now
	case n.Checked && next == nil:
		next = t.now
	}
	if err := t.exec(`INSERT INTO triggers (trigger_id, run_id, rollout_id, interrupt_id, occurrence, sibling, type, name, source, item_key,
			folder_path, folder_key, spec, state, checked, segment, created_at, next_check, due_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, id, o.RunID, o.ID, n.InterruptID, occurrence, sibling, n.Type, n.Name, n.Source, key,
		n.FolderPath, n.FolderKey, []byte(n.Spec), string(state), n.Checked, o.Segment, t.now, next, next); err != nil {
		return fmt.Errorf("interrupt %q: %w", n.InterruptID, err)
	}
	return t.openMailbox(id, n.Source, key)
}

// abandon gives up every trigger of a rollout whose interrupt is not named any more; its job is cancelled where the source can.
func (t *tx) abandon(rolloutID string, named map[string]bool) error {
	type open struct {
		id, interrupt string
	}
	var gone []open
	if err := t.rows(func(r scanner) error {
		var o open
		err := r.Scan(&o.id, &o.interrupt)
		if !named[o.interrupt] {
			gone = append(gone, o)
		}
		return err
	}, `SELECT trigger_id, interrupt_id FROM triggers WHERE rollout_id = ? AND taken_by = 0 AND state NOT IN ('consumed', 'superseded', 'abandoned')`, rolloutID); err != nil {
		return err
	}
	for _, o := range gone {
		if err := t.giveUp(o.id, TriggerAbandoned); err != nil {
			return err
		}
	}
	return nil
}

// giveUp ends a trigger that nobody waits for any more. If its job may be running it becomes due once more, to be cancelled.
func (t *tx) giveUp(triggerID string, state TriggerState) error {
	return t.exec(`UPDATE triggers SET cancel = checked AND state IN ('starting', 'waiting'),
			due_at = CASE WHEN checked AND state IN ('starting', 'waiting') THEN ?1 END, owner = NULL, fence = fence + 1, state = ?2
		WHERE trigger_id = ?3`, t.now, string(state), triggerID)
}

func (t *tx) suspendedEvent(o Rollout) error {
	triggers, err := t.triggers("WHERE t.rollout_id = ? AND t.taken_by = 0 AND t.state NOT IN ('consumed', 'superseded', 'abandoned') ORDER BY t.id", o.ID)
	if err != nil {
		return err
	}
	list := []map[string]any{}
	for _, g := range triggers {
		item := map[string]any{"triggerId": g.ID, "interruptId": g.InterruptID, "type": g.Type, "source": g.Source, "itemKey": g.ItemKey}
		if !g.Deadline.IsZero() {
			item["deadline"] = g.Deadline
		}
		list = append(list, item)
	}
	return t.event(o.RunID, o.ID, RolloutSuspended, map[string]any{"segment": o.Segment, "triggers": list})
}

// settle looks whether a suspended rollout can go on with what has arrived, or has to fault with it.
func (t *tx) settle(rolloutID string, done *Committed) (State, error) {
	var state State
	var all, acceptsFaults bool
	if err := t.row([]any{&state, &all, &acceptsFaults}, "SELECT state, resume_all, accepts_faults FROM rollouts WHERE rollout_id = ?", rolloutID); err != nil {
		return "", err
	}
	if state != StateSuspended {
		return state, nil
	}
	triggers, err := t.triggers("WHERE t.rollout_id = ? AND t.taken_by = 0 AND t.state NOT IN ('consumed', 'superseded', 'abandoned') ORDER BY t.id", rolloutID)
	if err != nil {
		return "", err
	}
	var arrived, open int
	for _, g := range triggers {
		switch {
		case g.State.IsOpen():
			open++
		case g.State != TriggerFired && !acceptsFaults:
			if err := t.abandon(rolloutID, map[string]bool{g.InterruptID: true}); err != nil {
				return "", err
			}
			return StateFaulted, t.end(rolloutID, StateFaulted, deliveredFault(g), nil)
		default:
			arrived++
		}
	}
	done.Ready = arrived > 0 && (open == 0 || !all)
	if !done.Ready {
		return state, nil
	}
	return state, t.exec("UPDATE rollouts SET runnable_at = coalesce(runnable_at, ?) WHERE rollout_id = ?", t.now, rolloutID)
}

// deliveredFault is the fault of a rollout whose agent cannot take what was delivered.
func deliveredFault(g Trigger) *Fault {
	if g.Fault != nil {
		return g.Fault
	}
	return &Fault{Category: "job", Message: fmt.Sprintf("what it waited for (%s %s) was %s", g.Type, g.ItemKey, g.Status)}
}

// RecordResult implements Store.
func (s *SQLite) RecordResult(ctx context.Context, tok Token, r Result) error {
	return s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, StateEvaluating)
		if err != nil {
			return err
		}
		if err := t.exec("INSERT INTO results VALUES (?1, ?2, (SELECT count(*) FROM results WHERE rollout_id = ?1), ?3)",
			tok.RolloutID, r.EvaluatorID, []byte(r.Data)); err != nil {
			return err
		}
		return t.touch(o.RunID)
	})
}

// Finish implements Store.
func (s *SQLite) Finish(ctx context.Context, tok Token, score *float64) error {
	return s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, StateEvaluating)
		if err != nil {
			return err
		}
		t.wake = true
		if err := t.event(o.RunID, o.ID, RolloutEvaluated, map[string]any{"score": score}); err != nil {
			return err
		}
		return t.end(o.ID, StateCompleted, nil, score)
	})
}

func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
