package storetest

import (
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// nobody holds what has no holder.
const nobody = -1

// model is what a store should hold, as plainly as it can be said. Holders are numbers of stores; that of deadHolder is a process that
// has ended.
type model struct {
	now      time.Time
	rollouts []*modelRollout
	// triggers are all triggers in the order in which they were made, parked the deliveries that wait for triggers still to come.
	triggers []*modelTrigger
	parked   []*modelDelivery
}

// deadHolder is the store whose process is gone: it can claim, but everybody else sees at once that it is dead.
const deadHolder = 2

type modelRollout struct {
	id                                      string
	all, accepts                            bool
	state                                   eval.State
	segment, attempt, failures, suspensions int
	results                                 int
	cancelled                               bool
	holder                                  int
	fence                                   int64
	lease                                   time.Time
	// runnable is zero if it is not.
	runnable time.Time
}

type modelTrigger struct {
	id, interrupt, source, key string
	occurrence, sibling        int
	digest                     string
	// segment is the one whose end made the trigger.
	segment                  int
	rollout                  *modelRollout
	state                    store.TriggerState
	checked, cancel, overdue bool
	takenBy                  int
	holder                   int
	fence                    int64
	due, deadline            time.Time
	status                   store.Status
	payload                  string
}

type modelDelivery struct {
	trigger, source, key string
	status               store.Status
	payload              string
	at                   time.Time
	// holder and fence are those of the claim under which a source was asked; fence is 0 if somebody else delivers.
	holder int
	fence  int64
	// given are the triggers that a delivery by key was matched with while it was parked.
	given []*modelTrigger
}

func (m *model) isVoid(holder, for_ int, until time.Time) bool {
	return holder != nobody && holder != for_ && (holder == deadHolder || !until.After(m.now))
}

func isDue(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

func (m *model) claimable(s int) (out []*modelRollout) {
	for _, o := range m.rollouts {
		if m.isVoid(o.holder, s, o.lease) || isDue(o.runnable, m.now) {
			out = append(out, o)
		}
	}
	return out
}

func (m *model) claim(o *modelRollout, s int) {
	switch {
	case o.state == eval.StateEvaluating:
	case o.state == eval.StateSuspended, o.segment == 0:
		o.segment++
		o.attempt, o.failures = 1, 0
		for _, g := range m.waiting(o) {
			if g.state == store.TriggerFired || !g.state.IsOpen() && o.accepts {
				g.takenBy = o.segment
			}
		}
		o.state = eval.StateRunning
	default:
		o.attempt++
		o.state = eval.StateRunning
	}
	o.holder, o.lease, o.runnable = s, m.now.Add(lease), time.Time{}
	o.fence++
}

// waiting are the triggers that a rollout waits for, and those that have arrived.
func (m *model) waiting(o *modelRollout) (out []*modelTrigger) {
	for _, g := range m.triggers {
		if g.rollout == o && g.takenBy == 0 && g.state != store.TriggerConsumed && g.state != store.TriggerSuperseded && g.state != store.TriggerAbandoned {
			out = append(out, g)
		}
	}
	return out
}

func (m *model) taken(o *modelRollout) (out []*modelTrigger) {
	for _, g := range m.triggers {
		if g.rollout == o && o.segment > 1 && g.takenBy == o.segment {
			out = append(out, g)
		}
	}
	return out
}

func (m *model) end(o *modelRollout, state eval.State) {
	o.state, o.holder, o.runnable, o.cancelled = state, nobody, time.Time{}, false
}

func (m *model) cancel(o *modelRollout) {
	for _, g := range m.waiting(o) {
		if g.state.IsOpen() {
			m.giveUp(g, store.TriggerCancelled)
		}
	}
	m.end(o, eval.StateCancelled)
}

func (m *model) abandon(o *modelRollout, named []string) {
	for _, g := range m.waiting(o) {
		if !slices.Contains(named, g.interrupt) {
			m.giveUp(g, store.TriggerAbandoned)
		}
	}
}

func (m *model) giveUp(g *modelTrigger, state store.TriggerState) {
	if g.cancel {
		g.state = state // its job is to be cancelled already
		return
	}
	started := g.checked && (g.state == store.TriggerStarting || g.state == store.TriggerWaiting)
	beingStarted := started && g.state == store.TriggerStarting && g.holder != nobody
	g.state, g.cancel = state, started
	if beingStarted {
		return // its holder says when that is over
	}
	g.holder, g.due = nobody, time.Time{}
	g.fence++
	if started {
		g.due = m.now
	}
}

func (m *model) commit(o *modelRollout, end store.SegmentEnd) {
	if o.cancelled {
		end.Outcome = store.OutcomeCancelled
	}
	if end.Outcome == store.OutcomeInterrupted || end.Outcome == store.OutcomeFailed && end.Retry {
		if end.Outcome == store.OutcomeFailed {
			o.failures++
		}
		o.state, o.holder, o.runnable = eval.StatePending, nobody, m.now.Add(end.RetryAfter)
		return
	}
	for _, g := range m.taken(o) {
		g.state = store.TriggerConsumed
	}
	switch end.Outcome {
	case store.OutcomeCompleted:
		m.abandon(o, nil)
		o.state = eval.StateEvaluating
	case store.OutcomeFailed:
		m.abandon(o, nil)
		m.end(o, eval.StateFaulted)
	case store.OutcomeCancelled:
		m.cancel(o)
	default:
		m.suspend(o, end)
	}
}

func (m *model) suspend(o *modelRollout, end store.SegmentEnd) {
	o.state, o.holder = eval.StateSuspended, nobody
	o.suspensions++
	var named []string
	for _, n := range end.Triggers {
		named = append(named, n.InterruptID)
	}
	m.abandon(o, named)
	for _, interrupt := range named {
		if m.changed(o, interrupt, end) {
			for _, g := range m.waiting(o) {
				if g.interrupt == interrupt {
					m.giveUp(g, store.TriggerSuperseded)
				}
			}
		}
	}
	kept := m.waiting(o)
	occurrences, siblings := map[string]int{}, map[string]int{}
	for _, g := range m.triggers {
		if g.rollout == o {
			occurrences[g.interrupt] = max(occurrences[g.interrupt], g.occurrence+1)
		}
	}
	var added []*modelTrigger
	for _, n := range end.Triggers {
		if slices.ContainsFunc(kept, func(g *modelTrigger) bool { return g.interrupt == n.InterruptID }) {
			continue
		}
		g := &modelTrigger{interrupt: n.InterruptID, source: n.Source, key: n.ItemKey, occurrence: occurrences[n.InterruptID], sibling: siblings[n.InterruptID],
			digest: n.Digest, segment: o.segment, rollout: o, state: store.TriggerWaiting, checked: n.Checked, holder: nobody}
		siblings[n.InterruptID]++
		g.id = store.TriggerID(o.id, g.interrupt, g.occurrence, g.sibling)
		if g.key == "" {
			g.key = n.KeyPrefix + g.id
		}
		if n.Start {
			g.state = store.TriggerIntended
		}
		if n.Checked {
			g.due = m.now
		}
		if end.SuspendTimeout > 0 {
			g.deadline = m.now.Add(end.SuspendTimeout)
			g.due = earlier(g.due, g.deadline)
		}
		added = append(added, g)
	}
	m.triggers = append(m.triggers, added...)
	for _, g := range added {
		m.openMailbox(g)
	}
	m.settle(o)
}

// changed says whether a rollout waits for something else now under an interrupt that it still waits for.
func (m *model) changed(o *modelRollout, interrupt string, end store.SegmentEnd) bool {
	var was, is []string
	last := -1
	for _, g := range m.triggers {
		if g.rollout == o && g.interrupt == interrupt {
			if g.occurrence > last {
				last, was = g.occurrence, nil
			}
			was = append(was, g.digest)
		}
	}
	for _, n := range end.Triggers {
		if n.InterruptID == interrupt {
			is = append(is, n.Digest)
		}
	}
	return !slices.Equal(was, is) && !slices.Contains(was, "") && !slices.Contains(is, "")
}

// earlier is the earlier of two times of which either may be zero: never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (m *model) settle(o *modelRollout) {
	if o.state != eval.StateSuspended {
		return
	}
	arrived, open := 0, 0
	var bad *modelTrigger
	for _, g := range m.waiting(o) {
		switch {
		case g.state.IsOpen():
			open++
		case g.state == store.TriggerFired || o.accepts:
			arrived++
		case bad == nil:
			bad = g
		}
	}
	if bad != nil && (arrived == 0 || o.all) {
		m.abandon(o, []string{bad.interrupt})
		m.end(o, eval.StateFaulted)
		return
	}
	if arrived > 0 && (open == 0 || !o.all) && o.runnable.IsZero() {
		o.runnable = m.now
	}
}

// findTriggers finds the triggers of a delivery: of those with one key all that wait, or else the newest.
func (m *model) findTriggers(d *modelDelivery) (found []*modelTrigger) {
	var last *modelTrigger
	for _, g := range m.triggers {
		if d.trigger != "" && g.id != d.trigger || d.trigger == "" && (g.source != d.source || g.key != d.key) {
			continue
		}
		last = g
		if g.state.IsOpen() {
			found = append(found, g)
		}
	}
	if found == nil && last != nil {
		found = append(found, last)
	}
	return found
}

// deliver says what becomes of a delivery, and how many triggers accept it.
func (m *model) deliver(d *modelDelivery) (first store.Disposition, accepted int) {
	found := m.findTriggers(d)
	if found == nil {
		m.parked = append(m.parked, d)
		return store.Parked, 0
	}
	for i, g := range found {
		if i > 0 && !g.state.IsOpen() {
			continue // superseded by its sibling just now
		}
		disposition := m.deliverTo(g, d)
		if disposition == store.Accepted {
			accepted++
		}
		if i == 0 || disposition == store.Accepted {
			first = disposition
		}
	}
	for _, g := range found {
		m.settle(g.rollout)
	}
	return first, accepted
}

func (m *model) deliverTo(g *modelTrigger, d *modelDelivery) store.Disposition {
	if !g.state.IsOpen() {
		if g.cancel && g.holder == d.holder && g.fence == d.fence {
			g.holder, g.due = nobody, m.now
			g.fence++
		}
		if g.status != "" && g.status != store.StatusExpired {
			return store.Duplicate
		}
		return store.Late
	}
	byHand := d.fence == 0
	if byHand && isDue(g.deadline, d.at) {
		return store.Late
	}
	started := g.checked && (g.state == store.TriggerStarting || g.state == store.TriggerWaiting)
	beingStarted := started && g.state == store.TriggerStarting && g.holder != nobody && byHand
	g.cancel = started && (byHand || d.status == store.StatusExpired)
	g.state = map[store.Status]store.TriggerState{store.StatusSuccessful: store.TriggerFired, store.StatusFaulted: store.TriggerFaulted,
		store.StatusCancelled: store.TriggerCancelled, store.StatusExpired: store.TriggerExpired}[d.status]
	g.status, g.payload = d.status, d.payload
	if !beingStarted {
		g.holder, g.due = nobody, time.Time{}
		g.fence++
		if g.cancel {
			g.due = m.now
		}
	}
	for _, other := range m.triggers {
		if other != g && other.rollout == g.rollout && other.interrupt == g.interrupt && other.occurrence == g.occurrence && other.state.IsOpen() {
			m.giveUp(other, store.TriggerSuperseded)
		}
	}
	return store.Accepted
}

func (m *model) openMailbox(g *modelTrigger) {
	m.parked = slices.DeleteFunc(m.parked, func(d *modelDelivery) bool {
		if d.at.Before(m.now.Add(-7*24*time.Hour)) || d.trigger != "" && d.trigger != g.id || d.trigger == "" && (d.source != g.source || d.key != g.key) {
			return false
		}
		if slices.ContainsFunc(d.given, func(had *modelTrigger) bool { return had == g || had.rollout == g.rollout && had.segment < g.segment }) {
			return false
		}
		m.deliverTo(g, d)
		d.given = append(d.given, g)
		return d.trigger != ""
	})
}

func (m *model) dueTriggers(s int) (out []*modelTrigger) {
	for _, g := range m.triggers {
		if g.holder != s && (isDue(g.due, m.now) || g.holder == deadHolder) {
			out = append(out, g)
		}
	}
	return out
}

func (m *model) claimTrigger(g *modelTrigger, s int) store.Action {
	overdue := isDue(g.deadline, m.now)
	g.overdue = g.overdue || overdue && g.state.IsOpen()
	action := store.ActionCheck
	switch {
	case !g.state.IsOpen():
		g.cancel, g.holder, g.due = false, nobody, time.Time{}
		g.fence++
		return store.ActionCancel
	case g.state == store.TriggerStarting:
		action = store.ActionResolve
	case overdue:
		action = store.ActionExpire
	case g.state == store.TriggerIntended:
		action, g.state = store.ActionStart, store.TriggerStarting
	}
	g.holder, g.due = s, m.now.Add(lease)
	g.fence++
	return action
}

// release ends a claim of a trigger; key is set if its job was started.
func (m *model) release(g *modelTrigger, key string, next time.Time, notStarted bool) {
	g.holder, g.due = nobody, earlier(next, g.deadline)
	switch {
	case g.cancel && notStarted:
		g.cancel, g.due = false, time.Time{}
		return
	case g.cancel:
		g.due = m.now
	case g.overdue && next.IsZero():
		g.due = m.now
	case g.overdue:
		g.due = next
	}
	if !g.due.IsZero() && g.due.Before(m.now) {
		g.due = m.now
	}
	if notStarted && g.state == store.TriggerStarting {
		g.state = store.TriggerIntended
	}
	if key == "" {
		return
	}
	if !g.cancel {
		g.state = store.TriggerWaiting
	}
	g.key = key
	m.openMailbox(g)
	m.settle(g.rollout)
}

// backlog is counted one by one.
func (m *model) backlog(s int) (b store.Backlog) {
	for _, o := range m.rollouts {
		switch {
		case m.isVoid(o.holder, s, o.lease), isDue(o.runnable, m.now):
			b.Runnable++
		case o.holder != nobody:
			b.Held++
			if o.holder != s {
				b.NextDue = earlier(b.NextDue, o.lease)
			}
		case !o.runnable.IsZero():
			b.Delayed++
			b.NextDue = earlier(b.NextDue, o.runnable)
		}
	}
	b.Due = len(m.dueTriggers(s))
	for _, g := range m.triggers {
		if g.holder != s && g.holder != deadHolder && g.due.After(m.now) {
			b.NextDue = earlier(b.NextDue, g.due)
		}
	}
	return b
}
