package report

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/schemas"
)

// X4: what judges have cost is told, of each of them, and what is not known of it.
func TestTheCostOfJudgesIsTold(t *testing.T) {
	known, more := 0.006, 0.0015
	use := func(cost *float64) eval.Usage { return eval.Usage{InputTokens: 4000, OutputTokens: 200, Cost: cost} }
	tone := summary.JudgeSummary{EvaluatorID: "tone", Models: []string{"a", "b"}, Calls: 4, Cached: 1, Usage: use(&known)}
	label := summary.JudgeSummary{EvaluatorID: "label", Models: []string{"a"}, Calls: 2, Usage: use(&more)}
	unpriced := summary.JudgeSummary{EvaluatorID: "other", Models: []string{"c", "a"}, Calls: 1, Usage: use(nil)}
	people := summary.JudgeSummary{EvaluatorID: "people", Calls: 9, Raters: &summary.Raters{}}
	for _, v := range []struct {
		name   string
		judges []summary.JudgeSummary
		want   []string
	}{
		{"none", nil, nil},
		{"people", []summary.JudgeSummary{people}, nil},
		{"one", []summary.JudgeSummary{tone, people}, []string{"judges: 4 questions, 1 of them answered from the cache; tokens: 4,000 input, 200 output; cost: $0.006"}},
		{"two", []summary.JudgeSummary{tone, label}, []string{"judges: 6 questions, 1 of them answered from the cache; tokens: 8,000 input, 400 output; cost: $0.0075 (The tone $0.006, label $0.0015)"}},
		{"unpriced", []summary.JudgeSummary{label, unpriced}, []string{"judges: 3 questions; tokens: 8,000 input, 400 output; cost: at least $0.0015 (label $0.0015, other unknown); judges.prices does not have all of a, c"}},
	} {
		s := summary.Summary{Judges: v.judges}
		s.Evaluators = []summary.EvaluatorSummary{{ID: "tone", Name: "The tone"}}
		if got := UsageSentences(&schemas.Head{Statistics: &s}); !slices.Equal(got, v.want) {
			t.Errorf("%s: got %q, want %q", v.name, got, v.want)
		}
	}
}

// X4: a verdict is told in the judges' own words, never as JSON: who has said what in how many votes.
func TestVerdictsAreToldInWords(t *testing.T) {
	low, high := 0.0, 1.0
	vote := func(model string, score *float64, label string) eval.JudgeCall {
		return eval.JudgeCall{Model: model, Score: score, Label: label, Usage: &eval.Usage{Cost: &high}}
	}
	for _, v := range []struct {
		name, details string
		verdicts      []eval.JudgeCall
		want          []string
	}{
		{"one", `{"justifications":["It is rude."]}`, []eval.JudgeCall{vote("a", &low, "")}, []string{"It is rude."}},
		{"UiPath's", `{"expected":"{'q': 1.0}","actual":"{'q': 2.0}","justification":"Another number."}`, []eval.JudgeCall{vote("a", &low, "")}, []string{"Another number."}},
		{"several", `{"label":"bad","justifications":["It is rude.","It shouts.","It is rude."]}`, []eval.JudgeCall{vote("a", &low, "bad"), vote("b", &low, "bad"), vote("a", nil, "")},
			[]string{"It is rude.", "It shouts.", "3 votes of a, b: bad, bad, no vote; majority; cost $3"}},
		{"silent", `{"label":"bad","justifications":[""]}`, []eval.JudgeCall{vote("a", &low, "bad")}, []string{"1 vote of a: bad; cost $1"}},
	} {
		r := schemas.EvaluationResult{Score: &low, Details: json.RawMessage(v.details), Judge: &eval.Judged{Verdicts: v.verdicts, Reduce: "majority"}}
		if got := findings(r); !slices.Equal(got, v.want) {
			t.Errorf("%s: got %q, want %q", v.name, got, v.want)
		}
		r.Score = &high
		if got := foundBy(r); !slices.Equal(got, v.want) {
			t.Errorf("%s, of the best score: got %q, want %q", v.name, got, v.want)
		}
	}
}
