// Package evaltest helps tests of evaluators and statistics.
package evaltest

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/eval/kinds"
)

// Evaluate runs one evaluator over one rollout. Criteria and output are JSON.
func Evaluate(t *testing.T, def eval.Definition, criteria, output string, spans ...string) []eval.Result {
	t.Helper()
	if def.ID == "" {
		def.ID, def.Name = "e", "E"
	}
	e, err := kinds.All.New(def)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	s := eval.Subject{
		Evaluation: eval.Evaluation{ID: "1", Name: "one",
			Criteria: map[string]json.RawMessage{def.ID: json.RawMessage(criteria)}},
		Output: json.RawMessage(output),
	}
	s.Trace = [][]json.RawMessage{Spans(spans)}
	return e.Evaluate(context.Background(), s).Results
}

// Definition returns an evaluator of a type, with the id e and the name E.
func Definition(kind, config string) eval.Definition {
	return eval.Definition{ID: "e", Name: "E", Type: kind, Weight: 1, Config: json.RawMessage(config)}
}

// Only asserts that there is one result and that it did not fail.
func Only(t *testing.T, results []eval.Result) eval.Result {
	t.Helper()
	if len(results) != 1 {
		t.Fatalf("got %d results, want 1: %+v", len(results), results)
	}
	if results[0].Error != "" {
		t.Fatalf("error: %s", results[0].Error)
	}
	return results[0]
}

// WantScore checks the score of a result.
func WantScore(t *testing.T, r eval.Result, want float64) {
	t.Helper()
	if r.Score == nil || math.Abs(*r.Score-want) > 1e-12 {
		t.Errorf("score %v, want %v (error %q)", Deref(r.Score), want, r.Error)
	}
}

// Deref returns the value that a pointer points to, for messages.
func Deref(p *float64) any {
	if p == nil {
		return nil
	}
	return *p
}

// Judge is a judge that answers at once.
type Judge func(q eval.Question) (string, error)

// Redact implements eval.Judge.
func (f Judge) Redact(text string) string { return text }

// Ask implements eval.Judge.
func (f Judge) Ask(_ context.Context, q eval.Question) (eval.Answer, error) {
	arguments, err := f(q)
	answer := eval.Answer{Arguments: json.RawMessage(arguments), Call: eval.JudgeCall{Provider: "p", Model: q.Model}}
	if err == nil {
		if wrong := q.Check(answer.Arguments); wrong != nil {
			err = &eval.JudgeError{Category: eval.JudgeInvalid, Message: wrong.Error()}
		}
	}
	return answer, err
}

// JudgedBy makes an evaluator of a file and lets it judge one rollout.
func JudgedBy(t *testing.T, file string, s eval.Subject, ask func(q eval.Question) (string, error)) eval.Result {
	t.Helper()
	def, problems, err := evalset.ParseEvaluator("e.json", []byte(file))
	if err != nil {
		t.Fatal(err, problems)
	}
	e, err := kinds.All.New(def)
	if err != nil {
		t.Fatal(err)
	}
	if s.Evaluation.Criteria == nil {
		s.Evaluation.Criteria = map[string]json.RawMessage{def.ID: json.RawMessage("{}")}
	}
	if ask != nil {
		s.Judge = Judge(ask)
	}
	results := e.Evaluate(t.Context(), s).Results
	return results[len(results)-1]
}

// Says makes a judge that always gives one score.
func Says(score string) func(eval.Question) (string, error) {
	return func(eval.Question) (string, error) {
		return `{"score": ` + score + `, "justification": "because"}`, nil
	}
}

// Span returns a span with these attributes.
func Span(attributes string) string { return `{"name":"tool","attributes":` + attributes + `}` }

// Spans returns the spans of one segment.
func Spans(spans []string) []json.RawMessage {
	var raw []json.RawMessage
	for _, s := range spans {
		raw = append(raw, json.RawMessage(s))
	}
	return raw
}

// Near checks a figure.
func Near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9 {
		t.Errorf("%s: got %v, want %v", what, Deref(got), want)
	}
}

// Absent checks that there is no figure.
func Absent(t *testing.T, what string, got *float64) {
	t.Helper()
	if got != nil {
		t.Errorf("%s: got %v, want none", what, *got)
	}
}
