package promptfoo_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/agent"
	_ "github.com/evalrun/evalrun/internal/agent/types"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/promptfoo"
)

// imported is a set that was made, as far as the tests look at it.
type imported struct {
	Name        string
	Agent       string
	Epochs      int
	Agents      []map[string]any
	Evaluators  []map[string]any
	Evaluations []struct {
		Name                string
		Inputs              map[string]any
		EvaluationCriterias map[string]struct {
			Checks         []json.RawMessage
			Rubric         string
			ExpectedOutput any
		}
	}
}

// load imports a configuration, and reads what was made of it.
func load(t *testing.T, config string, o promptfoo.Options, files ...string) (imported, *promptfoo.Imported) {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "promptfooconfig.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	made, err := promptfoo.Import(file, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, problems, err := evalset.Parse("set.json", made.Set, nil); err != nil {
		t.Fatalf("%v\n%s", problems, made.Set)
	}
	var out imported
	if err := json.Unmarshal(made.Set, &out); err != nil {
		t.Fatal(err)
	}
	return out, made
}

// same compares JSON.
func same(t *testing.T, what string, got any, want string) {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if json.Unmarshal(raw, &a) != nil || json.Unmarshal([]byte(want), &b) != nil {
		t.Fatalf("%s: no JSON: %s, %s", what, raw, want)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	if !bytes.Equal(x, y) {
		t.Errorf("%s: got %s, expected %s", what, x, y)
	}
}

const head = "prompts: ['{{q}}']\nproviders: [openai:gpt-5-mini]\n"

// Each assertion that has a counterpart becomes it.
func TestAssertions(t *testing.T) {
	for assertion, want := range map[string]string{
		`{type: equals, value: "{{q}}"}`:                                 `{"equals": "x"}`,
		`{type: equals, value: {a: 1}}`:                                  `{"equals": {"a": 1}}`,
		`{type: not-contains, value: a, weight: 2, metric: m}`:           `{"contains": "a", "not": true, "weight": 2, "name": "m"}`,
		`{type: icontains, value: 7}`:                                    `{"contains": "7", "ignoreCase": true}`,
		`{type: contains-any, value: "a, b"}`:                            `{"containsAny": ["a", "b"]}`,
		`{type: icontains-all, value: [a, b]}`:                           `{"containsAll": ["a", "b"], "ignoreCase": true}`,
		`{type: starts-with, value: a}`:                                  `{"startsWith": "a"}`,
		`{type: regex, value: '\d+'}`:                                    `{"regex": "\\d+"}`,
		`{type: is-json}`:                                                `{"isJson": true}`,
		`{type: contains-json, value: {type: object}}`:                   `{"containsJson": {"type": "object"}}`,
		`{type: is-json, value: '{"type": "array"}'}`:                    `{"isJson": {"type": "array"}}`,
		`{type: levenshtein, value: a}`:                                  `{"levenshtein": "a", "maxDistance": 5}`,
		`{type: rouge-n, value: a}`:                                      `{"rouge1": "a", "threshold": 0.75}`,
		`{type: bleu, value: a, threshold: 0.4}`:                         `{"bleu": "a", "threshold": 0.4}`,
		`{type: word-count, value: 3}`:                                   `{"words": {"min": 3, "max": 3}}`,
		`{type: word-count, value: {max: 3}}`:                            `{"words": {"max": 3}}`,
		`{type: latency, threshold: 500}`:                                `{"maxLatency": "500ms"}`,
		`{type: cost, threshold: 0.01}`:                                  `{"maxCost": 0.01}`,
		`{type: tool-call-f1, value: [a], threshold: 0.5}`:               `{"toolF1": ["a"], "threshold": 0.5}`,
		`{type: equals, value: a, transform: output.trim()}`:             `{"equals": "a", "transform": ["trim"]}`,
		`{type: equals, value: a, transform: "JSON.parse(output).b[0]"}`: `{"equals": "a", "path": "content.b[0]"}`,
		`{type: assert-set, threshold: 0.5, assert: [{type: contains, value: a}, {type: contains, value: b}]}`: `{"allOf": [{"contains": "a"}, {"contains": "b"}], "threshold": 0.5}`,
	} {
		set, made := load(t, head+"tests: [{vars: {q: x}, assert: ["+assertion+"]}]", promptfoo.Options{})
		if len(made.Missing) > 0 || len(set.Evaluations) != 1 || len(set.Evaluations[0].EvaluationCriterias["checks"].Checks) != 1 {
			t.Errorf("%s: %v %s", assertion, made.Missing, made.Set)
			continue
		}
		same(t, assertion, set.Evaluations[0].EvaluationCriterias["checks"].Checks[0], want)
	}
}

// What has no counterpart is said with its line, and the rest is made.
func TestMissing(t *testing.T) {
	for part, want := range map[string]string{
		`tests: [{assert: [{type: javascript, value: "true"}]}]`:                                       "the assertion javascript has no counterpart",
		`tests: [{assert: [{type: regex, value: "(?=a)"}]}]`:                                           "without look-ahead",
		`tests: [{assert: [{type: contains, value: "{{q | upper}}"}]}]`:                                "{{q | upper}} in a value has no counterpart",
		`tests: [{assert: [{type: contains, value: "{{z}}"}]}]`:                                        "{{z}} names no variable",
		`tests: [{assert: [{type: contains, value: "file://a.py"}]}]`:                                  "a value from a file .py has no counterpart",
		`tests: [{assert: [{type: equals, value: a, transform: "output.length"}]}]`:                    "the transform",
		`tests: [{assert: [{type: not-llm-rubric, value: a}]}]`:                                        "without not",
		`tests: [{assert: [{type: llm-rubric, value: a, provider: "ollama:chat:qwen3"}]}]`:             `the judge "ollama:chat:qwen3" has no counterpart`,
		`tests: [{assert: [{type: llm-rubric, value: a, provider: "openrouter:anthropic/claude-x"}]}]`: "the judge",
		`{tests: [{}], prompts: ["{% if a % 2 %}", "b"]}`:                                              "{% if a % 2 %} in a prompt",
		`tests: [{assert: [{type: latency}]}]`:                                                         "latency without a threshold",
		`tests: [{assert: [{type: similar, value: a, provider: "ollama:embeddings:e"}]}]`:              `embeddings of "ollama:embeddings:e" have no counterpart`,
		`tests: [{assert: [{type: similar, value: a, weight: 2}]}]`:                                    "weight of an assertion that asks a model has no counterpart",
		`tests: [{assert: [{type: similar}]}]`:                                                         "similar without a value has no counterpart",
		`tests: [{assert: [{type: "similar:dot", value: a}]}]`:                                         "the assertion similar:dot has no counterpart",
		`tests: [{assert: [{type: equals, value: a, config: {x: 1}}]}]`:                                "config has no counterpart",
		`tests: [{vars: {a: "{{b}}"}}]`:                                                                "{{b}} in a variable",
		`tests: [{options: {prefix: x}}]`:                                                              "prefix has no counterpart",
		`{tests: [{}], scenarios: []}`:                                                                 "scenarios has no counterpart",
		`{tests: [{}], providers: [openai:gpt-5-mini, "python:a.py"]}`:                                 `the provider "python:a.py"`,
		`{tests: [{}], prompts: ["{% if a %}", "b"]}`:                                                  "{% if a %} in a prompt",
		`{tests: [{}], prompts: ['[{"role": "user", "content": "file:a"}]', "b"]}`:                     "a message that begins with file:",
		`{tests: [{}], prompts: [{raw: "file:/etc/passwd"}, "b"]}`:                                     "begins with file:",
		`{tests: ["tests.csv"]}`:                                                                       "the column __metric has no counterpart",
	} {
		config := head + part
		if strings.HasPrefix(part, "{") {
			config = "{prompts: ['{{q}}'], providers: [openai:gpt-5-mini], " + part[1:]
			if strings.Contains(part, "providers:") {
				config = "{prompts: ['{{q}}'], " + part[1:]
			} else if strings.Contains(part, "prompts:") {
				config = "{providers: [openai:gpt-5-mini], " + part[1:]
			}
		}
		_, made := load(t, config, promptfoo.Options{}, "tests.csv", "q,__metric\n1,2\n")
		if said := made.Missing.Error(); !strings.Contains(said, want) || !strings.Contains(said, ".yaml:") && !strings.Contains(said, ".csv:1:") {
			t.Errorf("%s: got %q, expected %q", part, said, want)
		}
	}
}

// Variables with several values are multiplied out, the default test is part of each, and files of tests are
// read.
func TestExpansion(t *testing.T) {
	set, made := load(t, head+`
defaultTest: {vars: {b: 9, q: x}, assert: [{type: contains, value: d}]}
evaluateOptions: {repeat: 3}
tests:
  - {description: M, vars: {a: ['1', '2'], b: ['3', '4']}, threshold: 0.5, assert: [{type: contains, value: "{{a}}-{{b}}"}]}
  - file://more.csv
  - more.yaml`, promptfoo.Options{},
		"more.csv", "\ufeffq,__expected,__expected1,__description,__threshold\nA,\"a, b\",\"contains-any:x,y\",Row,0.7\n\"l1\nl2\",not-equals:z,,,\n",
		"more.yaml", "- {vars: {q: y}}\n")
	if made.Missing != nil || set.Epochs != 3 || len(set.Evaluations) != 7 {
		t.Fatalf("%v %s", made.Missing, made.Set)
	}
	var got []string
	for _, e := range set.Evaluations {
		var checks []string
		for _, c := range e.EvaluationCriterias["checks"].Checks {
			var b bytes.Buffer
			if err := json.Compact(&b, c); err != nil {
				t.Fatal(err)
			}
			checks = append(checks, b.String())
		}
		got = append(got, fmt.Sprintf("%s a=%v b=%v q=%q %s", e.Name, e.Inputs["a"], e.Inputs["b"], e.Inputs["q"], strings.Join(checks, " ")))
	}
	want := []string{
		`M (1 of 4) a=1 b=3 q="x" {"allOf":[{"contains":"d"},{"contains":"1-3"}],"threshold":0.5}`,
		`M (2 of 4) a=2 b=3 q="x" {"allOf":[{"contains":"d"},{"contains":"2-3"}],"threshold":0.5}`,
		`M (3 of 4) a=1 b=4 q="x" {"allOf":[{"contains":"d"},{"contains":"1-4"}],"threshold":0.5}`,
		`M (4 of 4) a=2 b=4 q="x" {"allOf":[{"contains":"d"},{"contains":"2-4"}],"threshold":0.5}`,
		`Row a=<nil> b=9 q="A" {"allOf":[{"contains":"d"},{"equals":"a, b"},{"containsAny":["x","y"]}],"threshold":0.7}`,
		`Test 6 a=<nil> b=9 q="l1\nl2" {"contains":"d"} {"equals":"z","not":true}`,
		`Test 7 a=<nil> b=9 q="y" {"contains":"d"}`,
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got      %s\nexpected %s", got[i], want[i])
		}
	}
}

