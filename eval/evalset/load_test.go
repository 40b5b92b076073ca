package evalset_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
)

// The class decides, with or without a type.
func TestCustomEvaluators(t *testing.T) {
	for _, file := range []string{
		`{"version":"1.0","id":"c","evaluatorSchema":"file://op.py:Op","evaluatorConfig":{"name":"c","anything":1}}`,
		`{"version":"1.0","id":"c","evaluatorTypeId":"file://types/op.json","evaluatorSchema":"file://op.py:Op"}`,
		`{"version":"1.0","id":"c","evaluatorTypeId":"uipath-exact-match","evaluatorSchema":"file://op.py:Op"}`,
	} {
		set, problems, err := evalset.Parse("s.json", []byte(`{"version":"1.0","id":"s","name":"S","evaluatorRefs":["c"],"evaluations":[]}`), folder("c.json", file))
		if err != nil || len(problems) > 0 {
			t.Errorf("%s: %v, %v", file, err, problems)
			continue
		}
		e, err := kinds.All.New(set.Evaluators[0])
		if err != nil {
			t.Fatal(err)
		}
		results := e.Evaluate(t.Context(), eval.Subject{Evaluation: eval.Evaluation{Criteria: map[string]json.RawMessage{"c": json.RawMessage(`{"x":1}`)}}}).Results
		if len(results) != 1 || results[0].Score != nil || !strings.Contains(results[0].NotRun, "needs a worker") {
			t.Errorf("%s: %+v", file, results)
		}
	}
}

// What means a boolean to UiPath.
func TestBooleansInOtherForms(t *testing.T) {
	for value, want := range map[string]float64{`true`: 1, `"Yes"`: 1, `1`: 1, `"on"`: 1, `false`: 0, `"false"`: 0, `0`: 0, `null`: 0} {
		def, problems, err := evalset.ParseEvaluator("e.json", []byte(`{"version":"1.0","id":"e","evaluatorTypeId":"uipath-exact-match","evaluatorConfig":{"negated":`+value+`}}`))
		if err != nil || len(problems) != map[bool]int{true: 0, false: 1}[value == "true" || value == "false" || value == "null"] {
			t.Errorf("%s: %v, %v", value, err, problems)
			continue
		}
		evaltest.WantScore(t, evaltest.Only(t, evaltest.Evaluate(t, def, `{"expectedOutput":{"a":1}}`, `{}`)), want)
	}
}

const ownSet = `
version: "1.0"
id: own
name: Own keys
agent: {type: function, command: [python3, agent.py]}
tasks: [tasks/*]
epochs: {count: 3, reduce: atLeastOne}
limits: {timeout: 1h, segmentTimeout: 10m, suspendTimeout: 48h, scoreTimeout: 24h, evaluatorTimeout: 30s, softWait: 15s, suspensions: 5, outputBytes: 1000, tokens: 2000, cost: 1.5}
prices: {m: {input: 1, output: 2}}
retry: {max: 2, on: [agent, "*"], backoff: 2s, maxBackoff: 10s}
jobs: {train: {type: exec}}
thresholds: {score: 0.8, scoreWithFaulted: 0.7, passRate: 0.5, evaluators: {check: 0.9}, pass: 0.75}
evaluators:
  - {id: check, type: command, command: [./check.sh, -v], weight: 2}
  - {id: c2, evaluatorTypeId: command, command: [./c2], name: Second}
  - {id: has, version: "1.0", evaluatorTypeId: uipath-contains, evaluatorConfig: {case_sensitive: true, name: Has}}
evaluations:
  - id: 3F2504E0-4F89-11D3-9A0C-0305E82C3301
    name: one
    inputs: {n: 1, text: "1.0"}
    expected_output: done
    evaluation_criterias: {check: null, has: {searchText: x}}
    mocking_strategy: null
`

