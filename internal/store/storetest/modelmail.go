package storetest

import (
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// findTriggers finds the triggers of a delivery: of those with one key all that wait, or else the
// newest.
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
	g.state = map[store.Status]store.TriggerState{
		store.StatusSuccessful: store.TriggerFired, store.StatusFaulted: store.TriggerFaulted,
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
		if other != g && other.rollout == g.rollout && other.evaluator == g.evaluator && other.interrupt == g.interrupt &&
			other.occurrence == g.occurrence && other.state.IsOpen() {
			m.giveUp(other, store.TriggerSuperseded)
		}
	}
	return store.Accepted
}

func (m *model) openMailbox(g *modelTrigger) {
	m.parked = slices.DeleteFunc(m.parked, func(d *modelDelivery) bool {
		if d.at.Before(m.now.Add(-7*24*time.Hour)) || d.trigger != "" && d.trigger != g.id ||
			d.trigger == "" && (d.source != g.source || d.key != g.key) {
			return false
		}
		if slices.ContainsFunc(d.given, func(had *modelTrigger) bool {
			return had == g || had.rollout == g.rollout &&
				(had.segment < g.segment || g.evaluator != "" && had.evaluator == g.evaluator && had.occurrence < g.occurrence)
		}) {
			return false
		}
		m.deliverTo(g, d)
		d.given = append(d.given, g)
		return d.trigger != ""
	})
}

func (m *model) settle(o *modelRollout) {
	if o.state == eval.StateScoring && m.isReady(o) && o.runnable.IsZero() {
		o.runnable = m.now
	}
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