// Each provider with each prompt is an agent, which the type model reads without a problem.
func TestAgents(t *testing.T) {
	set, made := load(t, `
prompts:
  - "Say {{ q }}"
  - {label: chat, raw: '[{"role": "system", "content": "S"}, {"role": "user", "content": "{{q}}"}]'}
  - two.txt
providers:
  - openai:responses:gpt-5-mini
  - {id: "anthropic:messages:claude-haiku-4-5", label: haiku, config: {temperature: 0, max_tokens: 100}}
  - {"ollama:chat:qwen3:8b": {config: {seed: 7}}}
tests: [{vars: {q: x}}]`, promptfoo.Options{}, "two.txt", "One {{q}}\n---\nTwo {{q}}\n")
	if made.Missing != nil || len(set.Agents) != 12 || made.Agents != 12 {
		t.Fatalf("%v %s", made.Missing, made.Set)
	}
	same(t, "text", set.Agents[0], `{"name": "openai-responses/gpt-5-mini prompt 1", "type": "model", "model": "openai-responses/gpt-5-mini", "prompt": "Say {{ q }}"}`)
	same(t, "messages", set.Agents[5], `{"name": "haiku chat", "type": "model", "model": "anthropic/claude-haiku-4-5",
		"system": "S", "messages": [{"role": "user", "content": "{{q}}"}], "temperature": 0, "maxTokens": 100}`)
	same(t, "file", set.Agents[11], `{"name": "ollama/qwen3:8b prompt 4", "type": "model", "model": "ollama/qwen3:8b", "prompt": "Two {{q}}", "seed": 7}`)
	for _, a := range set.Agents {
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		node, err := input.ParseJSON("agent.json", raw)
		if err != nil {
			t.Fatal(err)
		}
		var r input.Reader
		agent.ParseEntry(&r, node)
		if len(r.Problems) > 0 {
			t.Errorf("%s: %v", raw, r.Problems)
		}
	}
}

