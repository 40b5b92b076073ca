package kinds_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/check"
	"github.com/evalrun/evalrun/eval/command"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/python"
	"github.com/evalrun/evalrun/internal/evalworker"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/testenv"
)

var update = flag.Bool("update", false, "write docs/evaluators.md and schemas/evaluator.schema.json anew")

// docExample is an example of docs/evaluators.md: a file in testdata has them by type.
type docExample struct {
	Evaluator             json.RawMessage
	Criteria              json.RawMessage
	ExpectedOutput        json.RawMessage
	ExpectedAgentBehavior string
	Output                json.RawMessage
	// WorkingMs and Usage are what the rollout has used, and ModelCalls are spans that tell of it.
	WorkingMs  int64
	Usage      []eval.Usage
	ModelCalls int
	ToolCalls  []struct {
		Name   string          `json:"name"`
		Args   json.RawMessage `json:"args,omitempty"`
		Output string          `json:"output,omitempty"`
	}
	// Judge is what every judge answers, and Answers are those of the raters.
	Judge   json.RawMessage
	Answers []json.RawMessage
	Score   float64
}

func docExamples(t *testing.T) map[string][]docExample {
	t.Helper()
	data, err := os.ReadFile("testdata/evaluators.json")
	if err != nil {
		t.Fatal(err)
	}
	var examples map[string][]docExample
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&examples); err != nil {
		t.Fatal(err)
	}
	return examples
}

// X3: each type has examples, which score what the page says of them.
func TestEvaluatorExamples(t *testing.T) {
	examples := docExamples(t)
	if got := slices.Sorted(maps.Keys(examples)); !slices.Equal(got, kinds.All.Types()) {
		t.Fatalf("there are examples of %q, expected %q", got, kinds.All.Types())
	}
	for kind, list := range examples {
		for _, example := range list {
			def, problems, err := evalset.ParseEvaluator(kind, example.Evaluator)
			if err != nil || len(problems) > 0 || def.Type != kind {
				t.Errorf("%s: got type %s, %v, %v", kind, def.Type, problems, err)
				continue
			}
			runExample(t, kind, def, example)
		}
	}
}

func runExample(t *testing.T, kind string, def eval.Definition, example docExample) {
	t.Helper()
	if kind == command.Type || kind == python.Type {
		testenv.NeedPython(t)
	}
	e, err := kinds.All.New(def)
	if err != nil {
		t.Fatal(kind, err)
	}
	criteria := example.Criteria
	if criteria == nil {
		criteria = json.RawMessage("null")
	}
	var read input.Reader
	node, err := input.Parse("criteria", criteria)
	if err != nil {
		t.Fatal(err)
	}
	var expected *input.Node
	if example.ExpectedOutput != nil {
		expected = &input.Node{}
	}
	evalset.CheckCriteria(&read, &eval.Set{Evaluators: []eval.Definition{def}}, def.ID, node, expected)
	if len(read.Problems) > 0 {
		t.Errorf("%s: %v", kind, read.Problems)
	}
	dir, err := filepath.Abs("../../fixtures/python-evaluators")
	if err != nil {
		t.Fatal(err)
	}
	workers := evalworker.New(false)
	defer workers.Close()
	s := eval.Subject{Output: example.Output, Dir: dir, Python: workers, Env: os.Environ(), Evaluation: eval.Evaluation{ID: "1", Inputs: json.RawMessage("{}"), ExpectedOutput: example.ExpectedOutput,
		ExpectedAgentBehavior: example.ExpectedAgentBehavior, Criteria: map[string]json.RawMessage{def.ID: criteria}}}
	if example.Judge != nil {
		s.Judge = evaltest.Judge(func(eval.Question) (string, error) { return string(example.Judge), nil })
	}
	var spans []string
	for _, call := range example.ToolCalls {
		attributes := map[string]any{"tool.name": call.Name, "input.value": string(call.Args), "output.value": call.Output}
		data, err := json.Marshal(attributes)
		if err != nil {
			t.Fatal(err)
		}
		spans = append(spans, evaltest.Span(string(data)))
	}
	for range example.ModelCalls {
		spans = append(spans, evaltest.Span(`{"gen_ai.usage.input_tokens": 9}`))
	}
	s.Working, s.Usage = time.Duration(example.WorkingMs)*time.Millisecond, example.Usage
	s.Trace = [][]json.RawMessage{evaltest.Spans(spans)}
	v := e.Evaluate(t.Context(), s)
	if v.Wait != nil {
		deliveries := map[string]eval.Delivery{}
		for i, answer := range example.Answers {
			deliveries[fmt.Sprintf("rater-%d", i+1)] = eval.Delivery{Status: "successful", Payload: answer}
		}
		v = e.Resume(t.Context(), s, deliveries)
	}
	if len(v.Results) == 0 {
		t.Fatalf("%s: no result", kind)
	}
	result := v.Results[len(v.Results)-1]
	if result.Score == nil || *result.Score != example.Score || result.Error != "" {
		t.Errorf("%s: %s scores %v (%s%s), expected %v", kind, example.Evaluator, evaltest.Deref(result.Score), result.Error, result.NotRun, example.Score)
	}
}

