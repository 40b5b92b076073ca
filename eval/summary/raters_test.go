package summary

import (
	"fmt"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/judged"
)

// The ratings of all rollouts together say how far people agree: of scores by their differences, of
// labels by whether they are the same.
func TestRatersAgree(t *testing.T) {
	rate := func(config string, units ...[]eval.Rating) JudgeSummary {
		t.Helper()
		set := &eval.Set{Evaluators: []eval.Definition{evaltest.Definition(judged.TypeHuman, config)}}
		var rollouts []Rollout
		for i, ratings := range units {
			rollouts = append(rollouts, Rollout{EvaluationID: fmt.Sprint(i), State: eval.StateCompleted, Results: []eval.Result{{EvaluatorID: "e", Score: new(float64), Scale: 1, Ratings: ratings}}})
		}
		judges := summarize(set, rollouts...).Judges
		if len(judges) != 1 || judges[0].Raters == nil || judges[0].Fingerprint != set.Evaluators[0].Digest() {
			t.Fatalf("%+v", judges)
		}
		return judges[0]
	}
	labels := rate(`{"question":"?","answer":"labels","labels":["a","b","c"],"passingLabels":["a"],"raters":2}`,
		[]eval.Rating{{Label: "a", Score: 1}, {Label: "a", Score: 1}}, []eval.Rating{{Label: "b"}, {Label: "c"}}, []eval.Rating{{Label: "c"}, {Label: "c"}})
	// By hand: 2 of 3 pairs agree, by chance (1·1 + 1·0 + 1·2)/9 = 1/3; alpha is 1 − 2·5/22.
	evaltest.Near(t, "agreement", labels.Raters.Agreement, 2.0/3)
	evaltest.Near(t, "kappa", labels.Raters.Kappa, 0.5)
	evaltest.Near(t, "alpha", labels.Raters.Alpha, 6.0/11)
	if labels.Calls != 6 || labels.Raters.Items != 3 {
		t.Errorf("%+v", labels)
	}
	scores := rate(`{"question":"?","raters":2}`, []eval.Rating{{Score: 0}, {Score: 0.1}}, []eval.Rating{{Score: 1}, {Score: 0.9}})
	evaltest.Near(t, "alpha", scores.Raters.Alpha, 1-0.04*3/6.56)
	if scores.Raters.Kappa != nil || *scores.Raters.Agreement != 0 {
		t.Errorf("%+v", scores.Raters)
	}
}
