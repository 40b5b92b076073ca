package uipath_test

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
)

func current(kind, config string) string {
	return `{"version":"1.0","id":"j","evaluatorTypeId":"uipath-llm-judge-` + kind + `","evaluatorConfig":{"name":"j","model":"m"` + config + `}}`
}

func TestScoresOfJudgesAreRoundedAsPythonRounds(t *testing.T) {
	s := eval.Subject{Output: json.RawMessage(`{"a": 1}`), Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`{"a": 1}`)}}
	for score, want := range map[string]float64{"12.5": .12, "37.5": .38, "62.5": .62, "87.5": .88, "99.6": 1, "0.4": 0, "0.5": .01, "66.666": .67, "0": 0, "100": 1, `"85"`: .85} {
		got := evaltest.JudgedBy(t, current("output-semantic-similarity", ""), s, evaltest.Says(score))
		if got.Score == nil || *got.Score != want || math.Signbit(*got.Score) || got.Error != "" {
			t.Errorf("%s: %v, %s, want %v", score, got.Score, got.Error, want)
		}
	}
	for _, score := range []string{"100.5", "-0.1", "1e999", `"NaN"`, `"inf"`, "null", "true", "[1]", `"good"`} {
		got := evaltest.JudgedBy(t, current("output-semantic-similarity", ""), s, evaltest.Says(score))
		if got.Score != nil || got.ErrorCategory != eval.JudgeInvalid {
			t.Errorf("%s: %+v", score, got)
		}
	}
}

func TestPromptsAreFilledAsUiPathFillsThem(t *testing.T) {
	s := eval.Subject{Output: json.RawMessage(`{"result": 10, "ok": true, "note": null}`), Evaluation: eval.Evaluation{
		Inputs: json.RawMessage(`{"a": 3, "op": "+"}`), ExpectedOutput: json.RawMessage(`{"result": 10.0}`), ExpectedAgentBehavior: "Add them.",
		Criteria: map[string]json.RawMessage{"j": json.RawMessage(`{"expectedAgentBehavior": "Add."}`)}},
		Trace: [][]json.RawMessage{{json.RawMessage(`{"name":"add","start_time":"2026-01-02T03:04:05.5+01:00","end_time":"2026-01-02T03:04:07+01:00",` +
			`"attributes":{"tool.name":"add","input.value":"{'a': 3}","output.value":"  {\"content\": 10} \n"}}`),
			json.RawMessage(`{"name":"x","attributes":{"other":1}}`)}}}
	history := "[2026-01-02 02:04:05] LLM Response:\n  Agent Selected 1 Tool(s):\n\n  Tool: add\n  Arguments: {'a': 3}\n\n" +
		"[2026-01-02 02:04:07] Tool Call Response - add:\n{\"content\": 10}\n"
	actual, expected := "{'result': 10.0, 'ok': True, 'note': None}", "{'result': 10.0}"
	legacy := func(category, prompt string) string {
		return `{"id":"j","name":"j","category":` + category + `,"type":7,"model":"m","targetOutputKey":"result","prompt":` + strconv.Quote(prompt) + `}`
	}
	for name, c := range map[string]struct{ file, want string }{
		"both":     {current("output-semantic-similarity", `,"prompt":"A {{ActualOutput}} E {{ExpectedOutput}} A {{ActualOutput}}"`), "A " + actual + " E " + expected + " A " + actual},
		"by key":   {current("output-strict-json-similarity", `,"targetOutputKey":"result","prompt":"{{ActualOutput}}/{{ExpectedOutput}}"`), "10.0/10.0"},
		"appended": {current("output-semantic-similarity", `,"prompt":"Well?"`), "Well?\n\n## Actual Output\n<ActualOutput>\n" + actual + "\n</ActualOutput>\n\n## Expected Output\n<ExpectedOutput>\n" + expected + "\n</ExpectedOutput>"},
		"one":      {current("output-semantic-similarity", `,"prompt":"{{ExpectedOutput}}?"`), expected + "?\n\n## Actual Output\n<ActualOutput>\n" + actual + "\n</ActualOutput>"},
		"run": {current("trajectory-similarity", `,"prompt":"{{ExpectedAgentBehavior}}|{{AgentRunHistory}}|{{UserOrSyntheticInput}}|{{SimulationInstructions}}|"`),
			"Add.|" + history + "|{'a': 3, 'op': '+'}||"},
		"run appended": {current("trajectory-simulation", `,"prompt":"Well?"`), "Well?\n\n## Actual Output\n<ActualOutput>\n" + history + "\n</ActualOutput>\n\n## Expected Output\n<ExpectedOutput>\nAdd.\n</ExpectedOutput>"},
		"legacy":       {legacy("1", "{{ActualOutput}} = {{ExpectedOutput}}"), "10 = 10.0"},
		"legacy run":   {legacy("3", "{{ExpectedAgentBehavior}}: {{AgentRunHistory}}"), "Add them.: " + history},
	} {
		var got eval.Question
		result := evaltest.JudgedBy(t, c.file, s, func(q eval.Question) (string, error) { got = q; return evaltest.Says("50")(q) })
		if diff := cmp.Diff(c.want, got.Prompt); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		isLegacy := strings.HasPrefix(name, "legacy")
		if want := map[bool]float64{false: 0.5, true: 50}[isLegacy]; result.Score == nil || *result.Score != want {
			t.Errorf("%s: %+v", name, result)
		}
		if (got.System == "") != isLegacy || (got.Temperature == nil) != isLegacy || got.Tool.Name != "submit_evaluation" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// In UiPath's package the placeholder in the output is filled too: what was expected is then in the
// agent's own answer.
func TestValuesAreNotSearchedForPlaceholders(t *testing.T) {
	s := eval.Subject{Output: json.RawMessage(`"{{ExpectedOutput}} {{ActualOutput}}"`), Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`"42 {{ActualOutput}}"`)}}
	evaltest.JudgedBy(t, current("output-semantic-similarity", `,"prompt":"A {{ActualOutput}} E {{ExpectedOutput}}"`), s, func(q eval.Question) (string, error) {
		if want := "A {{ExpectedOutput}} {{ActualOutput}} E 42 {{ActualOutput}}"; q.Prompt != want {
			t.Errorf("%q, want %q", q.Prompt, want)
		}
		return evaltest.Says("0")(q)
	})
}

