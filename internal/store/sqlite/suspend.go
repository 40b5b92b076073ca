package sqlite

import (
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// whereWaiting selects what a rollout waits for, and what has arrived of it.
const whereWaiting = "WHERE t.rollout_id = ? AND t.taken_by = 0 AND t.state NOT IN ('consumed', 'superseded', 'abandoned') ORDER BY t.id"

// suspend makes the triggers of a suspension. An interrupt that is open already keeps its triggers, and their deadlines, unless its value
// has changed; an id that comes again after it was consumed is a new occurrence; an open one that the agent no longer names is abandoned. Only when all of
// them are there is the mailbox opened: a delivery in it may answer a sibling, or be one of several that are needed.
func (t *tx) suspend(o store.Rollout, end store.SegmentEnd) (store.Committed, error) {
	if len(end.Triggers) == 0 {
		return store.Committed{}, fmt.Errorf("rollout %s cannot be suspended without a trigger: nothing would resume it", o.ID)
	}
	if err := t.become(o.ID, eval.StateSuspended, ", owner = NULL, lease_until = NULL, suspensions = suspensions + 1"); err != nil {
		return store.Committed{}, err
	}
	if o.Suspensions > 0 {
		named := map[string]bool{}
		for _, n := range end.Triggers {
			named[n.InterruptID] = true
		}
		if err := t.abandon(o.ID, named); err != nil {
			return store.Committed{}, err
		}
	}
	added, err := t.addTriggers(o, end.Triggers)
	if err != nil {
		return store.Committed{}, err
	}
	if end.SuspendTimeout > 0 {
		if err := t.exec("UPDATE triggers SET deadline = ?1, due_at = min(coalesce(due_at, ?1), ?1) WHERE rollout_id = ?2 AND segment = ?3",
			t.after(end.SuspendTimeout), o.ID, o.Segment); err != nil {
			return store.Committed{}, err
		}
	}
	triggers, err := t.triggers(whereWaiting, o.ID)
	if err != nil {
		return store.Committed{}, err
	}
	if err := t.suspendedEvent(o, triggers); err != nil {
		return store.Committed{}, err
	}
	delivered := false
	for _, a := range added {
		found, err := t.openMailbox(a)
		if err != nil {
			return store.Committed{}, err
		}
		delivered = delivered || found
	}
	if delivered {
		if triggers, err = t.triggers(whereWaiting, o.ID); err != nil {
			return store.Committed{}, err
		}
	}
	return t.settle(o.RunID, o.ID, triggers)
}

// interrupt is what is known of an interrupt id of a rollout: whether it is open and keeps its triggers, else the occurrence of its new ones
// and how many of them have been made.
type interrupt struct {
	open                 bool
	occurrence, siblings int
}

// addTriggers makes the triggers of those interrupts that are not open already. Of what is returned is set what the mailbox needs.
func (t *tx) addTriggers(o store.Rollout, triggers []store.NewTrigger) (added []store.Trigger, err error) {
	digests := map[string][]string{}
	for _, n := range triggers {
		digests[n.InterruptID] = append(digests[n.InterruptID], n.Digest)
	}
	interrupts := map[string]*interrupt{}
	for _, n := range triggers {
		in := interrupts[n.InterruptID]
		if in == nil {
			in = new(interrupt)
			interrupts[n.InterruptID] = in
			if o.Suspensions > 0 {
				if *in, err = t.comesAgain(o.ID, n.InterruptID, digests[n.InterruptID]); err != nil {
					return nil, err
				}
			}
		}
		if in.open {
			continue
		}
		a, err := t.addTrigger(o, n, in.occurrence, in.siblings)
		if err != nil {
			return nil, fmt.Errorf("interrupt %q: %w", n.InterruptID, err)
		}
		added = append(added, a)
		in.siblings++
	}
	return added, nil
}

// comesAgain says what becomes of an interrupt that a rollout may have emitted before. What has not been consumed of it is superseded if it
// now waits for something else.
func (t *tx) comesAgain(rolloutID, interruptID string, digests []string) (in interrupt, err error) {
	type sibling struct {
		id, digest string
		occurrence int
		open       bool
	}
	var last []sibling  // those of the last occurrence
	var before []string // their digests
	if err := t.rows(func(r scanner) error {
		var s sibling
		err := r.Scan(&s.id, &s.digest, &s.occurrence, &s.open)
		if len(last) > 0 && last[0].occurrence != s.occurrence {
			last, before, in.open = nil, nil, false
		}
		last, before = append(last, s), append(before, s.digest)
		in.occurrence, in.open = s.occurrence+1, in.open || s.open
		return err
	}, `SELECT trigger_id, digest, occurrence, taken_by = 0 AND state NOT IN ('consumed', 'superseded', 'abandoned') FROM triggers
		WHERE rollout_id = ? AND interrupt_id = ? ORDER BY occurrence, sibling`, rolloutID, interruptID); err != nil || !in.open {
		return in, err
	}
	if slices.Equal(before, digests) || slices.Contains(before, "") || slices.Contains(digests, "") {
		return in, nil
	}
	in.open = false
	for _, s := range last {
		if s.open {
			if err := t.giveUp(s.id, store.TriggerSuperseded); err != nil {
				return in, err
			}
		}
	}
	return in, nil
}

func (t *tx) addTrigger(o store.Rollout, n store.NewTrigger, occurrence, sibling int) (store.Trigger, error) {
	id := store.TriggerID(o.ID, n.InterruptID, occurrence, sibling)
	key := n.ItemKey
	if key == "" {
		key = n.KeyPrefix + id
	}
	state, next := store.TriggerWaiting, micros(n.NextCheck)
	if n.Start {
		state = store.TriggerIntended
	}
	if n.Start || n.Checked && n.NextCheck.UnixMicro() < t.now {
		next = t.now
	}
	err := t.exec(`INSERT INTO triggers (trigger_id, run_id, rollout_id, interrupt_id, occurrence, sibling, type, name, source, item_key,
			folder_path, folder_key, spec, digest, state, checked, segment, created_at, next_check, due_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, id, o.RunID, o.ID, n.InterruptID, occurrence, sibling, n.Type, n.Name, n.Source, key,
		n.FolderPath, n.FolderKey, document(n.Spec), n.Digest, string(state), n.Checked, o.Segment, t.now, next, next)
	return store.Trigger{ID: id, RolloutID: o.ID, Source: n.Source, ItemKey: key, Segment: o.Segment}, err
}

// abandon gives up every trigger of a rollout whose interrupt is not named any more; its job is cancelled where the source can.
func (t *tx) abandon(rolloutID string, named map[string]bool) error {
	waiting, err := t.triggers(whereWaiting, rolloutID)
	if err != nil {
		return err
	}
	for _, g := range waiting {
		if named[g.InterruptID] {
			continue
		}
		if err := t.giveUp(g.ID, store.TriggerAbandoned); err != nil {
			return err
		}
	}
	return nil
}

// giveUp ends a trigger that nobody waits for any more. If its job may be running it becomes due once more, to be cancelled; if it is
// being started at this moment, only when that is over and its key is known. One whose job is to be cancelled already stays due for that.
func (t *tx) giveUp(triggerID string, state store.TriggerState) error {
	t.wake = true
	return t.exec(`UPDATE triggers SET state = ?2, next_check = NULL, cancel = cancel OR checked AND state IN ('starting', 'waiting'),
			due_at = CASE WHEN cancel OR checked AND state = 'starting' AND owner IS NOT NULL THEN due_at WHEN checked AND state IN ('starting', 'waiting') THEN ?1 END,
			fence = CASE WHEN cancel OR checked AND state = 'starting' AND owner IS NOT NULL THEN fence ELSE fence + 1 END,
			owner = CASE WHEN cancel OR checked AND state = 'starting' THEN owner END
		WHERE trigger_id = ?3`, t.now, string(state), triggerID)
}

func (t *tx) suspendedEvent(o store.Rollout, triggers []store.Trigger) error {
	list := []map[string]any{}
	for _, g := range triggers {
		item := map[string]any{"triggerId": g.ID, "interruptId": g.InterruptID, "type": g.Type, "source": g.Source, "itemKey": g.ItemKey}
		if !g.Deadline.IsZero() {
			item["deadline"] = g.Deadline
		}
		list = append(list, item)
	}
	return t.event(o.RunID, o.ID, store.RolloutSuspended, map[string]any{"segment": o.Segment, "triggers": list})
}

// settle looks whether a suspended rollout can go on with what has arrived of its triggers, or has to fault with it. It faults with what its agent
// cannot take only if nothing else waits to be taken; otherwise the same deliveries would end differently by when the rollout is claimed.
// An agent that needs all of them cannot go on any more.
func (t *tx) settle(runID, rolloutID string, triggers []store.Trigger) (store.Committed, error) {
	var all, acceptsFaults bool
	if err := t.row([]any{&all, &acceptsFaults}, "SELECT resume_all, accepts_faults FROM rollouts WHERE rollout_id = ?", rolloutID); err != nil {
		return store.Committed{}, err
	}
	var arrived, open int
	var bad *store.Trigger
	for i, g := range triggers {
		switch {
		case g.State.IsOpen():
			open++
		case g.State == store.TriggerFired || acceptsFaults:
			arrived++
		case bad == nil:
			bad = &triggers[i]
		}
	}
	if bad != nil && (arrived == 0 || all) {
		if err := t.abandon(rolloutID, map[string]bool{bad.InterruptID: true}); err != nil {
			return store.Committed{}, err
		}
		return store.Committed{State: eval.StateFaulted}, t.end(runID, rolloutID, eval.StateFaulted, deliveredFault(*bad), nil)
	}
	if arrived == 0 || (open > 0 && all) {
		return store.Committed{State: eval.StateSuspended}, nil
	}
	t.wake = true
	return store.Committed{State: eval.StateSuspended, Ready: true}, t.exec("UPDATE rollouts SET runnable_at = coalesce(runnable_at, ?) WHERE rollout_id = ?", t.now, rolloutID)
}

// deliveredFault is the fault of a rollout whose agent cannot take what was delivered.
func deliveredFault(g store.Trigger) *fault.Fault {
	f := fault.Fault{Category: "job", Message: fmt.Sprintf("what it waited for (%s %s) was %s", g.Type, g.ItemKey, g.Status)}
	if g.Fault != nil && g.Fault.Category != "" {
		f.Category = g.Fault.Category
	}
	if g.Fault != nil && g.Fault.Message != "" {
		f.Message = g.Fault.Message
	}
	return &f
}