// An agent of one's own takes the place of prompts and providers.
func TestAgentOfOnesOwn(t *testing.T) {
	set, made := load(t, `{prompts: [file://a.js], providers: [exec:x], tests: [{vars: {q: x}, assert: [{type: contains, value: a},
		{type: equals, value: 1, transform: output.n}]}]}`, promptfoo.Options{Agent: json.RawMessage(`"mine"`), Path: "answer"})
	if made.Missing != nil || set.Agent != "mine" || len(set.Agents) != 0 || set.Evaluators[0]["path"] != "answer" {
		t.Fatalf("%v %s", made.Missing, made.Set)
	}
	same(t, "path", set.Evaluations[0].EvaluationCriterias["checks"].Checks[1], `{"equals": 1, "path": "answer.n"}`)
}

// Judges of one kind are one evaluator, and two in one test are two.
func TestJudges(t *testing.T) {
	set, made := load(t, head+`
defaultTest: {options: {provider: "openai:gpt-5"}}
tests:
  - {vars: {q: x}, assert: [{type: llm-rubric, value: "is {{q}}"}, {type: llm-rubric, value: b}]}
  - {vars: {q: y}, assert: [{type: llm-rubric, value: "is {{q}}"}, {type: factuality, value: c, provider: "anthropic:claude-haiku-4-5"}]}`,
		promptfoo.Options{})
	if made.Missing != nil {
		t.Fatal(made.Missing)
	}
	same(t, "evaluators", set.Evaluators, `[
		{"id": "rubric-gpt-5", "type": "llm-judge", "evaluatorConfig": {"template": "rubric", "answer": "boolean", "judges": [{"model": "gpt-5"}]}},
		{"id": "rubric-gpt-5-2", "type": "llm-judge", "evaluatorConfig": {"template": "rubric", "answer": "boolean", "judges": [{"model": "gpt-5"}]}},
		{"id": "factuality-claude-haiku-4-5", "type": "llm-judge", "evaluatorConfig": {"template": "factuality", "answer": "boolean", "judges": [{"model": "claude-haiku-4-5"}]}}]`)
	if got := set.Evaluations[1].EvaluationCriterias["rubric-gpt-5"].Rubric; got != "is y" {
		t.Errorf("got %q", got)
	}
}