// X3: each key and each criterion of a table is in an example that TestEvaluatorExamples runs, and each
// key that may be left out is left out in one, so that its default is tried.
func TestEveryKeyHasAnExample(t *testing.T) {
	examples := docExamples(t)
	for kind, about := range kinds.All {
		var configs, criteria []*input.Node
		for _, example := range examples[kind] {
			node, err := input.Parse("example", example.Evaluator)
			if err != nil {
				t.Fatal(err)
			}
			if config := member(node, "evaluatorConfig"); config != nil {
				node = config
			}
			configs = append(configs, node)
			node = &input.Node{}
			if example.Criteria != nil {
				if node, err = input.Parse("example", example.Criteria); err != nil {
					t.Fatal(err)
				}
			}
			criteria = append(criteria, node)
		}
		lackExamples(t, kind, about.Keys, configs)
		lackExamples(t, kind+": criteria", about.Criteria, criteria)
	}
}

// lackExamples reports the keys that none of some objects has, and those that all of them have although
// they may be left out.
func lackExamples(t *testing.T, where string, keys []evaluator.Key, objects []*input.Node) {
	t.Helper()
	for _, k := range keys {
		var values []*input.Node
		for _, o := range objects {
			if value := member(o, k.Name); value != nil {
				values = append(values, value)
			}
		}
		if len(values) == 0 {
			t.Errorf("%s: no example has %s", where, k.Name)
		} else if len(values) == len(objects) && !k.Required && k.Otherwise != nil {
			t.Errorf("%s: no example leaves %s out", where, k.Name)
		}
		if k.Items != nil {
			var items []*input.Node
			for _, value := range values {
				items = append(items, value.Items...)
			}
			lackExamples(t, where+": "+k.Name, k.Items, items)
		}
	}
}

// member is the value of a key, however it is spelt.
func member(n *input.Node, name string) *input.Node {
	return cmp.Or(n.Member(name), n.Member(input.Snake(name)))
}

// X3: every key of a table is one that the type reads: with all of them there is no unknown key.
func TestEvaluatorsReadTheirKeys(t *testing.T) {
	for kind, about := range kinds.All {
		for _, k := range about.Keys {
			node := &input.Node{Kind: input.Object, Members: []input.Member{{Key: k.Name, Value: &input.Node{Kind: input.Null}}}}
			var r input.Reader
			kinds.All.Read(&r, eval.Definition{ID: "e", Type: kind}, node)
			for _, p := range r.Problems {
				if strings.HasPrefix(p.Message, "unknown key") {
					t.Errorf("%s does not read %s, which its table has", kind, k.Name)
				}
			}
			if k.About == "" || k.Otherwise != nil && k.Required {
				t.Errorf("%s: the table says too little, or too much, of %s", kind, k.Name)
			}
		}
	}
}

// X3: the page and the schema are what the tables say. With -update they are written anew.
func TestEvaluatorDocs(t *testing.T) {
	for file, want := range map[string]string{"../../docs/evaluators.md": evaluatorPage(t), "../../schemas/evaluator.schema.json": evaluatorSchema(t)} {
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("%s is not what the tables of the evaluators say; go test ./eval/kinds -run TestEvaluatorDocs -update writes it", file)
		}
	}
}

