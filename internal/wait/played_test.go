package wait

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/input"
)

func parseAnswers(t *testing.T, text string) []PlayedAnswer {
	t.Helper()
	n, err := input.Parse("set.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	out := ParseAnswers(r, n, "answers")
	if len(r.Problems) > 0 {
		t.Fatal(r.Problems)
	}
	return out
}

func TestAnswersMatchQuestions(t *testing.T) {
	for _, c := range []struct {
		match, payload string
		want           bool
	}{
		{`{}`, `{"anything": 1}`, true},
		{`{title: "Pay *"}`, `{"title": "Pay 12 to ACME?"}`, true},
		{`{title: "Pay *"}`, `{"title": "Repay 12"}`, false},
		{`{title: "*ACME?"}`, `{"title": "Pay 12 to ACME?"}`, true},
		{`{title: "P*y*ME*?"}`, `{"title": "Pay 12 to ACME?"}`, true},
		{`{title: "Pay*Pay"}`, `{"title": "Pay"}`, false},
		{`{title: "Pay*y"}`, `{"title": "Pay"}`, false},
		{`{title: "[x]?"}`, `{"title": "[x]?"}`, true},
		{`{title: Pay}`, `{"Title": "Pay"}`, true},
		{`{title: "Go on?"}`, `"Go on?"`, true},
		{`{title: "Go on?"}`, `{"question": "Go on?"}`, true},
		{`{title: "Go on?"}`, `7`, false},
		{`{type: TASK}`, `{}`, true},
		{`{type: API}`, `{}`, false},
		{`{interrupt: "i-*"}`, `{}`, true},
		{`{interrupt: "j-*"}`, `{}`, false},
		{`{evaluation: e1}`, `{}`, true},
		{`{evaluation: "Bu*"}`, `{}`, true},
		{`{evaluation: e2}`, `{}`, false},
		{`{payload: {a: {b: 1}}}`, `{"a": {"b": 1, "c": 2}, "d": 3}`, true},
		{`{payload: {a: {b: 1}}}`, `{"a": {"b": 2}}`, false},
		{`{payload: {a: {b: 1}}}`, `{"a": 1}`, false},
		{`{payload: {a: "x*"}}`, `{"a": "xyz"}`, true},
		{`{payload: {a: ""}}`, `{"a": "xyz"}`, false},
		{`{payload: {a: null}}`, `{"b": 1}`, false},
		{`{payload: {a: [1, {c: 2, d: 3}]}}`, `{"a": [1, {"d": 3, "c": 2}]}`, true},
		{`{payload: {a: [1]}}`, `{"a": [1, 2]}`, false},
		{`{title: Pay, payload: {a: 1}}`, `{"title": "Pay", "a": 2}`, false},
	} {
		answers := &PlayedAnswers{Set: parseAnswers(t, `[{match: `+c.match+`, approve: true}]`)}
		q := AskedQuestion{EvaluationID: "e1", EvaluationName: "Buys", InterruptID: "i-1",
			Spec: Spec{Type: TypeTask, Name: "ESCALATION", Payload: json.RawMessage(c.payload)}}
		if got := answers.For(q) != nil; got != c.want {
			t.Errorf("%s and %s: got %v", c.match, c.payload, got)
		}
	}
}

func TestTheFirstAnswerIsPlayed(t *testing.T) {
	answers := &PlayedAnswers{
		Evaluations: map[string][]PlayedAnswer{"e1": parseAnswers(t, `[{match: {title: B}, payload: own}]`)},
		File:        parseAnswers(t, `[{match: {title: A}, payload: file}]`),
		Set: parseAnswers(t, `[{match: {title: "?"}, payload: 1}, {match: {title: A}, payload: 2}, {match: {title: "?*"}, payload: 3},
			{match: {}, deny: true}]`),
	}
	for _, c := range []struct {
		evaluation, title string
		want              *Played
	}{
		{"e1", "B", &Played{Place: "answers[0]", Over: []string{"answers[3]"}, FixedResult: FixedResult{Result: json.RawMessage(`"own"`)}}},
		{"e2", "B", &Played{Place: "answers[3]", FixedResult: FixedResult{Result: json.RawMessage(`{"action":"deny","approved":false}`)}}},
		{"e2", "A", &Played{Place: "answers[0]", Over: []string{"answers[1]", "answers[3]"}, FixedResult: FixedResult{Result: json.RawMessage(`"file"`)}}},
		{"e2", "?", &Played{Place: "answers[0]", Also: []string{"answers[2]"}, Over: []string{"answers[3]"}, FixedResult: FixedResult{Result: json.RawMessage(`1`)}}},
	} {
		payload := json.RawMessage(`{"title": "` + c.title + `"}`)
		got := answers.For(AskedQuestion{EvaluationID: c.evaluation, Spec: Spec{Type: TypeTask, Payload: payload}})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s, %s: %s", c.evaluation, c.title, diff)
		}
	}
	if got := answers.For(AskedQuestion{Spec: Spec{Type: TypeTimer}}); got != nil {
		t.Errorf("a timer is played: %+v", got)
	}
}

// An approval that lets nothing through would be asked for again and again.
func TestAnApprovalWithoutEffectFails(t *testing.T) {
	answers := &PlayedAnswers{Set: parseAnswers(t, `[{match: {}, approve: true}]`)}
	q := AskedQuestion{Spec: Spec{Type: TypeTask, Payload: json.RawMessage(`{"withoutEffect": true, "note": "no name is given"}`)}}
	if got := answers.For(q); got == nil || got.Result != nil || got.Fail == "" {
		t.Errorf("got %+v", got)
	}
}
