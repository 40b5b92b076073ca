package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// failingCase is a rollout that one evaluator finds wanting.
type failingCase struct {
	id, name, kind, config, criteria, input, output, trace, stderr string
}

func (c failingCase) definition() eval.Definition {
	return eval.Definition{ID: c.id, Name: c.kind[strings.LastIndex(c.kind, "uipath-")+len("uipath-"):], Type: c.kind, Weight: 1, Config: json.RawMessage(c.config)}
}

func toolSpan(name, args string) string {
	span, err := json.Marshal(map[string]any{"name": name, "context": map[string]any{"span_id": name + args}, "attributes": map[string]any{"tool.name": name, "input.value": args, "output.value": ""}})
	if err != nil {
		panic(err)
	}
	return string(span) + "\n"
}

var failingCases = []failingCase{
	{"wrong", "Wrong output", "uipath-exact-match", `{"name":"n"}`, `{"expectedOutput":{"category":"refund","items":[{"id":1,"price":10.0},{"id":2,"price":7}],"note":"to be paid back\nwithin 14 days\nthank you"}}`,
		`{"message":"I want my money back"}`, `{"category":"cancel","items":[{"id":1,"price":10},{"id":2,"price":7.5}],"note":"to be paid back\nwithin 30 days\nthank you","extra":true}`, "", "loading the model\nWarning: category \x1b[31mguessed\x1b[0m\n"},
	{"missing", "Missing key", "uipath-exact-match", `{"name":"n","targetOutputKey":"answer.category"}`, `{"expectedOutput":{"answer":{"category":"refund"}}}`, `{"message":"hello"}`, `{"answer":{"kind":"refund"}}`, "", ""},
	{"leaf", "Missing leaf", "uipath-json-similarity", `{"name":"n"}`, `{"expectedOutput":{"a":{"b":1,"c":2},"list":["x","y","z"]}}`, `{}`, `{"a":{"b":1},"list":["x","z"],"more":"is no difference"}`, "", ""},
	{"text", "Wrong text", "uipath-contains", `{"name":"n"}`, `{"searchText":"goodbye"}`, `{"name":"Ada"}`, `{"content":"hello\u0007 \u202eworld\u00a0again"}`, "", ""},
	{"negated", "Says what it must not", "uipath-contains", `{"name":"n","negated":true,"targetOutputKey":"content"}`, `{"searchText":"secret"}`, `{}`, `{"content":"a secret"}`, "", ""},
	{"long", "Long values", "uipath-exact-match", `{"name":"n","targetOutputKey":"text"}`, `{"expectedOutput":{"text":"` + strings.Repeat("same ", 200) + `red` + strings.Repeat(" same", 200) + `"}}`, `{"text":"` + strings.Repeat("input ", 200) + `"}`,
		`{"text":"` + strings.Repeat("same ", 200) + `blue` + strings.Repeat(" same", 200) + `"}`, "", ""},
	{"order", "Tools in another order", "uipath-tool-call-order", `{"name":"n"}`, `{"toolCallsOrder":["search","check","book"]}`, `{}`, `{}`, toolSpan("search", "{}") + toolSpan("book", "{}"), ""},
	{"count", "Tools too often", "uipath-tool-call-count", `{"name":"n"}`, `{"toolCallsCount":{"search":["=",1],"book":[">=",1]}}`, `{}`, `{}`, toolSpan("search", `{"a":1}`) + toolSpan("search", `{"a":2}`), ""},
	{"args", "Tools with other arguments", "uipath-tool-call-args", `{"name":"n"}`, `{"toolCalls":[{"name":"book","args":{"city":"Rome","nights":2}},{"name":"pay","args":{}}]}`, `{}`, `{}`, toolSpan("book", `{"city":"Paris","nights":2,"pool":true}`), ""},
	{"lines", "Line by line", "uipath-exact-match", `{"name":"n","targetOutputKey":"content","lineByLineEvaluator":true}`, `{"expectedOutput":{"content":"one\ntwo\nthree"}}`, `{}`, `{"content":"one\n2\nthree"}`, "", ""},
	{"class", "Another class", "uipath-binary-classification", `{"name":"n","positiveClass":"spam","targetOutputKey":"label"}`, `{"expectedClass":"spam"}`, `{}`, `{"label":"Ham"}`, "", ""},
}