func TestLoadOwnKeys(t *testing.T) {
	set, problems, err := evalset.Parse("sets/own.yaml", []byte(ownSet), nil)
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", err, problems)
	}
	if len(set.Agents) != 1 || set.Agents[0].Member("type").Text != "function" || set.Jobs.Member("train") == nil || set.Tasks[0] != "tasks/*" {
		t.Errorf("agents %v, jobs %v, tasks %v", set.Agents, set.Jobs, set.Tasks)
	}
	if set.Epochs != 3 || set.Reduce != eval.ReduceAtLeastOne {
		t.Errorf("epochs %d, %s", set.Epochs, set.Reduce)
	}
	if want := (eval.Limits{Timeout: time.Hour, SegmentTimeout: 10 * time.Minute, SuspendTimeout: 48 * time.Hour, ScoreTimeout: 24 * time.Hour, EvaluatorTimeout: 30 * time.Second, SoftWait: 15 * time.Second, Suspensions: 5, OutputBytes: 1000, Tokens: 2000, Cost: 1.5}); set.Limits != want {
		t.Errorf("limits %+v", set.Limits)
	}
	if r := set.Retry; r.Max != 2 || !slices.Equal(r.On, []string{"agent", "*"}) || r.Backoff != 2*time.Second || r.MaxBackoff != 10*time.Second {
		t.Errorf("retry %+v", r)
	}
	if th := set.Thresholds; th.Score.Min != 0.8 || th.ScoreWithFaulted.Min != 0.7 || th.PassRate.Min != 0.5 || th.Evaluators["check"].Min != 0.9 || th.Pass != 0.75 {
		t.Errorf("thresholds %+v", th)
	}
	check, has := set.Evaluators[0], set.Evaluators[2]
	if check.Type != "command" || string(check.Config) != `{"command":["./check.sh","-v"]}` || check.Weight != 2 || check.Name != "check" || check.Dir != "" {
		t.Errorf("command %+v", check)
	}
	if set.Evaluators[1].Name != "Second" || has.Name != "Has" || has.Weight != 1 {
		t.Errorf("evaluators %+v", set.Evaluators)
	}
	e := set.Evaluations[0]
	if e.ID != "3f2504e0-4f89-11d3-9a0c-0305e82c3301" || string(e.Inputs) != `{"n":1,"text":"1.0"}` || string(e.ExpectedOutput) != `"done"` || e.NotRunnable != "" {
		t.Errorf("evaluation %+v", e)
	}
	roundTrips(t, set)
}

