package storetest

import (
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// evaluatorsWait are the triggers that the evaluators of a rollout wait for, and those that have
// arrived.
func (m *model) evaluatorsWait(o *modelRollout) (out []*modelTrigger) {
	for _, g := range m.triggers {
		if g.rollout == o && g.evaluator != "" && g.state != store.TriggerConsumed && g.state != store.TriggerSuperseded &&
			g.state != store.TriggerAbandoned {
			out = append(out, g)
		}
	}
	return out
}

// arrived are the triggers of those evaluators for whom everything has arrived.
func (m *model) arrived(o *modelRollout) []*modelTrigger {
	all := m.evaluatorsWait(o)
	return slices.DeleteFunc(slices.Clone(all), func(g *modelTrigger) bool {
		return slices.ContainsFunc(all, func(other *modelTrigger) bool {
			return other.evaluator == g.evaluator && other.state.IsOpen()
		})
	})
}

func (m *model) isReady(o *modelRollout) bool { return len(m.arrived(o)) > 0 }

// consume ends what has arrived for an evaluator.
func (m *model) consume(o *modelRollout, evaluator string) {
	for _, g := range m.evaluatorsWait(o) {
		if g.evaluator == evaluator && !g.state.IsOpen() {
			g.state = store.TriggerConsumed
		}
	}
}

func (m *model) waitForScores(o *modelRollout, wait store.ScoreWait) {
	o.state, o.holder = eval.StateScoring, nobody
	o.scorings++
	var added []*modelTrigger
	occurrences, numbers, siblings := map[string]int{}, map[string]int{}, map[string]int{}
	for _, n := range wait.Triggers {
		if _, ok := occurrences[n.EvaluatorID]; !ok {
			m.consume(o, n.EvaluatorID)
			occurrences[n.EvaluatorID] = 0
			for _, g := range m.triggers {
				if g.rollout == o && g.evaluator == n.EvaluatorID {
					occurrences[n.EvaluatorID] = g.occurrence + 1
				}
			}
		}
		g := &modelTrigger{
			interrupt: n.InterruptID, evaluator: n.EvaluatorID, source: n.Source, key: n.ItemKey,
			occurrence: occurrences[n.EvaluatorID], sibling: siblings[n.EvaluatorID+n.InterruptID], segment: o.segment,
			rollout: o, state: store.TriggerWaiting, checked: n.Checked, holder: nobody}
		g.id = store.EvaluatorTriggerID(o.id, g.evaluator, g.occurrence, numbers[g.evaluator])
		numbers[g.evaluator]++
		siblings[n.EvaluatorID+n.InterruptID]++
		g.begin(n, m.now, wait.Timeout)
		added = append(added, g)
	}
	m.wait(o, added)
}

// finish ends an evaluated rollout, and what its evaluators have waited for.
func (m *model) finish(o *modelRollout) {
	for _, g := range m.evaluatorsWait(o) {
		m.giveUp(g, store.TriggerAbandoned)
	}
	m.end(o, eval.StateCompleted)
}
