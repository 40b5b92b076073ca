package rules

import (
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// settleDelivered settles the rollout of a trigger that has got a delivery.
func (m mail) settleDelivered(g store.Trigger) error {
	var state eval.State
	if err := m.tx.Row([]any{&state}, "SELECT state FROM rollouts WHERE rollout_id = ?", g.RolloutID); err != nil {
		return err
	}
	if state == eval.StateScoring {
		_, err := m.settleScoring(g.RolloutID)
		return err
	}
	if state != eval.StateSuspended {
		return nil
	}
	triggers, err := m.triggers.list(whereWaiting, g.RolloutID)
	if err != nil {
		return err
	}
	_, err = m.settle(g.RunID, g.RolloutID, triggers)
	return err
}

// settle decides whether a suspended rollout can go on with what has arrived, or has to fault. It
// faults with a delivery that its agent cannot take only if nothing else has arrived that the agent
// can take. Otherwise the outcome would depend on when the rollout is claimed. An agent that needs
// all deliveries cannot go on without this one, so its rollout faults at once.
func (m mail) settle(runID, rolloutID string, triggers []store.Trigger) (store.Committed, error) {
	var all, acceptsFaults bool
	if err := m.tx.Row([]any{&all, &acceptsFaults},
		"SELECT resume_all, accepts_faults FROM rollouts WHERE rollout_id = ?", rolloutID); err != nil {
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
		if err := m.triggers.abandon(rolloutID, map[string]bool{bad.InterruptID: true}); err != nil {
			return store.Committed{}, err
		}
		return store.Committed{State: eval.StateFaulted},
			m.rollouts.end(runID, rolloutID, eval.StateFaulted, deliveredFault(*bad), nil)
	}
	if arrived == 0 || (open > 0 && all) {
		return store.Committed{State: eval.StateSuspended}, nil
	}
	m.tx.wake = true
	return store.Committed{State: eval.StateSuspended, Ready: true},
		m.tx.Exec("UPDATE rollouts SET runnable_at = coalesce(runnable_at, ?) WHERE rollout_id = ?",
			m.tx.now, rolloutID)
}

// deliveredFault is the fault of a rollout whose agent cannot take what was delivered.
func deliveredFault(g store.Trigger) *fault.Fault {
	f := fault.Fault{
		Category: "job", Message: fmt.Sprintf("what it waited for (%s %s) was %s", g.Type, g.ItemKey, g.Status),
	}
	if g.Fault != nil && g.Fault.Category != "" {
		f.Category = g.Fault.Category
	}
	if g.Fault != nil && g.Fault.Message != "" {
		f.Message = g.Fault.Message
	}
	return &f
}