// A threshold by interval keeps its form in plans and documents, and a plain one stays a number.
func TestThresholdsAreNumbersOrObjects(t *testing.T) {
	set, problems, err := evalset.Parse("s.json", []byte(`{"version":"1.0","id":"s","name":"S","agent":"a","evaluations":[],
		"thresholds":{"score":0.5,"passRate":{"min":0.9,"by":"interval","agents":"together"},"scoreWithFaulted":{"min":0.1,"by":"point"}}}`), nil)
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", err, problems)
	}
	roundTrips(t, set)
	text, err := json.Marshal(set.Thresholds)
	if want := `{"score":0.5,"scoreWithFaulted":0.1,"passRate":{"min":0.9,"by":"interval","agents":"together"},"pass":1}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v", text, err)
	}
}

func TestLoadDefaults(t *testing.T) {
	set, problems, err := evalset.Parse("s.json", []byte(`{"version":"1.0","id":"s","name":"S","agents":["a",{"type":"nop"}],"epochs":2,"evaluations":[]}`), nil)
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v, %v", err, problems)
	}
	if len(set.Agents) != 2 || set.Epochs != 2 || set.Reduce != eval.ReduceMean || set.Thresholds.Pass != 1 {
		t.Errorf("%+v", set)
	}
	if want := (eval.Limits{EvaluatorTimeout: 5 * time.Minute, Suspensions: 100, OutputBytes: 16 << 20}); set.Limits != want {
		t.Errorf("limits %+v", set.Limits)
	}
	if r := set.Retry; r.Max != 0 || r.On != nil || r.Backoff != time.Second || r.MaxBackoff != time.Minute {
		t.Errorf("retry %+v", r)
	}
}

// folder is an evaluators folder with an exact match evaluator "exact" and a contains evaluator
// "has".
func folder(more ...string) fs.FS {
	files := fstest.MapFS{
		"b.json":         {Data: []byte(`{"version":"1.0","id":"exact","evaluatorTypeId":"uipath-exact-match","evaluatorConfig":{"name":"Exact"}}`)},
		"a.json":         {Data: []byte(`{"version":"1.0","id":"has","evaluatorTypeId":"uipath-contains","evaluatorConfig":{}}`)},
		"custom/x.json":  {Data: []byte(`not read`)},
		"custom.py":      {Data: []byte(`not read`)},
		"types/any.json": {Data: []byte(`{}`)},
	}
	for i := 0; i+1 < len(more); i += 2 {
		files[more[i]] = &fstest.MapFile{Data: []byte(more[i+1])}
	}
	return files
}

func TestEvaluatorConfigsReplaceRefs(t *testing.T) {
	set, _, err := evalset.Parse("s.json", []byte(`{"version":"1.0","id":"s","name":"S","evaluations":[],
		"evaluatorRefs":["nowhere"],"evaluatorConfigs":["has",{"ref":"exact","weight":2.5}]}`), folder())
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Evaluators) != 2 || set.Evaluators[0].ID != "has" || set.Evaluators[0].Weight != 1 || set.Evaluators[1].Weight != 2.5 || set.Evaluators[1].Dir != "../evaluators" {
		t.Errorf("evaluators %+v", set.Evaluators)
	}
}

func TestLegacyDropsEvaluatorConfigs(t *testing.T) {
	set, _, err := evalset.Parse("s.json", []byte(`{"fileName":"s.json","id":"s","name":"S","evaluations":[],"evaluatorRefs":["has"],"evaluatorConfigs":[{"ref":"exact"}]}`), folder())
	if err != nil || len(set.Evaluators) != 1 || set.Evaluators[0].ID != "has" {
		t.Errorf("%v, %+v", err, set)
	}
}

// Every message says file, line, column, key, and what was expected.
func TestProblems(t *testing.T) {
	const head = `{"version":"1.0","id":"s","name":"S",`
	evaluation := func(body string) string {
		return head + `"evaluatorRefs":["exact"],"evaluations":[` + "\n" + body + `]}`
	}
	for _, v := range []struct {
		name, set string
		files     fs.FS
		want      []string
	}{
		{"version as a number", `{"version":1.0,"id":"s","name":"S","evaluations":[]}`, nil, []string{`s.json:1:12: version: expected the string "1.0", got a number 1.0`}},
		{"another version", `{"version":"2.0","id":"s","name":"S","evaluations":[]}`, nil, []string{`s.json:1:12: version: expected the string "1.0", got a string 2.0`}},
		{"version of another kind", `{"version":true,"id":"s","name":"S","evaluations":[]}`, nil, []string{`s.json:1:12: version: expected the string "1.0", got a boolean true`}},
		{"version missing", `{"id":"s","name":"S","evaluations":[{"id":"1","name":"one","inputs":{},"evaluationCriterias":{}}]}`, nil,
			[]string{`s.json:1:1: warning: version is missing; the set is read as version "1.0" because it has evaluationCriterias (UiPath would read it as its legacy format)`}},
		{"no object", `[]`, nil, []string{`s.json:1:1: expected an object, got an array`}},
		{"nothing", ``, nil, []string{`s.json:1:1: the file is empty; expected a JSON document`}},
		{"required keys", `{"version":"1.0"}`, nil, []string{`s.json:1:1: id: missing; expected a string`, `s.json:1:1: name: missing; expected a string`, `s.json:1:1: evaluations: missing; expected an array`}},
		{"unknown key", head + "\n" + ` "evaluaters":[],"evaluations":[]}`, nil, []string{`s.json:2:2: warning: evaluaters: unknown key; did you mean "evaluators"?`}},
		{"reference to nothing", head + "\n" + `"evaluatorRefs":["exakt"],"evaluations":[]}`, folder(),
			[]string{`s.json:2:18: evaluatorRefs[0]: no evaluator has the id "exakt"; in ../evaluators and under ` + "`evaluators`" + ` there are: has, exact; did you mean "exact"?`}},
		{"reference without a folder", head + `"evaluatorRefs":["x"],"evaluations":[]}`, nil,
			[]string{`s.json:1:55: evaluatorRefs[0]: no evaluator has the id "x"; in ../evaluators and under ` + "`evaluators`" + ` there are: none`}},
		{"reference of another kind", head + `"evaluatorRefs":[{"ref":"exact"}],"evaluations":[]}`, folder(), []string{`s.json:1:55: evaluatorRefs[0]: expected an evaluator's id, got an object`}},
		{"negative weight", head + `"evaluatorConfigs":[{"ref":"exact","weight":-1}],"evaluations":[]}`, folder(),
			[]string{`s.json:1:82: evaluatorConfigs[0].weight: expected a number from 0 to 1e+06, got -1`}},
		{"broken file that is not used", head + `"evaluatorRefs":["has"],"evaluations":[]}`, folder("z.json", "{\n oops"),
			[]string{`../evaluators/z.json:2:2: warning: not valid JSON: invalid character 'o'`}},
		{"broken file that is used", head + `"evaluatorRefs":["z"],"evaluations":[]}`, folder("z.json", `{"version":"1.0","id":"z","evaluatorTypeId":"uipath-contain","evaluatorConfig":{}}`),
			[]string{`../evaluators/z.json:1:45: evaluatorTypeId: unknown evaluator type "uipath-contain"; expected one of checks, command, `}},
		{"wrong configuration", head + `"evaluatorRefs":["z"],"evaluations":[]}`,
			folder("z.json", `{"version":"1.0","id":"z","evaluatorTypeId":"uipath-exact-match","evaluatorConfig":{"negated":"ja!","ignoreCase":true,"targetOutputKey":""}}`),
			[]string{`../evaluators/z.json:1:137: evaluatorConfig.targetOutputKey: expected a path such as "result.items[0]", got ""`,
				`../evaluators/z.json:1:95: evaluatorConfig.negated: expected a boolean, got a string`, `../evaluators/z.json:1:101: warning: evaluatorConfig.ignoreCase: unknown key`}},
		{"two evaluators with one id", head + `"evaluatorRefs":["has"],"evaluators":[{"id":"has","type":"command","command":["x"]}],"evaluations":[]}`, folder(),
			[]string{`s.json:1:76: evaluators[0]: two evaluators have the id "has": in ../evaluators/a.json and in evaluators`}},
		{"inline evaluator without a type", head + `"evaluators":[{"id":"x"}],"evaluations":[]}`, nil,
			[]string{`s.json:1:52: evaluators[0]: expected evaluatorTypeId (with version "1.0"), or category and type of a legacy evaluator file`}},
		{"command without a program", head + `"evaluators":[{"id":"x","type":"command","command":[]}],"evaluations":[]}`, nil,
			[]string{`s.json:1:89: evaluators[0].command: expected a program and its arguments`}},
		{"legacy type that UiPath does not have", head + `"evaluators":[{"id":"x","category":0,"type":3}],"evaluations":[]}`, nil,
			[]string{`s.json:1:82: evaluators[0].type: expected 1 (equals), 6 (JSON similarity) or 10 (CSV columns) in category 0, got 3`}},
		{"duplicate evaluations", evaluation(`{"id":"1","name":"a","inputs":{},"evaluationCriterias":{"exact":{"expectedOutput":1}}},` + "\n" + `{"id":"1","name":"b","inputs":{},"evaluationCriterias":{"exact":{"expectedOutput":1}}}`), folder(),
			[]string{`s.json:3:7: evaluations[1].id: duplicate id "1", first in line 2`}},
		{"evaluation without anything", evaluation(`{}`), folder(), []string{
			`s.json:2:1: evaluations[0].id: missing; expected a string`, `s.json:2:1: evaluations[0].name: missing; expected a string`,
			`s.json:2:1: evaluations[0].inputs: missing; expected an object`, `s.json:2:1: evaluations[0].evaluationCriterias: missing; expected an object`}},
		{"evaluation of another kind", evaluation(`7`), folder(), []string{`s.json:2:1: evaluations[0]: expected an object, got a number`}},
		{"criteria for an unknown evaluator", evaluation(`{"id":"1","name":"a","inputs":{},"evaluationCriterias":{"exat":null}}`), folder(),
			[]string{`s.json:2:64: warning: evaluations[0].evaluationCriterias.exat: criteria for an evaluator that the set does not use; did you mean "exact"?`}},
		{"expected output of another kind", evaluation(`{"id":"1","name":"a","inputs":{},"expectedOutput":1,"evaluationCriterias":{"exact":null}}`), folder(),
			[]string{`s.json:2:51: evaluations[0].expectedOutput: expected an object or a string, got a number`}},
		{"epochs", head + `"epochs":0,"evaluations":[]}`, nil, []string{`s.json:1:47: epochs: expected a whole number from 1 to 10000, got 0`}},
		{"reduce", head + `"epochs":{"count":2,"reduce":"atleastone"},"evaluations":[]}`, nil,
			[]string{`s.json:1:67: epochs.reduce: expected one of mean, atLeastOne, all, got "atleastone"; did you mean "atLeastOne"?`}},
		{"limits", head + `"limits":{"timeout":"5 minutes","timout":1},"evaluations":[]}`, nil,
			[]string{`s.json:1:58: limits.timeout: expected a duration such as "30s" or "10m", got "5 minutes"`, `s.json:1:70: warning: limits.timout: unknown key; did you mean "timeout"?`}},
		{"retry", head + `"retry":{"max":1,"backoff":"2m"},"evaluations":[]}`, nil,
			[]string{`s.json:1:46: retry: maxBackoff (1m0s) is less than backoff (2m0s)`, `s.json:1:46: warning: retry: retry.on is empty, so that nothing is repeated; expected fault categories, or "*" for every one`}},
		{"agents", head + `"agent":"a","agents":[7],"evaluations":[]}`, nil,
			[]string{`s.json:1:46: agent: expected either agent or agents, got both`, `s.json:1:60: agents[0]: expected an agent's name or an object, got a number`}},
		{"tasks", head + `"tasks":["a["]}`, nil, []string{`s.json:1:47: tasks[0]: expected a glob of task directories such as "tasks/*", got "a["`}},
		{"thresholds", head + `"thresholds":{"score":80,"evaluators":{"exat":1}},"evaluatorRefs":["exact"],"evaluations":[]}`, folder(),
			[]string{`s.json:1:60: thresholds.score: expected a number from 0 to 1, got 80`, `s.json:1:84: thresholds.evaluators.exat: the set has no evaluator "exat"; it has exact; did you mean "exact"?`}},
		{"legacy evaluation without expected output", `{"id":"s","name":"S","evaluatorRefs":["exact"],"evaluations":[{"id":"1","name":"a","inputs":{}}]}`, folder(),
			[]string{`s.json:1:63: evaluations[0].expectedOutput: missing; expected an object`}},
	} {
		t.Run(v.name, func(t *testing.T) {
			set, problems, err := evalset.Parse("s.json", []byte(v.set), v.files)
			var got []string
			for _, p := range problems {
				got = append(got, p.Error())
			}
			if len(got) != len(v.want) {
				t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(v.want, "\n"))
			}
			for i := range got {
				if !strings.HasPrefix(got[i], v.want[i]) {
					t.Errorf("\n got %s\nwant %s", got[i], v.want[i])
				}
			}
			if wrong := problems.Err(false) != nil; wrong != (err != nil) || wrong != (set == nil) {
				t.Errorf("error %v and set %v do not fit the problems", err, set != nil)
			}
		})
	}
}