// Texts that are alike by embeddings are an evaluator for each model and threshold, which several evaluations share.
func TestSimilar(t *testing.T) {
	set, made := load(t, head+`
defaultTest: {options: {provider: {embedding: {id: "openai:embeddings:e-1"}}}}
tests:
  - vars: {q: x}
    assert: [{type: similar, value: "is {{q}}"}, {type: similar, value: b}, {type: similar, value: [b, c], threshold: 0.9, transform: output.trim()}]
  - {vars: {q: y}, assert: [{type: similar, value: "is {{q}}"}, {type: not-similar, value: c, provider: "openai:embedding:e-2"}]}`,
		promptfoo.Options{})
	if made.Missing != nil || made.Differs != nil || made.Checks != 5 {
		t.Fatal(made.Missing, made.Differs, made.Checks)
	}
	same(t, "evaluators", set.Evaluators, `[
		{"id": "similar-e-1", "type": "similar", "evaluatorConfig": {"model": "e-1", "path": "content", "threshold": 0.75}},
		{"id": "similar-e-1-2", "type": "similar", "evaluatorConfig": {"model": "e-1", "path": "content", "threshold": 0.75}},
		{"id": "similar-e-1-3", "type": "similar", "evaluatorConfig": {"model": "e-1", "path": "content", "threshold": 0.9, "transform": ["trim"]}},
		{"id": "similar-e-2", "type": "similar", "evaluatorConfig": {"model": "e-2", "not": true, "path": "content", "threshold": 0.75}}]`)
	for id, want := range map[string]string{"similar-e-1": `["is x"]`, "similar-e-1-3": `["b", "c"]`} {
		same(t, id, set.Evaluations[0].EvaluationCriterias[id].ExpectedOutput, want)
	}
	same(t, "the second evaluation", set.Evaluations[1].EvaluationCriterias["similar-e-1"].ExpectedOutput, `["is y"]`)
	_, made = load(t, head+`tests: [{vars: {q: x}, options: {provider: "openai:gpt-5"}, assert: [{type: similar, value: a}]}]`, promptfoo.Options{})
	if made.Missing != nil || !strings.Contains(string(made.Set), `"model": "text-embedding-3-large"`) {
		t.Errorf("without a provider: %v %s", made.Missing, made.Set)
	}
}

