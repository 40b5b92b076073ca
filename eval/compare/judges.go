package compare

import (
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/input"
)

// judgeDifferences says where judges were not the same on both sides: not run, asked in another
// way, or answered by another model. A difference of the scores then does not come from the agents
// alone.
func (d *Document) judgeDifferences(a, b *Side) {
	for _, one := range a.Evaluators {
		if other := b.evaluator(one.ID); other != nil && one.NotRun+other.NotRun > 0 {
			d.JudgeDifferences = append(d.JudgeDifferences,
				fmt.Sprintf("evaluator %s was not run for %s in A and %s in B",
					one.ID, rollouts(one.NotRun), rollouts(other.NotRun)))
		}
		x, y := judgesOf(a, one.ID), judgesOf(b, one.ID)
		if len(x.asked) == 0 || len(y.asked) == 0 {
			continue // it was not judged on both
		}
		if x.reference != y.reference {
			d.JudgeDifferences = append(d.JudgeDifferences,
				fmt.Sprintf("evaluator %s was compared with %s in A and with %s in B", one.ID, x.reference, y.reference))
		}
		switch {
		case !slices.Equal(x.answered, y.answered):
			d.JudgeDifferences = append(d.JudgeDifferences,
				fmt.Sprintf("evaluator %s was judged by %s in A and by %s in B",
					one.ID, input.List(x.answered), input.List(y.answered)))
		case !slices.Equal(x.asked, y.asked):
			d.JudgeDifferences = append(d.JudgeDifferences,
				fmt.Sprintf("evaluator %s was asked of its judges with other texts or parameters in A than in B", one.ID))
		}
	}
}

func rollouts(n int) string {
	if n == 1 {
		return "1 rollout"
	}
	return fmt.Sprintf("%d rollouts", n)
}

// judges holds the fingerprints with which an evaluator's judges were asked, and the models that
// have answered, sorted. reference says in words with what a judge has compared that compares two
// answers.
type judges struct {
	asked, answered []string
	reference       string
}

func judgesOf(s *Side, evaluator string) (out judges) {
	out.reference = "the expected output"
	for _, one := range s.Judges {
		if one.EvaluatorID == evaluator && one.Reference != nil {
			out.reference = "run " + one.Reference.Run
			if one.Reference.Agent != "" {
				out.reference += " (agent " + one.Reference.Agent + ")"
			}
		}
		if one.EvaluatorID == evaluator {
			out.asked = append(out.asked, one.Fingerprint)
			out.answered = append(out.answered, answeredBy(one)...)
		}
	}
	for _, list := range []*[]string{&out.asked, &out.answered} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return out
}

// answeredBy returns the models that say they have answered, else those that were asked.
func answeredBy(one summary.JudgeSummary) []string {
	if len(one.ModelsReturned) > 0 {
		return one.ModelsReturned
	}
	return one.Models
}