const pageHead = `# Evaluators

<!-- Made from the tables of eval/kinds: go test ./eval/kinds -run TestEvaluatorDocs -update -->

An evaluator scores one rollout, from 0 to 1 (legacy ones from 0 to 100, which is divided by 100).
This page has every type with all of its keys. It is made from the tables that the program itself
reads configurations by, and every example on it is run by a test.

An evaluator is an object in the eval set's ` + "`evaluators`" + `, or a file in the folder ` + "`../evaluators/`" + `
that the set names in ` + "`evaluatorRefs`" + `. Its keys:

| key | type | default | meaning |
|---|---|---|---|
| ` + "`id`" + ` | string | required | its name in criteria, results and thresholds |
| ` + "`name`" + ` | string | the id | what people are shown |
| ` + "`evaluatorTypeId`, or `type`" + ` | string | required | one of the types below |
| ` + "`version`" + ` | string | | ` + "`\"1.0\"`" + `, if it is there |
| ` + "`evaluatorConfig`" + ` | object | ` + "`{}`" + ` | the configuration, of which the types below have the keys |
| ` + "`weight`" + ` | number from 0 | 1 | how much it counts in the score of a rollout |

The keys of ` + "`checks`, `command`, `human`, `python`" + ` and legacy evaluators stand beside ` + "`id`" + `, without
` + "`evaluatorConfig`" + `. Every configuration may also have ` + "`defaultEvaluationCriteria`" + `, for evaluations
without criteria, and ` + "`name`, `description`" + `. All keys may be written in snake_case, too.

The *criteria* are what an evaluation says for an evaluator, under its id:
` + "`{\"evaluationCriterias\": {\"names-the-case\": {\"searchText\": \"case 1729\"}}}`" + `. With ` + "`null`" + ` the
evaluator runs with the evaluation's ` + "`expectedOutput`" + ` or its own default. An evaluator whose id is
not there does not run for the evaluation. ` + "`defaultCriterias`" + ` of the set has criteria for all
evaluations without their own.

A *path* is ` + "`key`, `key.inner`, `list[0]` or `list[0].key`" + `.
`

func evaluatorPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(pageHead)
	examples := docExamples(t)
	types := kinds.All.Types()
	slices.SortStableFunc(types, func(a, b string) int { return pageOrder(a) - pageOrder(b) })
	for _, kind := range types {
		about := kinds.All[kind]
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", kind, wrap(about.About))
		fmt.Fprintf(&b, "\n| configuration | type | default | meaning |\n|---|---|---|---|\n")
		writeKeys(&b, "", about.Keys)
		if len(about.Criteria) > 0 {
			fmt.Fprintf(&b, "\n| criteria | type | default | meaning |\n|---|---|---|---|\n")
			writeKeys(&b, "", about.Criteria)
		} else {
			b.WriteString("\nCriteria may have any keys, or none.\n")
		}
		for _, example := range examples[kind] {
			fmt.Fprintf(&b, "\n```json\n%s\n```\n\n%s\n", oneLine(t, example.Evaluator), wrap(sentence(t, example)))
		}
	}
	return b.String()
}

// pageOrder is the order of the page: what needs no model, what does, and what is of earlier formats.
func pageOrder(kind string) int {
	switch {
	case strings.HasPrefix(kind, "legacy-"):
		return 3
	case strings.Contains(kind, "judge") || kind == judged.TypePairwise || kind == check.TypeSimilar:
		return 2
	case strings.HasPrefix(kind, "uipath-"):
		return 0
	}
	return 1
}