func TestLoadNothing(t *testing.T) {
	if _, _, err := evalset.Load(filepath.Join(t.TempDir(), "none.json")); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}

func TestLoadByBareName(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, data := range map[string]string{
		"evaluations/eval-sets/s.json":  `{"version":"1.0","id":"s","name":"S","evaluatorRefs":["has"],"evaluations":[]}`,
		"evaluations/evaluators/h.json": `{"version":"1.0","id":"has","evaluatorTypeId":"uipath-contains"}`,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, _, err := evalset.Load("s.json")
	if err != nil || set.Path != filepath.Join("evaluations", "eval-sets", "s.json") || len(set.Evaluators) != 1 {
		t.Errorf("%+v, %v", set, err)
	}
}

func TestMockingMakesAnEvaluationNotRunnable(t *testing.T) {
	for _, v := range []struct{ key, want string }{
		{`"mockingStrategy":null`, ``},
		{`"mockingStrategy":{"type":"llm","prompt":"x"}`, `mockingStrategy (llm): a model in UiPath's cloud plays it, which evalrun does not call; a mockingStrategy of type mockito holds its answers`},
		{`"mockingStrategy":{"type":"mockito","behaviors":[]}`, ``},
		{`"mockingStrategy":{"type":"x"}`, `mockingStrategy: expected the type mockito, got "x"`},
		{`"inputMockingStrategy":{"prompt":"x"}`, `inputMockingStrategy: a model in UiPath's cloud writes it, which evalrun does not call`},
		{`"simulateTools":false`, ``},
		{`"simulateTools":true,"simulateInput":true,"inputGenerationInstructions":"x"`, `simulateTools: a model in UiPath's cloud plays it, which evalrun does not call; a mockingStrategy of type mockito holds its answers; simulateInput: a model in UiPath's cloud writes it, which evalrun does not call`},
		{`"simulateInput":true`, ``},
		{`"conversationalInputs":{"a":1}`, `conversationalInputs: evalrun cannot run conversational evaluations`},
	} {
		set, problems, err := evalset.Parse("s.json", []byte(`{"version":"1.0","id":"s","name":"S","evaluations":[{"id":"1","name":"n","inputs":{},"evaluationCriterias":{},`+v.key+`}]}`), nil)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v %v", v.key, err, problems)
		}
		if got := set.Evaluations[0].NotRunnable; got != v.want {
			t.Errorf("%s: %q, want %q", v.key, got, v.want)
		}
	}
}

