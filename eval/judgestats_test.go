package eval

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestStatisticsOfJudges(t *testing.T) {
	call := func(c JudgeCall) Result {
		return Result{EvaluatorID: "j", Judge: &Judged{Fingerprint: "f", Verdicts: []JudgeCall{c}}}
	}
	used := func(cost *float64) *Usage {
		return &Usage{Model: "gpt", InputTokens: 100, OutputTokens: 10, Cost: cost}
	}
	s := NewStatistics(&Set{Evaluators: []Definition{{ID: "j", Weight: 1}, {ID: "cached", Weight: 1}}})
	add := func(evaluation string, results ...Result) {
		s.Add(Rollout{EvaluationID: evaluation, State: StateCompleted, Results: results})
	}
	add("1", call(JudgeCall{Model: "gpt", ModelReturned: "gpt-2", Attempts: 1, Usage: used(ptr(0.5))}))
	add("2", call(JudgeCall{Model: "gpt", ModelReturned: "gpt-1", Attempts: 1, Usage: used(ptr(0.25))}))
	add("3", call(JudgeCall{Model: "gpt", ModelReturned: "gpt-1", Cached: true, Usage: used(ptr(0))}))
	add("4", call(JudgeCall{Model: "gpt", Attempts: 5, ErrorCategory: JudgeUnavailable, Error: "x"}))
	add("5", call(JudgeCall{Model: "gpt", Attempts: 2, PaidTwice: true, ErrorCategory: JudgeInvalid, Error: "x", Usage: used(nil)}))
	line := call(JudgeCall{Model: "gpt", Attempts: 1})
	line.Line = true // its verdict is among those of the whole
	add("6", line, Result{EvaluatorID: "cached", Judge: &Judged{Fingerprint: "g", Verdicts: []JudgeCall{{Model: "m", Cached: true, Usage: used(ptr(0))}}}})
	want := []JudgeSummary{
		{EvaluatorID: "j", Fingerprint: "f", Models: []string{"gpt"}, ModelsReturned: []string{"gpt-1", "gpt-2"}, Calls: 5, Cached: 1, PaidTwice: 1,
			Errors: map[JudgeCategory]int{JudgeUnavailable: 1, JudgeInvalid: 1}, Usage: Usage{InputTokens: 300, OutputTokens: 30, Cost: ptr(0.75), CostIncomplete: true}},
		{EvaluatorID: "cached", Fingerprint: "g", Models: []string{"m"}, ModelsReturned: []string{}, Calls: 1, Cached: 1, Errors: map[JudgeCategory]int{}, Usage: Usage{Cost: ptr(0)}},
	}
	if diff := cmp.Diff(want, s.Summary().Judges, cmpopts.IgnoreUnexported(JudgeSummary{})); diff != "" {
		t.Error(diff)
	}
}

// Four rollouts with three verdicts each, one of which has failed: by hand, of the eleven verdicts
// seven pass, 5 of the 10 pairs within rollouts agree; alpha = 1 - 10*D/(2*7*4) with
// D = 0 + 4/2 + 4/2 + 2/1 = 6.
func TestAPanelsAgreementIsSummedUpOverTheRun(t *testing.T) {
	s := NewStatistics(&Set{Evaluators: []Definition{{ID: "panel", Weight: 1}, {ID: "alone", Weight: 1}}})
	for evaluation, scores := range map[string][]float64{"1": {1, 1, 1}, "2": {1, 1, 0}, "3": {0, 0, 1}, "4": {1, 0}} {
		var calls []JudgeCall
		for _, score := range scores {
			calls = append(calls, JudgeCall{Model: "m", Score: &score})
		}
		if evaluation == "4" {
			calls = append(calls, JudgeCall{Model: "m", ErrorCategory: JudgeRefused})
		}
		s.Add(Rollout{EvaluationID: evaluation, State: StateCompleted, Results: []Result{
			{EvaluatorID: "panel", Judge: &Judged{Fingerprint: "f", Verdicts: calls}}, {EvaluatorID: "alone", Judge: &Judged{Fingerprint: "g", Verdicts: calls[:1]}}}})
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
	s := NewStatistics(&Set{Evaluators: []Definition{{ID: "pairs", Type: typePairwise, Weight: 1}}})
	half := 0.5
	for i, labels := range [][2]string{{"A", "A"}, {"A", "B"}, {"A", "tie"}} {
		s.Add(Rollout{EvaluationID: string(rune('a' + i)), State: StateCompleted, Results: []Result{{EvaluatorID: "pairs", Judge: &Judged{Fingerprint: "f",
			Verdicts: []JudgeCall{{Score: &half, Label: labels[0]}, {Score: &half, Label: labels[1]}}}}}})
	}
	judges := s.Summary().Judges
	if p := judges[0].Position; p == nil || *p != (PositionCounts{First: 4, Second: 1, Ties: 1}) || judges[0].Panel != nil {
		t.Errorf("%+v", judges[0])
	}
}
