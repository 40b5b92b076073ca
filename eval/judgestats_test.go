package eval

import (
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
	add("1", call(JudgeCall{Model: "gpt", ModelReturned: "gpt-2", Attempts: 1, Usage: used(money(0.5))}))
	add("2", call(JudgeCall{Model: "gpt", ModelReturned: "gpt-1", Attempts: 1, Usage: used(money(0.25))}))
	add("3", call(JudgeCall{Model: "gpt", ModelReturned: "gpt-1", Cached: true, Usage: used(money(0))}))
	add("4", call(JudgeCall{Model: "gpt", Attempts: 5, ErrorCategory: JudgeUnavailable, Error: "x"}))
	add("5", call(JudgeCall{Model: "gpt", Attempts: 2, ErrorCategory: JudgeInvalid, Error: "x", Usage: used(nil)}))
	line := call(JudgeCall{Model: "gpt", Attempts: 1})
	line.Line = true // its verdict is among those of the whole
	add("6", line, Result{EvaluatorID: "cached", Judge: &Judged{Fingerprint: "g", Verdicts: []JudgeCall{{Model: "m", Cached: true, Usage: used(money(0))}}}})
	want := []JudgeSummary{
		{EvaluatorID: "j", Fingerprint: "f", Models: []string{"gpt"}, ModelsReturned: []string{"gpt-1", "gpt-2"}, Calls: 5, Cached: 1,
			Errors: map[JudgeCategory]int{JudgeUnavailable: 1, JudgeInvalid: 1}, Usage: Usage{InputTokens: 300, OutputTokens: 30, Cost: money(0.75), CostIncomplete: true}},
		{EvaluatorID: "cached", Fingerprint: "g", Models: []string{"m"}, ModelsReturned: []string{}, Calls: 1, Cached: 1, Errors: map[JudgeCategory]int{}, Usage: Usage{Cost: money(0)}},
	}
	if diff := cmp.Diff(want, s.Summary().Judges, cmpopts.IgnoreUnexported(JudgeSummary{})); diff != "" {
		t.Error(diff)
	}
}
