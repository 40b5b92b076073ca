package summary

import (
	"testing"

	"github.com/evalrun/evalrun/eval"
)

// V2: a threshold of the verifier knows of the tasks that it has not scored: one that passes decides
// nothing for those that wait, were cancelled or have failed.
func TestThresholdOfTheVerifier(t *testing.T) {
	one := 1.0
	of := func(id string, state eval.State) Rollout {
		r := Rollout{EvaluationID: id, Epoch: 1, State: state, Evaluation: &eval.Evaluation{ID: id, Task: &eval.Task{}}}
		if state == eval.StateCompleted {
			r.Results = []eval.Result{{EvaluatorID: eval.Verifier.ID, EvaluatorName: eval.Verifier.Name, Score: &one, Scale: 1}}
		}
		return r
	}
	byAgent := of("b", eval.StateFaulted)
	byAgent.AgentsFault = true
	for name, c := range map[string]struct {
		other Rollout
		want  GateVerdict
	}{
		"passes":                   {of("b", eval.StateCompleted), GatePass},
		"waits":                    {of("b", eval.StateSuspended), GateUndecided},
		"cancelled":                {of("b", eval.StateCancelled), GateUndecided},
		"lost to its environment":  {of("b", eval.StateFaulted), GateUndecided},
		"the agent's fault is a 0": {byAgent, GateFail},
	} {
		set := &eval.Set{Thresholds: eval.Thresholds{Evaluators: map[string]eval.Threshold{eval.Verifier.ID: {Min: 0.9}}}}
		if g := summarize(set, of("a", eval.StateCompleted), c.other).Gates; len(g) != 1 || g[0].Verdict != c.want {
			t.Errorf("%s: %+v, expected %s", name, g, c.want)
		}
	}
}
