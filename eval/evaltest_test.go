package eval

import (
	"context"
	"encoding/json"
	"math"
	"testing"
)

// evaluate runs one evaluator over one rollout. Criteria and output are JSON.
func evaluate(t *testing.T, def Definition, criteria, output string, spans ...string) []Result {
	t.Helper()
	if def.ID == "" {
		def.ID, def.Name = "e", "E"
	}
	e, err := All.New(def)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	s := Subject{
		Evaluation: Evaluation{ID: "1", Name: "one", Criteria: map[string]json.RawMessage{def.ID: json.RawMessage(criteria)}},
		Output:     json.RawMessage(output),
	}
	s.Trace = [][]json.RawMessage{rawSpans(spans)}
	return e.Evaluate(context.Background(), s).Results
}

func definition(kind, config string) Definition {
	return Definition{ID: "e", Name: "E", Type: kind, Weight: 1, Config: json.RawMessage(config)}
}

// only asserts that there is one result and that it did not fail.
func only(t *testing.T, results []Result) Result {
	t.Helper()
	if len(results) != 1 {
		t.Fatalf("got %d results, want 1: %+v", len(results), results)
	}
	if results[0].Error != "" {
		t.Fatalf("error: %s", results[0].Error)
	}
	return results[0]
}

func wantScore(t *testing.T, r Result, want float64) {
	t.Helper()
	if r.Score == nil || math.Abs(*r.Score-want) > 1e-12 {
		t.Errorf("score %v, want %v (error %q)", deref(r.Score), want, r.Error)
	}
}

func deref(p *float64) any {
	if p == nil {
		return nil
	}
	return *p
}

// judgeFunc is a judge that answers at once.
type judgeFunc func(q Question) (string, error)

func (f judgeFunc) Redact(text string) string { return text }

func (f judgeFunc) Ask(_ context.Context, q Question) (Answer, error) {
	arguments, err := f(q)
	answer := Answer{Arguments: json.RawMessage(arguments), Call: JudgeCall{Provider: "p", Model: q.Model}}
	if err == nil {
		if wrong := q.Check(answer.Arguments); wrong != nil {
			err = &JudgeError{JudgeInvalid, wrong.Error()}
		}
	}
	return answer, err
}

// judged makes an evaluator of a file and lets it judge one rollout.
func judgedBy(t *testing.T, file string, s Subject, ask func(q Question) (string, error)) Result {
	t.Helper()
	def, problems, err := ParseEvaluator("e.json", []byte(file))
	if err != nil {
		t.Fatal(err, problems)
	}
	e, err := All.New(def)
	if err != nil {
		t.Fatal(err)
	}
	if s.Evaluation.Criteria == nil {
		s.Evaluation.Criteria = map[string]json.RawMessage{def.ID: json.RawMessage("{}")}
	}
	if ask != nil {
		s.Judge = judgeFunc(ask)
	}
	results := e.Evaluate(t.Context(), s).Results
	return results[len(results)-1]
}

func says(score string) func(Question) (string, error) {
	return func(Question) (string, error) { return `{"score": ` + score + `, "justification": "because"}`, nil }
}

func span(attributes string) string { return `{"name":"tool","attributes":` + attributes + `}` }

func rawSpans(spans []string) []json.RawMessage {
	var raw []json.RawMessage
	for _, s := range spans {
		raw = append(raw, json.RawMessage(s))
	}
	return raw
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9 {
		t.Errorf("%s: got %v, want %v", what, deref(got), want)
	}
}

func absent(t *testing.T, what string, got *float64) {
	t.Helper()
	if got != nil {
		t.Errorf("%s: got %v, want none", what, *got)
	}
}
