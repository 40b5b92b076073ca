package summary

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/eval/kinds"
)

func TestStatisticsOfJudges(t *testing.T) {
	call := func(c eval.JudgeCall) eval.Result {
		return eval.Result{EvaluatorID: "j", Judge: &eval.Judged{Fingerprint: "f", Verdicts: []eval.JudgeCall{c}}}
	}
	used := func(cost *float64) *eval.Usage {
		return &eval.Usage{Model: "gpt", InputTokens: 100, OutputTokens: 10, Cost: cost}
	}
	s := New(&eval.Set{Evaluators: []eval.Definition{{ID: "j", Weight: 1}, {ID: "cached", Weight: 1}}}, kinds.All)
	add := func(evaluation string, results ...eval.Result) {
		s.Add(Rollout{EvaluationID: evaluation, State: eval.StateCompleted, Results: results})
	}
	add("1", call(eval.JudgeCall{Model: "gpt", ModelReturned: "gpt-2", Attempts: 1, Usage: used(ptr(0.5))}))
	add("2", call(eval.JudgeCall{Model: "gpt", ModelReturned: "gpt-1", Attempts: 1, Usage: used(ptr(0.25))}))
	add("3", call(eval.JudgeCall{Model: "gpt", ModelReturned: "gpt-1", Cached: true, Usage: used(ptr(0))}))
	add("4", call(eval.JudgeCall{Model: "gpt", Attempts: 5, ErrorCategory: eval.JudgeUnavailable, Error: "x"}))
	add("5", call(eval.JudgeCall{Model: "gpt", Attempts: 2, PaidTwice: true, ErrorCategory: eval.JudgeInvalid, Error: "x", Usage: used(nil)}))
	line := call(eval.JudgeCall{Model: "gpt", Attempts: 1})
	line.Line = true // its verdict is among those of the whole
	add("6", line, eval.Result{EvaluatorID: "cached", Judge: &eval.Judged{Fingerprint: "g", Verdicts: []eval.JudgeCall{{Model: "m", Cached: true, Usage: used(ptr(0))}}}})
	want := []JudgeSummary{
		{EvaluatorID: "j", Fingerprint: "f", Models: []string{"gpt"}, ModelsReturned: []string{"gpt-1", "gpt-2"}, Calls: 5, Cached: 1, PaidTwice: 1,
			Errors: map[eval.JudgeCategory]int{eval.JudgeUnavailable: 1, eval.JudgeInvalid: 1}, Usage: eval.Usage{InputTokens: 300, OutputTokens: 30, Cost: ptr(0.75), CostIncomplete: true}},
		{EvaluatorID: "cached", Fingerprint: "g", Models: []string{"m"}, ModelsReturned: []string{}, Calls: 1, Cached: 1, Errors: map[eval.JudgeCategory]int{}, Usage: eval.Usage{Cost: ptr(0)}},
	}
	if diff := cmp.Diff(want, s.Summary().Judges, cmpopts.IgnoreUnexported(JudgeSummary{})); diff != "" {
		t.Error(diff)
	}
}

// Four rollouts with three verdicts each, one of which has failed: by hand, of the eleven verdicts
// seven pass, 5 of the 10 pairs within rollouts agree; alpha = 1 - 10*D/(2*7*4) with
// D = 0 + 4/2 + 4/2 + 2/1 = 6.
func TestAPanelsAgreementIsSummedUpOverTheRun(t *testing.T) {
	s := New(&eval.Set{Evaluators: []eval.Definition{{ID: "panel", Weight: 1}, {ID: "alone", Weight: 1}}}, kinds.All)
	for evaluation, scores := range map[string][]float64{"1": {1, 1, 1}, "2": {1, 1, 0}, "3": {0, 0, 1}, "4": {1, 0}} {
		var calls []eval.JudgeCall
		for _, score := range scores {
			calls = append(calls, eval.JudgeCall{Model: "m", Score: &score})
		}
		if evaluation == "4" {
			calls = append(calls, eval.JudgeCall{Model: "m", ErrorCategory: eval.JudgeRefused})
		}
		s.Add(Rollout{EvaluationID: evaluation, State: eval.StateCompleted, Results: []eval.Result{
			{EvaluatorID: "panel", Judge: &eval.Judged{Fingerprint: "f", Verdicts: calls}}, {EvaluatorID: "alone", Judge: &eval.Judged{Fingerprint: "g", Verdicts: calls[:1]}}}})
	}
	judges := s.Summary().Judges
	if p := judges[0].Panel; p == nil || p.Items != 4 || p.Ratings != 11 || *p.Agreement != 0.5 || math.Abs(*p.Alpha-(1-60.0/56)) > 1e-12 {
		t.Errorf("%+v", p)
	}
	if judges[1].Panel != nil {
		t.Errorf("one verdict agrees with itself: %+v", judges[1].Panel)
	}
}

// A judge that always chooses what stands first says nothing of the answers.
func TestAPositionBiasIsCounted(t *testing.T) {
	s := New(&eval.Set{Evaluators: []eval.Definition{{ID: "pairs", Type: judged.TypePairwise, Weight: 1}}}, kinds.All)
	half := 0.5
	for i, labels := range [][2]string{{"A", "A"}, {"A", "B"}, {"A", "tie"}} {
		s.Add(Rollout{EvaluationID: string(rune('a' + i)), State: eval.StateCompleted, Results: []eval.Result{{EvaluatorID: "pairs", Judge: &eval.Judged{Fingerprint: "f",
			Verdicts: []eval.JudgeCall{{Score: &half, Label: labels[0]}, {Score: &half, Label: labels[1]}}}}}})
	}
	judges := s.Summary().Judges
	if p := judges[0].Position; p == nil || *p != (PositionCounts{First: 4, Second: 1, Ties: 1}) || judges[0].Panel != nil {
		t.Errorf("%+v", judges[0])
	}
}
