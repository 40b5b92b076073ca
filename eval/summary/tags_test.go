package summary

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/testenv"
)

// A tag's statistics are those of a run that has only the evaluations with that tag.
func TestTagsAreRunsOfTheirOwn(t *testing.T) {
	testenv.NeedSlow(t)
	random := rand.New(rand.NewPCG(1, 2))
	states := []eval.State{eval.StateCompleted, eval.StateCompleted, eval.StateCompleted, eval.StateFaulted, eval.StateSuspended, eval.StateCancelled}
	for range 200 {
		set := &eval.Set{Epochs: 1 + random.IntN(3), Reduce: eval.ReduceMean, Thresholds: eval.Thresholds{Pass: 1}, Evaluators: []eval.Definition{{ID: "e", Weight: 1}}}
		var rollouts []Rollout
		for i := range 1 + random.IntN(12) {
			e := &eval.Evaluation{ID: fmt.Sprint(i), Cluster: []string{"", "c", "d"}[random.IntN(3)]}
			for _, tag := range []string{"a", "b", "c"} {
				if random.IntN(2) == 0 {
					e.Tags = append(e.Tags, tag)
				}
			}
			for _, agent := range []string{"x", "y"} {
				for epoch := 1; epoch <= set.Epochs; epoch++ {
					score := float64(random.IntN(3)) / 2
					rollouts = append(rollouts, Rollout{EvaluationID: e.ID, Agent: agent, Epoch: epoch, Evaluation: e, State: states[random.IntN(len(states))],
						AgentsFault: random.IntN(2) == 0, Results: []eval.Result{{EvaluatorID: "e", Score: &score, Scale: 1}}})
				}
			}
		}
		for _, agent := range summaryOf(set, rollouts).PerAgent() {
			for _, tag := range []string{"a", "b", "c"} {
				only := summaryOf(set, slices.DeleteFunc(slices.Clone(rollouts), func(r Rollout) bool {
					return r.Agent != agent.Agent || !slices.Contains(r.Evaluation.Tags, tag)
				}))
				want := TagSummary{Tag: tag, Evaluations: only.Coverage.Evaluations, Score: only.Score, PassRate: only.PassRate, EvaluationsPassed: only.EvaluationsPassed}
				i := slices.IndexFunc(agent.Tags, func(one TagSummary) bool { return one.Tag == tag })
				if want.Evaluations == 0 {
					if i >= 0 {
						t.Errorf("%s has a row for %s, which nothing has", agent.Agent, tag)
					}
					continue
				}
				if i < 0 {
					t.Fatalf("%s has no row for %s", agent.Agent, tag)
				}
				if diff := cmp.Diff(want, agent.Tags[i]); diff != "" {
					t.Errorf("%s %s: %s", agent.Agent, tag, diff)
				}
			}
		}
	}
}

func summaryOf(set *eval.Set, rollouts []Rollout) Summary {
	s := New(set, kinds.All)
	for _, r := range rollouts {
		s.Add(r)
	}
	return s.Summary()
}
