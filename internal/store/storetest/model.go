package storetest

import (
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// nobody holds what has no holder.
const nobody = -1

// model is what a store should hold, as plainly as it can be said. Holders are numbers of stores;
// that of dead is a process that has ended. It has more methods than other types have, because a
// store has that many operations.
type model struct {
	now time.Time
	// dead is the store whose process is gone: it can claim, but everybody else sees at once that
	// it is dead. It is unseen where processes do not see each other.
	dead     int
	rollouts []*modelRollout
	// triggers are all triggers in the order in which they were made, parked the deliveries that
	// wait for triggers still to come.
	triggers []*modelTrigger
	parked   []*modelDelivery
	// most are the limits by what they count.
	most map[store.Limit]int
}

// deadHolder is the store whose process is gone.
const (
	deadHolder = 2
	unseen     = -2
)

type modelRollout struct {
	id, agent                               string
	tags                                    []string
	all, accepts                            bool
	state                                   eval.State
	segment, attempt, failures, suspensions int
	scorings                                int
	results                                 int
	cancelled                               bool
	holder                                  int
	fence                                   int64
	// forgotten says that the holder does not know of its claim.
	forgotten bool
	lease     time.Time
	// runnable is zero if it is not.
	runnable time.Time
}

type modelTrigger struct {
	id, interrupt, source, key string
	// evaluator is empty for what an agent waits for.
	evaluator           string
	occurrence, sibling int
	digest              string
	// segment is the one whose end made the trigger.
	segment                  int
	rollout                  *modelRollout
	state                    store.TriggerState
	checked, cancel, overdue bool
	takenBy                  int
	holder                   int
	forgotten                bool
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
	// holder and fence are those of the claim under which a source was asked; fence is 0 if
	// somebody else delivers.
	holder int
	fence  int64
	// given are the triggers that a delivery by key was matched with while it was parked.
	given []*modelTrigger
}

func (m *model) isVoid(holder, for_ int, until time.Time) bool {
	return holder != nobody && holder != for_ && (holder == m.dead || !until.After(m.now))
}

func isDue(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

func (m *model) claimable(s int) (out []*modelRollout) {
	for _, o := range m.rollouts {
		if fits(o, s) && (m.isVoid(o.holder, s, o.lease) || o.holder == s && o.forgotten || isDue(o.runnable, m.now) && m.hasRoom(o)) {
			out = append(out, o)
		}
	}
	return out
}

// taggedStore is the one that has the tag of tagged rollouts.
const taggedStore = 1

func fits(o *modelRollout, s int) bool { return len(o.tags) == 0 || s == taggedStore }

// hasRoom reports whether the agent of a runnable rollout may start.
func (m *model) hasRoom(o *modelRollout) bool {
	if o.state == eval.StateEvaluating || o.state == eval.StateScoring {
		return true
	}
	all, ofAgent := 0, 0
	for _, other := range m.rollouts {
		if other.holder != nobody && other.state == eval.StateRunning {
			all++
			if other.agent == o.agent {
				ofAgent++
			}
		}
	}
	return m.below(store.Limit{Kind: store.LimitAll}, all) && m.below(store.Limit{Kind: store.LimitAgent, Name: o.agent}, ofAgent)
}

func (m *model) below(of store.Limit, n int) bool {
	most, limited := m.most[of]
	return !limited || n < most
}

// heldBack reports whether the limit of its source keeps the job of a trigger from being started.
func (m *model) heldBack(g *modelTrigger) bool {
	if g.state != store.TriggerIntended || isDue(g.deadline, m.now) {
		return false
	}
	n := 0
	for _, other := range m.triggers {
		if other.source == g.source && (other.state == store.TriggerStarting || other.state == store.TriggerWaiting) {
			n++
		}
	}
	return !m.below(store.Limit{Kind: store.LimitSource, Name: g.source}, n)
}

func (m *model) claim(o *modelRollout, s int) {
	switch {
	case o.state == eval.StateEvaluating, o.state == eval.StateScoring:
		o.state = eval.StateEvaluating
	case o.holder == s: // it is the same attempt
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
	o.holder, o.forgotten, o.lease, o.runnable = s, false, m.now.Add(lease), time.Time{}
	o.fence++
}

func (m *model) end(o *modelRollout, state eval.State) {
	o.state, o.holder, o.runnable, o.cancelled = state, nobody, time.Time{}, false
}

func (m *model) cancel(o *modelRollout) {
	for _, g := range m.triggers {
		if g.rollout == o && g.state.IsOpen() {
			m.giveUp(g, store.TriggerCancelled)
		}
	}
	m.end(o, eval.StateCancelled)
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
		if g.rollout == o && g.evaluator == "" {
			occurrences[g.interrupt] = max(occurrences[g.interrupt], g.occurrence+1)
		}
	}
	var added []*modelTrigger
	for _, n := range end.Triggers {
		if slices.ContainsFunc(kept, func(g *modelTrigger) bool { return g.interrupt == n.InterruptID }) {
			continue
		}
		g := &modelTrigger{
			interrupt: n.InterruptID, source: n.Source, key: n.ItemKey, occurrence: occurrences[n.InterruptID],
			sibling: siblings[n.InterruptID], digest: n.Digest, segment: o.segment, rollout: o, state: store.TriggerWaiting,
			checked: n.Checked, holder: nobody}
		siblings[n.InterruptID]++
		g.id = store.TriggerID(o.id, g.interrupt, g.occurrence, g.sibling)
		g.begin(n, m.now, end.SuspendTimeout)
		added = append(added, g)
	}
	m.wait(o, added)
}

// earlier is the earlier of two times of which either may be zero: never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// backlog is counted one by one.
func (m *model) backlog(s int) (b store.Backlog) {
	for _, o := range m.rollouts {
		switch claimed := m.isVoid(o.holder, s, o.lease) || o.holder == s && o.forgotten; {
		case (claimed || isDue(o.runnable, m.now)) && !fits(o, s):
			b.Unfit++
		case !claimed && isDue(o.runnable, m.now) && !m.hasRoom(o):
			b.Limited++
		case claimed || isDue(o.runnable, m.now):
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
		if (g.holder != s && g.holder != m.dead || g.holder == s && g.forgotten) && g.due.After(m.now) {
			b.NextDue = earlier(b.NextDue, g.due)
		}
		if isDue(g.due, m.now) && m.heldBack(g) {
			b.NextDue = earlier(b.NextDue, g.deadline)
		}
	}
	return b
}
