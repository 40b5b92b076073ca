package compare

import (
	"slices"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
)

func TestJudgesThatDiffer(t *testing.T) {
	side := func(all ...summary.JudgeSummary) *Side {
		return &Side{Evaluators: []Evaluator{{ID: "kind"}, {ID: "exact"}}, Judges: all}
	}
	judge := func(fingerprint string, answered ...string) summary.JudgeSummary {
		return summary.JudgeSummary{EvaluatorID: "kind", Fingerprint: fingerprint, Models: []string{"gpt"}, ModelsReturned: answered}
	}
	against := func(run, agent string) summary.JudgeSummary {
		one := judge("1")
		one.Reference = &eval.ReferenceRun{Run: run, Agent: agent}
		return one
	}
	notRun := func(rollouts int) *Side {
		s := side()
		s.Evaluators[0].NotRun = rollouts
		return s
	}
	for name, c := range map[string]struct {
		a, b *Side
		want []string
	}{
		"none":           {side(), side(), nil},
		"only one side":  {side(judge("1", "gpt-1")), side(), nil},
		"the same":       {side(judge("1", "gpt-1")), side(judge("1", "gpt-1")), nil},
		"another text":   {side(judge("1", "gpt-1")), side(judge("2", "gpt-1")), []string{"evaluator kind was asked of its judges with other texts or parameters in A than in B"}},
		"another answer": {side(judge("1", "gpt-1")), side(judge("1", "gpt-2")), []string{"evaluator kind was judged by gpt-1 in A and by gpt-2 in B"}},
		"in any order":   {side(judge("1", "gpt-1"), judge("2", "gpt-2")), side(judge("2", "gpt-2"), judge("1", "gpt-1")), nil},
		"unnamed":        {side(judge("1")), side(judge("1")), nil},
		"another run":    {side(against("r1", "")), side(against("r2", "mine")), []string{"evaluator kind was compared with run r1 in A and with run r2 (agent mine) in B"}},
		"a run and not":  {side(judge("1")), side(against("r1", "")), []string{"evaluator kind was compared with the expected output in A and with run r1 in B"}},
		"not run":        {side(judge("1", "gpt-1")), notRun(1), []string{"evaluator kind was not run for 0 rollouts in A and 1 rollout in B"}}, // V2
		"the same run":   {side(against("r1", "")), side(against("r1", "")), nil},
	} {
		var d Document
		d.judgeDifferences(c.a, c.b)
		if !slices.Equal(d.JudgeDifferences, c.want) {
			t.Errorf("%s: %q, want %q", name, d.JudgeDifferences, c.want)
		}
	}
}