func TestJudgesThatFailGiveNoScore(t *testing.T) {
	s := eval.Subject{Output: json.RawMessage(`1`), Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`1`), Criteria: map[string]json.RawMessage{"j": json.RawMessage("null")}}}
	file := current("output-semantic-similarity", "")
	got := evaltest.JudgedBy(t, file, s, func(eval.Question) (string, error) {
		return "", &eval.JudgeError{Category: eval.JudgeRefused, Message: "no"}
	})
	if got.Score != nil || got.Error != "no" || got.ErrorCategory != eval.JudgeRefused || got.NotRun != "" || got.Judge == nil || got.Judge.Verdicts[0].ErrorCategory != eval.JudgeRefused || !got.Failed() {
		t.Errorf("%+v", got)
	}
	got = evaltest.JudgedBy(t, file, s, func(eval.Question) (string, error) { return "", &eval.NotAsked{Reason: "no key"} })
	if got.Score != nil || got.Error != "" || got.NotRun != "no key" || got.Judge != nil || got.Failed() {
		t.Errorf("%+v", got)
	}
	if got = evaltest.JudgedBy(t, file, s, nil); got.Score != nil || got.NotRun == "" {
		t.Errorf("%+v", got)
	}
	if got = evaltest.JudgedBy(t, file, s, func(eval.Question) (string, error) { return "", errors.New("disk") }); got.Score != nil || got.Error != "disk" {
		t.Errorf("%+v", got)
	}
	for name, c := range map[string]struct{ file, want string }{
		"output":   {`{"id":"j","name":"j","category":1,"type":5,"model":"m","prompt":"?"}`, "EMPTY_EXPECTED_OUTPUT"},
		"run":      {`{"id":"j","name":"j","category":3,"type":7,"model":"m","prompt":"{{ExpectedAgentBehavior}}{{AgentRunHistory}}"}`, "EMPTY_EXPECTED_AGENT_BEHAVIOR"},
		"no words": {current("trajectory-similarity", ""), "MISSING_EVALUATION_CRITERIA"},
	} {
		empty := eval.Subject{Output: json.RawMessage(`1`), Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`{"a": " ", "b": ""}`), Criteria: map[string]json.RawMessage{"j": json.RawMessage("null")}}}
		if got := evaltest.JudgedBy(t, c.file, empty, evaltest.Says("100")); got.Score == nil || *got.Score != 0 || !strings.Contains(got.Error, c.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestJudgesThatGoByLines(t *testing.T) {
	s := eval.Subject{Output: json.RawMessage(`"a\nb"`), Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`"a\nc"`)}}
	var samples []int
	ask := func(q eval.Question) (string, error) {
		samples = append(samples, q.Sample)
		if strings.Contains(q.Prompt, "b/c") {
			return evaltest.Says("0")(q)
		}
		return evaltest.Says("100")(q)
	}
	file := current("output-semantic-similarity", `,"lineByLineEvaluator":true,"prompt":"{{ActualOutput}}/{{ExpectedOutput}}"`)
	got := evaltest.JudgedBy(t, file, s, ask)
	if got.Score == nil || *got.Score != 0.5 || len(got.Judge.Verdicts) != 2 || !cmp.Equal(samples, []int{0, 1}) {
		t.Errorf("%+v, samples %v", got, samples)
	}
	got = evaltest.JudgedBy(t, file, s, func(q eval.Question) (string, error) {
		if q.Sample == 1 {
			return "", &eval.JudgeError{Category: eval.JudgeTimeout, Message: "slow"}
		}
		return evaltest.Says("100")(q)
	})
	if got.Score != nil || got.ErrorCategory != eval.JudgeTimeout || len(got.Judge.Verdicts) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestMaxTokensOfClaude(t *testing.T) {
	s := eval.Subject{Output: json.RawMessage(`1`), Evaluation: eval.Evaluation{ExpectedOutput: json.RawMessage(`1`)}}
	for config, want := range map[string]int{"": 0, `,"maxTokens":77`: 77, `,"model":"anthropic.claude-sonnet-4-5-20250929-v1:0"`: 8000, `,"model":"claude-haiku-4-5","maxTokens":5`: 5} {
		file := strings.Replace(current("output-semantic-similarity", config), `"model":"m",`, "", 1)
		if !strings.Contains(config, "model") {
			file = current("output-semantic-similarity", config)
		}
		evaltest.JudgedBy(t, file, s, func(q eval.Question) (string, error) {
			if q.MaxTokens != want {
				t.Errorf("%s: %d, want %d", config, q.MaxTokens, want)
			}
			return evaltest.Says("1")(q)
		})
	}
}