// failingRun has a rollout for every way in which one can fail.
func failingRun(t *testing.T) *testRun {
	set := setOf(nil)
	set.Name = "Why"
	add := func(id, name, input, evaluator, criteria string) {
		e := evaluation(id, name)
		e.Inputs = json.RawMessage(input)
		if evaluator != "" {
			e.Criteria[evaluator] = json.RawMessage(criteria)
		}
		set.Evaluations = append(set.Evaluations, e)
	}
	for _, c := range failingCases {
		set.Evaluators = append(set.Evaluators, c.definition())
		add(c.id, c.name, c.input, c.id, c.criteria)
	}
	judge := eval.Definition{ID: "judge", Name: "Judge", Type: "uipath-llm-judge-output-semantic-similarity", Weight: 1, NotRun: "no model"}
	program := eval.Definition{ID: "program", Name: "Program", Type: "command", Weight: 1, Config: json.RawMessage(`{"command":["sh","-c","echo 'no such table' >&2; exit 3"]}`)}
	scorer := eval.Definition{ID: "scorer", Name: "Scorer", Type: "command", Weight: 1, Config: json.RawMessage(`{"command":["sh","-c","echo '{\"score\":0.5,\"details\":{\"expected\":{\"n\":1},\"actual\":{\"n\":2}}}'"]}`)}
	set.Evaluators = append(set.Evaluators, judge, program, scorer, eval.Verifier)
	add("judged", "Not run", `{}`, "judge", `{}`)
	add("broken", "Evaluator error", `{}`, "program", `{}`)
	add("scored", "Scored by a program", `{}`, "scorer", `{}`)
	add("task", "Verified", `{}`, "", "")
	add("a, b", "Faults with stderr", `{"n":1}`, "", "")
	add("waits", "Waits", `{}`, "", "")
	add("good", "漢字 that pass", `{}`, "", "")

	r := newRunFrom(t, set, plans.Origin{CommandLine: []string{"evalrun", "run", "sets/it's.json", "--strict", "--", "sh", "agent.sh"}})
	r.claim(50)
	r.wait(400 * time.Millisecond)
	logs := func(stderr string) map[string]string { return map[string]string{record.FileStderr: stderr} }
	for i, c := range failingCases {
		e, err := kinds.All.New(c.definition())
		r.check(err)
		subject := eval.Subject{Evaluation: set.Evaluations[i], Output: json.RawMessage(c.output)}
		for line := range strings.Lines(c.trace) {
			subject.Trace = append(subject.Trace, []json.RawMessage{json.RawMessage(line)})
		}
		files := map[string]string{}
		if c.stderr != "" {
			files = logs(c.stderr)
		}
		r.completeWith(c.id, c.output, files, withoutDuration(e.Evaluate(t.Context(), subject).Results)...)
	}
	for i, def := range []eval.Definition{judge, program, scorer} {
		e, err := kinds.All.New(def)
		r.check(err)
		one := set.Evaluations[len(failingCases)+i]
		r.completeWith(one.ID, `{"answer":42}`, nil, withoutDuration(e.Evaluate(t.Context(), eval.Subject{Evaluation: one, Output: json.RawMessage(`{"answer":42}`), Env: os.Environ()}).Results)...)
	}
	dir := filepath.Join(string(files.Of(r.st).Run(testRunID).Rollout(r.claims["task"].RolloutID)), "verifier")
	r.check(os.MkdirAll(dir, 0o700))
	r.check(os.WriteFile(filepath.Join(dir, record.VerifierLog), []byte("collected 2 items\n\ntest_a PASSED\ntest_b FAILED: expected 3, got 4\n"), 0o600))
	r.completeWith("task", `{}`, nil, eval.Result{EvaluatorID: eval.Verifier.ID, EvaluatorName: eval.Verifier.Name, Score: ptr(0.5), Scale: 1, Details: json.RawMessage(`{"metrics":{"tests":2}}`)})
	stderr := "Traceback (most recent call last):\n  File \"agent.py\", line 3, in <module>\nKeyError: 'category'"
	r.commit("a, b", store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: fault.New("exit", "the agent ended with exit status 1; stderr ends with:\n"+stderr)}, logs(stderr+"\n"))
	r.suspend("waits", "", time.Hour, `{"title":"Approve","app_name":"a"}`, jobValue)
	r.completeWith("good", `{}`, nil, score("wrong", 1))
	return r
}

func withoutDuration(results []eval.Result) []eval.Result {
	for i := range results {
		results[i].Duration = 0
	}
	return results
}

// P1: a failure says what was expected and what came, what the agent was given, its last word, where
// the log is and how to repeat it; the summary is the last line.
func TestFailures(t *testing.T) {
	r := failingRun(t)
	s := everything
	s.Dir, s.Failures, s.Last = r.dir, -1, "results: results.json"
	r.report(func(rep *Report) {
		for name, write := range map[string]func(io.Writer) error{
			"why.xml": func(w io.Writer) error { return rep.WriteJUnit(w, s) },
			"why.md":  func(w io.Writer) error { return rep.WriteMarkdown(w, s) },
			"why.txt": func(w io.Writer) error { return rep.WriteTable(w, s) },
		} {
			var b bytes.Buffer
			r.check(write(&b))
			golden(t, name, b.Bytes())
		}
		for _, columns := range []int{60, 120} {
			for _, color := range []bool{false, true} {
				one, name := s, fmt.Sprintf("why-%d.txt", columns)
				one.Failures, one.Terminal = 1, Terminal{columns, color}
				if color {
					name = fmt.Sprintf("why-%d-color.txt", columns)
				}
				var b bytes.Buffer
				r.check(rep.WriteTable(&b, one))
				golden(t, name, b.Bytes())
			}
		}
	})
	r.document()
}

// At most so many failures are told at length, and it is said how many are not.
func TestFailuresAreLimited(t *testing.T) {
	r := failingRun(t)
	for n, want := range map[int]string{0: "", 2: "… and 14 more failures; --failures all shows all"} {
		s := everything
		s.Failures = n
		r.report(func(rep *Report) {
			var b bytes.Buffer
			r.check(rep.WriteTable(&b, s))
			if got := strings.Count(b.String(), "\n✗ ") + strings.Count(b.String(), "\n⚠ ") + strings.Count(b.String(), "\n? "); got != n || !strings.Contains(b.String(), want) {
				t.Errorf("%d failures, expected %d and %q:\n%s", got, n, want, &b)
			}
		})
	}
}

// Everything about one rollout, of whatever kind it is.
func TestRolloutsAreShownWhole(t *testing.T) {
	r := failingRun(t)
	local := time.Local
	time.Local = time.UTC
	t.Cleanup(func() { time.Local = local })
	s := everything
	s.Dir = r.dir
	r.report(func(rep *Report) {
		var b bytes.Buffer
		n, err := rep.WriteRollouts(&b, s, func(one *schemas.Rollout) bool { return true })
		r.check(err)
		if n != len(r.set.Evaluations) {
			t.Errorf("%d rollouts", n)
		}
		golden(t, "whole.txt", b.Bytes())
	})
}
