package storetest

import (
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// waiting are the triggers that the agent of a rollout waits for, and those that have arrived.
func (m *model) waiting(o *modelRollout) (out []*modelTrigger) {
	for _, g := range m.triggers {
		if g.rollout == o && g.evaluator == "" && g.takenBy == 0 && g.state != store.TriggerConsumed &&
			g.state != store.TriggerSuperseded && g.state != store.TriggerAbandoned {
			out = append(out, g)
		}
	}
	return out
}

func (m *model) taken(o *modelRollout) (out []*modelTrigger) {
	for _, g := range m.triggers {
		if g.rollout == o && g.evaluator == "" && o.segment > 1 && g.takenBy == o.segment {
			out = append(out, g)
		}
	}
	return out
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

// changed says whether a rollout waits for something else now under an interrupt that it still
// waits for.
func (m *model) changed(o *modelRollout, interrupt string, end store.SegmentEnd) bool {
	var was, is []string
	last := -1
	for _, g := range m.triggers {
		if g.rollout == o && g.evaluator == "" && g.interrupt == interrupt {
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

func (m *model) dueTriggers(s int) (out []*modelTrigger) {
	for _, g := range m.triggers {
		if m.heldBack(g) {
			continue
		}
		if g.holder != s && (isDue(g.due, m.now) || g.holder == m.dead) || g.holder == s && g.forgotten && isDue(g.due, m.now) {
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
	g.holder, g.forgotten, g.due = s, false, m.now.Add(lease)
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

// begin sets what a trigger begins with. Its id is set already.
func (g *modelTrigger) begin(n store.NewTrigger, now time.Time, timeout time.Duration) {
	if g.key == "" {
		g.key = n.KeyPrefix + g.id
	}
	if n.Start {
		g.state = store.TriggerIntended
	}
	if n.Checked {
		g.due = now
	}
	if timeout > 0 {
		g.deadline = now.Add(timeout)
		g.due = earlier(g.due, g.deadline)
	}
}

// wait makes a rollout wait for triggers. Deliveries that have come for them already arrive.
func (m *model) wait(o *modelRollout, added []*modelTrigger) {
	m.triggers = append(m.triggers, added...)
	for _, g := range added {
		m.openMailbox(g)
	}
	m.settle(o)
}
