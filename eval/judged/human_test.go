package judged_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/eval/kinds"
)

func newHuman(t *testing.T, config string) eval.Evaluator {
	t.Helper()
	e, err := kinds.All.New(evaltest.Definition(judged.TypeHuman, config))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

var humanSubject = eval.Subject{
	Evaluation: eval.Evaluation{ID: "1", Inputs: json.RawMessage(`{"q":1}`), ExpectedOutput: json.RawMessage(`{"a":2}`), Criteria: map[string]json.RawMessage{"e": nil}},
	Agent:      "secretly", Output: json.RawMessage(`{"a":1}`), Results: []eval.Result{{EvaluatorID: "x", EvaluatorName: "Exact", Score: new(float64), Scale: 1}},
}

// What raters are asked: one task for each, in which blind ones see neither the agent nor what other
// evaluators have said.
func TestHumanAsks(t *testing.T) {
	v := newHuman(t, `{"question":"Is it polite?","rubric":"1 is polite","raters":2,"assignees":["ann","bob"]}`).Evaluate(t.Context(), humanSubject)
	want := func(i int, assignee string) string {
		return fmt.Sprintf(`{"id":"rater-%[1]d","value":{"type":"CreateTask","title":"Is it polite?","assignee":%[2]q,"data":{"question":"Is it polite?","rubric":"1 is polite","answer":"score",`+
			`"rater":%[1]d,"raters":2,"inputs":{"q":1},"output":{"a":1},"expected":{"a":2}}}}`, i, assignee)
	}
	if got, want := string(v.Wait), "["+want(1, "ann")+","+want(2, "bob")+"]"; got != want || v.Results != nil {
		t.Errorf("asked\n%s, want\n%s", got, want)
	}
	v = newHuman(t, `{"question":"Is it polite?","blind":false}`).Evaluate(t.Context(), humanSubject)
	if !strings.Contains(string(v.Wait), `"agent":"secretly","verdicts":[{"evaluator":"Exact","score":0}]`) {
		t.Errorf("asked %s", v.Wait)
	}
}

// Raters are told which files the agent has left, but not of what git keeps, and of a large
// workspace only the first.
func TestHumanSeesFiles(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"draft.md": "Dear customer", "src/a.txt": "", ".git/HEAD": "ref"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	subject := humanSubject
	subject.Workspace = dir
	v := newHuman(t, `{"question":"?"}`).Evaluate(t.Context(), subject)
	if want := `"files":[{"path":"draft.md","size":13},{"path":"src/a.txt","size":0}]}}}]`; !strings.HasSuffix(string(v.Wait), want) {
		t.Errorf("asked %s, want %s", v.Wait, want)
	}
	const most = 200
	for i := range most {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v = newHuman(t, `{"question":"?"}`).Evaluate(t.Context(), subject)
	if n := strings.Count(string(v.Wait), `"path"`); n != most || !strings.Contains(string(v.Wait), `"moreFiles":true`) {
		t.Errorf("%d files: %.200s", n, v.Wait)
	}
}

func TestHumanRatings(t *testing.T) {
	const labels = `"answer":"labels","labels":["good","ok","bad"],"passingLabels":["good","ok"]`
	for _, v := range []struct {
		name, config string
		answers      []string
		want         float64 // -1 for none
		error        string
	}{
		{"mean", `"raters":2`, []string{`{"score":0.8,"justification":"fine","rater":"ann"}`, `{"score":0.4}`}, 0.6, ""},
		{"median", `"raters":3,"reduce":"median"`, []string{`{"score":0.8}`, `{"score":0.6}`, `{"score":1}`}, 0.8, ""},
		{"approved", `"raters":2`, []string{`{"action":"approve","approved":true}`, `{"action":"deny","approved":false}`}, 0.5, ""},
		{"boolean", `"answer":"boolean","raters":3`, []string{`{"pass":true}`, `{"pass":true}`, `{"approved":false}`}, 1, ""},
		{"no majority", `"answer":"boolean","raters":2`, []string{`{"pass":true}`, `{"pass":false}`}, -1, "the 2 raters have no majority"},
		{"labels", labels + `,"raters":3`, []string{`{"label":"bad"}`, `{"label":"ok"}`, `{"label":"ok"}`}, 1, ""},
		{"labels that differ", labels + `,"raters":3`, []string{`{"label":"bad"}`, `{"label":"ok"}`, `{"label":"good"}`}, -1, "no majority"},
		{"one came before it could be checked", `"raters":1`, []string{`{"score":2}`}, -1, "rater-1: expected"},
	} {
		t.Run(v.name, func(t *testing.T) {
			deliveries := map[string]eval.Delivery{}
			for i, answer := range v.answers {
				deliveries[fmt.Sprintf("rater-%d", i+1)] = eval.Delivery{Status: "successful", Payload: json.RawMessage(answer)}
			}
			r := newHuman(t, `{"question":"?",`+v.config+`}`).Resume(t.Context(), humanSubject, deliveries).Results[0]
			if v.want < 0 {
				if r.Score != nil || !strings.Contains(r.Error, v.error) {
					t.Errorf("%+v", r)
				}
				return
			}
			evaltest.WantScore(t, r, v.want)
			if len(r.Ratings) != len(v.answers) {
				t.Errorf("%+v", r.Ratings)
			}
		})
	}
}

// What does not come is no score, whatever the others have said.
func TestHumanExpired(t *testing.T) {
	r := newHuman(t, `{"question":"?","raters":2}`).Resume(t.Context(), humanSubject, map[string]eval.Delivery{
		"rater-1": {Status: "successful", Payload: json.RawMessage(`{"score":1}`)},
		"rater-2": {Status: "expired", Error: &eval.DeliveryError{Category: "judge-expired", Message: "nobody"}},
	}).Results[0]
	if r.Score != nil || r.Error != "nobody" || r.ErrorCategory != eval.JudgeExpired {
		t.Errorf("%+v", r)
	}
}

// Answers are refused that the evaluator cannot take.
func TestHumanAnswers(t *testing.T) {
	score, boolean := evaltest.Definition(judged.TypeHuman, `{"question":"?"}`), evaltest.Definition(judged.TypeHuman, `{"question":"?","answer":"boolean"}`)
	labels := evaltest.Definition(judged.TypeHuman, `{"question":"?","answer":"labels","labels":["1","2"],"passingLabels":["2"]}`)
	for _, v := range []struct {
		def   eval.Definition
		value string
		want  string // empty if it is refused
	}{
		{score, "0.8", `{"justification":"why","rater":"me","score":0.8}`}, {score, "1", `{"justification":"why","rater":"me","score":1}`},
		{score, "1.1", ""}, {score, "-0.1", ""}, {score, "NaN", ""}, {score, "Inf", ""}, {score, "good", ""}, {score, "", ""},
		{boolean, "pass", `{"justification":"why","pass":true,"rater":"me"}`}, {boolean, "No", `{"justification":"why","pass":false,"rater":"me"}`}, {boolean, "0.5", ""},
		{labels, "2", `{"justification":"why","label":"2","rater":"me"}`}, {labels, "3", ""},
	} {
		got, err := judged.NewAnswer(v.def, v.value, "why", "me")
		if (err == nil) != (v.want != "") || err == nil && string(got) != v.want {
			t.Errorf("%q: %s, %v", v.value, got, err)
		}
	}
	for _, payload := range []string{`0.5`, `null`, `[]`, `"x"`, `{}`, `{"score":"1"}`, `{"score":NaN}`, `{"score":1e400}`, `{"pass":true}`, `{"approved":"yes"}`, `{`} {
		if judged.CheckAnswer(score, json.RawMessage(payload)) == nil {
			t.Errorf("%s is taken", payload)
		}
	}
}

func TestHumanConfiguration(t *testing.T) {
	for config, want := range map[string]string{
		`{}`:                                                    "question",
		`{"question":"?","raters":0}`:                           "raters",
		`{"question":"?","answer":"yes"}`:                       "answer",
		`{"question":"?","reduce":"majority"}`:                  "reduce",
		`{"question":"?","answer":"labels"}`:                    "at least two labels",
		`{"question":"?","answer":"labels","labels":["a","b"]}`: "passingLabels",
		`{"question":"?","answer":"labels","labels":["a","b"],"passingLabels":"a"}`:     "passingLabels",
		`{"question":"?","answer":"labels","labels":["ab","b"],"passingLabels":["ba"]}`: `got "ba"`,
		`{"question":"?","labels":["a","b"]}`:                                           "labels are of",
		`{"question":"?","raters":2,"assignees":["ann"]}`:                               "as many assignees",
	} {
		if _, err := kinds.All.New(evaltest.Definition(judged.TypeHuman, config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", config, err, want)
		}
	}
}