func writeKeys(b *strings.Builder, in string, keys []evaluator.Key) {
	for _, k := range keys {
		otherwise := ""
		switch value := k.Otherwise.(type) {
		case nil:
			if k.Required {
				otherwise = "required"
			}
		case string:
			if otherwise = "evalrun's own"; len(value) < 40 {
				otherwise = "`" + strings.ReplaceAll(value, "\n", `\n`) + "`"
			}
		default:
			data, _ := json.Marshal(value)
			otherwise = "`" + string(data) + "`"
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", in, k.Name, typeName(k), otherwise, k.About)
		writeKeys(b, in+k.Name+"[].", k.Items)
	}
}

func typeName(k evaluator.Key) string {
	switch {
	case k.Values != nil:
		return "`" + strings.Join(k.Values, "`, `") + "`"
	case k.Kind == input.Null:
		return "any"
	case k.Kind == input.Number:
		name := "number"
		if k.Whole {
			name = "whole number"
		}
		switch {
		case k.Least < 1e-9 && k.Least > 0:
			return fmt.Sprintf("%s above 0, to %v", name, k.Most)
		case k.Most > 1e6 && k.Least < 0:
			return name
		case k.Most > 1e6:
			return fmt.Sprintf("%s from %v", name, k.Least)
		}
		return fmt.Sprintf("%s from %v to %v", name, k.Least, k.Most)
	}
	return strings.TrimPrefix(strings.TrimPrefix(k.Kind.String(), "an "), "a ")
}

// sentence says what an example scores, and of what.
func sentence(t *testing.T, example docExample) string {
	t.Helper()
	var parts []string
	add := func(what string, value json.RawMessage) {
		if value != nil {
			parts = append(parts, what+" `"+oneLine(t, value)+"`")
		}
	}
	add("the criteria", example.Criteria)
	add("the expected output", example.ExpectedOutput)
	if example.ExpectedAgentBehavior != "" {
		parts = append(parts, "the expected behaviour \""+example.ExpectedAgentBehavior+"\"")
	}
	if example.ToolCalls != nil {
		data, err := json.Marshal(example.ToolCalls)
		if err != nil {
			t.Fatal(err)
		}
		add("the tool calls", data)
	} else {
		add("the output", example.Output)
	}
	if example.WorkingMs > 0 {
		parts = append(parts, fmt.Sprintf("%d ms of working time", example.WorkingMs))
	}
	for _, u := range example.Usage {
		parts = append(parts, fmt.Sprintf("%d tokens for %g dollars", u.Tokens(), *u.Cost))
	}
	if example.ModelCalls > 0 {
		parts = append(parts, fmt.Sprintf("%d calls of models", example.ModelCalls))
	}
	add("a judge that answers", example.Judge)
	for _, answer := range example.Answers {
		add("a rater's answer", answer)
	}
	text := parts[len(parts)-1]
	if len(parts) > 1 {
		text = strings.Join(parts[:len(parts)-1], ", ") + " and " + text
	}
	return fmt.Sprintf("With %s the score is %.3g.", text, example.Score)
}

func oneLine(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	node, err := input.Parse("example", raw)
	if err != nil {
		t.Fatal(err)
	}
	return spaced(node)
}

// spaced is a value on one line, with a space after each colon and comma.
func spaced(n *input.Node) string {
	switch n.Kind {
	case input.Object:
		parts := make([]string, len(n.Members))
		for i, m := range n.Members {
			parts[i] = fmt.Sprintf("%q: %s", m.Key, spaced(m.Value))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case input.Array:
		parts := make([]string, len(n.Items))
		for i, item := range n.Items {
			parts[i] = spaced(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return string(n.JSON())
}

// wrap breaks prose at 100 columns, never within code.
func wrap(text string) string {
	var lines []string
	line, code := "", false
	for word := range strings.SplitSeq(text, " ") {
		switch {
		case line == "":
			line = word
		case !code && len(line)+1+len(word) > 100:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
		if strings.Count(word, "`")%2 == 1 {
			code = !code
		}
	}
	return strings.Join(append(lines, line), "\n")
}

type schema = map[string]any

func evaluatorSchema(t *testing.T) string {
	t.Helper()
	var current, conditions []any
	for _, kind := range kinds.All.Types() {
		if !strings.HasPrefix(kind, "uipath-") {
			continue
		}
		current = append(current, kind)
		conditions = append(conditions, schema{
			"if":   schema{"properties": schema{"evaluatorTypeId": schema{"const": kind}}, "required": []string{"evaluatorTypeId"}},
			"then": schema{"properties": schema{"evaluatorConfig": configSchema(kinds.All[kind], true)}},
		})
	}
	typeID := schema{"anyOf": []any{schema{"enum": current}, schema{"type": "string", "pattern": "^(file://|uipath-)",
		"description": "a custom evaluator of UiPath's, which the project's package uipath runs"}}}
	var named []any
	for _, name := range []string{"evaluatorTypeId", "evaluator_type_id", "evaluatorSchema", "evaluator_schema"} {
		named = append(named, schema{"required": []string{name}})
	}
	uipath := evaluatorObject(schema{"version": schema{"const": "1.0"}, "evaluatorTypeId": typeID, "evaluator_type_id": typeID,
		"evaluatorSchema":  schema{"type": []string{"string", "null"}, "description": "file://FILE.py:CLASS is a custom evaluator of UiPath's, whatever the type; the project's package uipath runs it"},
		"evaluatorConfig":  schema{"type": []string{"object", "null"}},
		"evaluator_config": schema{"type": []string{"object", "null"}}})
	uipath["anyOf"], uipath["allOf"] = named, conditions
	defs := schema{"current": uipath}
	refs := []any{schema{"$ref": "#/$defs/current"}}
	add := func(name string, def schema) {
		defs[name] = def
		refs = append(refs, schema{"$ref": "#/$defs/" + name})
	}
	for _, kind := range []string{command.Type, judged.TypeHuman, eval.TypeChecks, check.TypeSimilar, python.Type} {
		keys := properties(kinds.All[kind].Keys)
		keys["type"], keys["evaluatorConfig"] = schema{"const": kind}, schema{"type": []string{"object", "null"}}
		keys["defaultEvaluationCriteria"] = schema{"type": []string{"object", "null"}}
		add(kind, evaluatorObject(keys, "type"))
	}
	for _, kind := range []string{judged.TypeLLMJudge, judged.TypePairwise} {
		required := []string{"type"}
		if kind == judged.TypeLLMJudge {
			required = append(required, "evaluatorConfig")
		}
		config := configSchema(kinds.All[kind], kind == judged.TypePairwise)
		add(kind, evaluatorObject(schema{"version": schema{"const": "1.0"}, "type": schema{"const": kind}, "evaluatorConfig": config}, required...))
	}
	legacy := schema{}
	for _, kind := range kinds.All.Types() {
		if strings.HasPrefix(kind, "legacy-") {
			maps.Copy(legacy, properties(kinds.All[kind].Keys))
		}
	}
	legacy["prompt"] = schema{"type": []string{"string", "null"}} // deterministic ones may have an empty one
	legacy["targetSubOutputKey"] = legacy["prompt"]
	legacy["category"], legacy["type"] = schema{"enum": []int{0, 1, 2, 3}}, schema{"type": "integer", "minimum": 0, "maximum": 10}
	add("legacy", evaluatorObject(legacy, "category", "type"))
	data, err := json.MarshalIndent(schema{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "https://raw.githubusercontent.com/evalrun/evalrun/main/schemas/evaluator.schema.json",
		"title":       "Evaluator",
		"description": "An evaluator, of UiPath's current or legacy format or with the type checks, command, human, python, similar, llm-judge or pairwise. docs/evaluators.md has every key with an example.",
		"type":        "object",
		"anyOf":       refs,
		"$defs":       defs,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data) + "\n"
}

// evaluatorObject is the schema of an evaluator with these keys beside those of all.
func evaluatorObject(keys schema, required ...string) schema {
	keys["id"] = schema{"type": "string", "minLength": 1}
	keys["name"] = schema{"type": []string{"string", "null"}}
	keys["weight"] = schema{"type": []string{"number", "null"}, "minimum": 0}
	return schema{"type": "object", "properties": keys, "required": append([]string{"id"}, required...), "additionalProperties": true}
}

// configSchema is that of a configuration.
func configSchema(about evaluator.Kind, optional bool) schema {
	keys := properties(about.Keys)
	keys["name"] = schema{"type": []string{"string", "null"}}
	keys["defaultEvaluationCriteria"] = schema{"type": []string{"object", "null"}, "properties": properties(about.Criteria)}
	s := schema{"type": "object", "description": about.About, "properties": keys, "additionalProperties": true}
	if optional {
		s["type"] = []string{"object", "null"}
	}
	var all []any
	for _, k := range about.Keys {
		if k.Required {
			all = append(all, schema{"anyOf": []any{schema{"required": []string{k.Name}}, schema{"required": []string{input.Snake(k.Name)}}, schema{"type": "null"}}})
		}
	}
	if all != nil {
		s["allOf"] = all
	}
	return s
}

func properties(keys []evaluator.Key) schema {
	out := schema{}
	for _, k := range keys {
		s := schema{"description": k.About}
		if k.Kind != input.Null {
			name := typeName(evaluator.Key{Kind: k.Kind, Most: 1})
			if name, _, _ = strings.Cut(name, " "); k.Whole {
				name = "integer"
			}
			s["type"] = []string{name, "null"}
			if k.Required {
				s["type"] = name
			}
		}
		if k.Kind == input.String && k.Required {
			s["minLength"] = 1
		}
		if k.Kind == input.Bool {
			delete(s, "type") // UiPath takes the words and numbers that mean one
			s["anyOf"] = []any{schema{"type": []string{"boolean", "null"}}, schema{"type": []string{"string", "number"}, "deprecated": true}}
		}
		if k.Values != nil {
			values := []any{}
			for _, v := range k.Values {
				values = append(values, v)
			}
			if delete(s, "type"); !k.Required {
				values = append(values, nil)
			}
			s["enum"] = values
			delete(s, "minLength")
		}
		if k.Kind == input.Number {
			s["minimum"], s["maximum"] = k.Least, k.Most
		}
		if k.Items != nil {
			s["items"] = schema{"type": "object", "properties": properties(k.Items)}
		}
		if _, long := k.Otherwise.(string); k.Otherwise != nil && (!long || len(k.Otherwise.(string)) < 40) {
			s["default"] = k.Otherwise
		}
		out[k.Name] = s
	}
	return out
}