func TestPricesOfASet(t *testing.T) {
	cached := 0.1
	head := `{"id":"s","name":"s","version":"1.0","evaluations":[],"prices":`
	set, problems, err := evalset.Parse("s.json", []byte(head+`{"gpt-*":{"input":1,"cachedInput":0.1,"output":2}}}`), nil)
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if diff := cmp.Diff(eval.Prices{"gpt-*": {Input: 1, CachedInput: &cached, Output: 2}}, set.Prices); diff != "" {
		t.Error(diff)
	}
	for text, want := range map[string]string{
		`3`:                                `prices: expected prices by model`,
		`{"m":3}`:                          `prices.m: expected an object`,
		`{"m":{"input":1}}`:                `prices.m.output: missing; expected a number`,
		`{"m":{"input":-1,"output":1}}`:    `prices.m.input: expected a number from 0 to 1e+09, got -1`,
		`{"m":{"input":"1","output":1}}`:   `prices.m.input: expected a number, got a string`,
		`{"":{"input":1,"output":1}}`:      "expected the name of a model, or a pattern",
		`{"m":{"input":1e999,"output":1}}`: `prices.m.input: expected a number`,
	} {
		_, problems, err := evalset.Parse("s.json", []byte(head+text+"}"), nil)
		if err == nil || !strings.Contains(problems.Err(true).Error(), want) {
			t.Errorf("%s: got %v, want %s", text, problems, want)
		}
	}
}
