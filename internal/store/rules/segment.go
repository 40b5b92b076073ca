package rules

import (
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// commit records the end of a segment and does what follows from its outcome.
func (s segments) commit(o heldRollout, end store.SegmentEnd) (store.Committed, error) {
	var err error
	if o.StateSince, err = s.rollouts.countAs("queued", o.Rollout, end.Queued.Microseconds()); err != nil {
		return store.Committed{}, err
	}
	if _, err = s.rollouts.countAs("waiting", o.Rollout, end.Held.Microseconds()); err != nil {
		return store.Committed{}, err
	}
	if err := s.tx.Exec(
		`INSERT INTO segments (rollout_id, segment, attempt, outcome, started_at, ended_at, output, fault, files, info)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (rollout_id, segment, attempt) DO UPDATE SET outcome = excluded.outcome,
		started_at = excluded.started_at, ended_at = excluded.ended_at, output = excluded.output, fault = excluded.fault,
		files = excluded.files, info = excluded.info`, o.ID, o.Segment, o.Attempt, string(end.Outcome),
		o.StateSince.UnixMicro(), s.tx.now, raw(end.Output), marshal(end.Fault), marshal(end.Files),
		raw(end.Info)); err != nil {
		return store.Committed{}, err
	}
	if o.cancelled {
		end.Outcome = store.OutcomeCancelled // whatever it did: nobody wants it any more
	}
	switch end.Outcome {
	case store.OutcomeInterrupted:
		return store.Committed{State: eval.StatePending}, s.rollouts.repeat(o.Rollout, end)
	case store.OutcomeFailed:
		if end.Retry {
			return store.Committed{State: eval.StatePending}, s.rollouts.repeat(o.Rollout, end)
		}
	case store.OutcomeCompleted, store.OutcomeSuspended, store.OutcomeCancelled:
	default:
		return store.Committed{}, fmt.Errorf("rollout %s: a segment cannot end as %q", o.ID, end.Outcome)
	}
	if end.Outcome == store.OutcomeSuspended || end.Outcome == store.OutcomeCompleted {
		if err := s.kept.note(o.Rollout, end.Kept); err != nil {
			return store.Committed{}, err
		}
	}
	if o.Segment > 1 {
		if err := s.tx.Exec(
			"UPDATE triggers SET state = 'consumed' WHERE rollout_id = ? AND taken_by = ? AND state IN ('fired', 'faulted', 'expired', 'cancelled')",
			o.ID, o.Segment); err != nil {
			return store.Committed{}, err
		}
	}
	if end.Outcome == store.OutcomeSuspended {
		return s.suspend(o.Rollout, end)
	}
	if end.Outcome == store.OutcomeCancelled {
		return store.Committed{State: eval.StateCancelled}, s.cancel(o.RunID, o.ID)
	}
	if o.Suspensions > 0 {
		if err := s.triggers.abandon(o.ID, nil); err != nil {
			return store.Committed{}, err
		}
	}
	if end.Outcome == store.OutcomeFailed {
		return store.Committed{State: eval.StateFaulted}, s.rollouts.end(o.RunID, o.ID, eval.StateFaulted, end.Fault, nil)
	}
	if err := s.tx.touch(o.RunID); err != nil {
		return store.Committed{}, err
	}
	// The rollout is still held.
	return store.Committed{State: eval.StateEvaluating},
		s.rollouts.become(o.ID, eval.StateEvaluating, ", internal_failures = 0")
}

// suspend makes the triggers of a suspension. An interrupt that is open keeps its triggers and
// their deadlines, unless its value has changed. An id that comes again after it was consumed is a
// new occurrence. An open interrupt that the agent no longer names is abandoned. The mailbox is
// opened when all triggers are there: a delivery in it may answer a sibling, or be one of several
// that are needed.
func (s segments) suspend(o store.Rollout, end store.SegmentEnd) (store.Committed, error) {
	if len(end.Triggers) == 0 {
		return store.Committed{}, fmt.Errorf(
			"rollout %s cannot be suspended without a trigger: nothing would resume it", o.ID)
	}
	if err := s.rollouts.become(o.ID, eval.StateSuspended,
		", owner = NULL, lease_until = NULL, suspensions = suspensions + 1"); err != nil {
		return store.Committed{}, err
	}
	if o.Suspensions > 0 {
		named := map[string]bool{}
		for _, n := range end.Triggers {
			named[n.InterruptID] = true
		}
		if err := s.triggers.abandon(o.ID, named); err != nil {
			return store.Committed{}, err
		}
	}
	added, err := s.triggers.addAll(o, end.Triggers)
	if err != nil {
		return store.Committed{}, err
	}
	if end.SuspendTimeout > 0 {
		if err := s.tx.Exec(
			"UPDATE triggers SET deadline = ?1, due_at = min(coalesce(due_at, ?1), ?1) WHERE rollout_id = ?2 AND segment = ?3",
			s.tx.after(end.SuspendTimeout), o.ID, o.Segment); err != nil {
			return store.Committed{}, err
		}
	}
	triggers, err := s.triggers.list(whereWaiting, o.ID)
	if err != nil {
		return store.Committed{}, err
	}
	if err := s.suspendedEvent(o, triggers); err != nil {
		return store.Committed{}, err
	}
	delivered := false
	for _, a := range added {
		found, err := s.mail.openMailbox(a)
		if err != nil {
			return store.Committed{}, err
		}
		delivered = delivered || found
	}
	if delivered {
		if triggers, err = s.triggers.list(whereWaiting, o.ID); err != nil {
			return store.Committed{}, err
		}
	}
	return s.mail.settle(o.RunID, o.ID, triggers)
}

func (s segments) suspendedEvent(o store.Rollout, triggers []store.Trigger) error {
	list := []map[string]any{}
	for _, g := range triggers {
		item := map[string]any{
			"triggerId": g.ID, "interruptId": g.ShownID(), "type": g.Type, "source": g.Source, "itemKey": g.ItemKey,
		}
		if !g.Deadline.IsZero() {
			item["deadline"] = g.Deadline
		}
		list = append(list, item)
	}
	return s.tx.event(o.RunID, o.ID, store.RolloutSuspended, map[string]any{"segment": o.Segment, "triggers": list})
}

// cancel ends a rollout and what it waits for.
func (s segments) cancel(runID, rolloutID string) error {
	open, err := s.triggers.list(
		"WHERE t.rollout_id = ? AND t.asked_by = '' AND t.state IN ('intended', 'starting', 'waiting')", rolloutID)
	if err != nil {
		return err
	}
	for _, g := range open {
		if err := s.triggers.giveUp(g.ID, store.TriggerCancelled); err != nil {
			return err
		}
	}
	return s.rollouts.end(runID, rolloutID, eval.StateCancelled, nil, nil)
}

// cancelAll cancels what has not ended of a run, or one rollout.
func (s segments) cancelAll(id string, keepJobsOf []string) (cancelled int, err error) {
	type rollout struct {
		runID, id string
		running   bool
	}
	var open []rollout
	if err := s.tx.rows(func(r scanner) error {
		var o rollout
		err := r.Scan(&o.runID, &o.id, &o.running)
		open = append(open, o)
		return err
	}, `SELECT run_id, rollout_id, state = 'running' FROM rollouts WHERE (run_id = ?1 OR rollout_id = ?1) AND state NOT IN ('completed', 'faulted', 'cancelled')
		ORDER BY ordinal`, id); err != nil {
		return 0, err
	}
	for _, o := range open {
		if err := s.triggers.keepJobs(o.id, keepJobsOf); err != nil {
			return 0, err
		}
		if o.running {
			// Only whoever holds it, or takes it over, knows when its agent has ended.
			s.tx.changed[o.runID] = true
			err = s.tx.Exec("UPDATE rollouts SET cancel = TRUE WHERE rollout_id = ?", o.id)
		} else {
			err = s.cancel(o.runID, o.id)
		}
		if err != nil {
			return 0, err
		}
	}
	s.tx.wake = s.tx.wake || len(open) > 0
	return len(open), nil
}