// A configuration of which nothing can be made is an error that says why.
func TestUnusable(t *testing.T) {
	for config, want := range map[string]string{
		"a: [":                                   "",
		"[]":                                     "expected an object",
		"tests: [{}]":                            "expected prompts and providers",
		head:                                     "there are no tests",
		head + "tests: [7]":                      "expected a test",
		head + "tests: [none.csv]":               "none.csv",
		head + "tests: [{assert: [{value: a}]}]": "type: missing",
		head + "tests: [{vars: {a: file://none.txt}}]":                                                               "none.txt",
		"prompts: [a]\nproviders: [exec:x]\ntests: [{}]":                                                             "no provider with a prompt has a counterpart",
		head + "tests: [{vars: {a: [" + strings.Repeat("x, ", 400) + "], b: [" + strings.Repeat("x, ", 400) + "]}}]": "at most 100000 tests",
	} {
		file := filepath.Join(t.TempDir(), "promptfooconfig.yaml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := promptfoo.Import(file, promptfoo.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, expected %q", config, err, want)
		}
	}
	for text, want := range map[string]string{
		"a,b\n1,2,3\n":    "tests.csv:2:1: expected 2 cells",
		"a,b\n1,2\n3\"\n": "tests.csv:3:2: expected CSV: bare",
		"a\n\"1\n":        "tests.csv:2:4: expected CSV: extraneous or missing",
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"promptfooconfig.yaml": head + "tests: tests.csv", "tests.csv": text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := promptfoo.Import(filepath.Join(dir, "promptfooconfig.yaml"), promptfoo.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, expected %q", text, err, want)
		}
	}
	if _, err := promptfoo.Import("promptfooconfig.ts", promptfoo.Options{}); err == nil {
		t.Error("a program is imported")
	}
}
