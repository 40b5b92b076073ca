package eval

import "testing"

// V2: a threshold of the verifier knows of the tasks that it has not scored: one that passes decides
// nothing for those that wait, were cancelled or have failed.
func TestThresholdOfTheVerifier(t *testing.T) {
	one := 1.0
	of := func(id string, state State) Rollout {
		r := Rollout{EvaluationID: id, Epoch: 1, State: state, Evaluation: &Evaluation{ID: id, Task: &Task{}}}
		if state == StateCompleted {
			r.Results = []Result{{EvaluatorID: Verifier.ID, EvaluatorName: Verifier.Name, Score: &one, Scale: 1}}
		}
		return r
	}
	byAgent := of("b", StateFaulted)
	byAgent.AgentsFault = true
	for name, c := range map[string]struct {
		other Rollout
		want  GateVerdict
	}{
		"passes":                   {of("b", StateCompleted), GatePass},
		"waits":                    {of("b", StateSuspended), GateUndecided},
		"cancelled":                {of("b", StateCancelled), GateUndecided},
		"lost to its environment":  {of("b", StateFaulted), GateUndecided},
		"the agent's fault is a 0": {byAgent, GateFail},
	} {
		set := &Set{Thresholds: Thresholds{Evaluators: map[string]Threshold{Verifier.ID: {Min: 0.9}}}}
		if g := summarize(set, of("a", StateCompleted), c.other).Gates; len(g) != 1 || g[0].Verdict != c.want {
			t.Errorf("%s: %+v, expected %s", name, g, c.want)
		}
	}
}
