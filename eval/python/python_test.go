package python_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/python"
	"github.com/evalrun/evalrun/internal/evalworker"
	"github.com/evalrun/evalrun/internal/testenv"
)

// workers are ended with the test.
func workers(t *testing.T, fresh bool) *evalworker.Workers {
	t.Helper()
	testenv.NeedPython(t)
	w := evalworker.New(fresh)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

func testdata(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func definition(function string) eval.Definition {
	return evaltest.Definition(python.Type, `{"function": "`+function+`"}`)
}

func subject(t *testing.T, w eval.Python, criteria string) eval.Subject {
	return eval.Subject{Dir: testdata(t), Python: w, Output: json.RawMessage(`{"a":1}`), Workspace: "/ws",
		Evaluation: eval.Evaluation{ID: "1", Name: "one", Inputs: json.RawMessage(`{"q":2}`), ExpectedOutput: json.RawMessage(`"right"`),
			Criteria: map[string]json.RawMessage{"e": json.RawMessage(criteria)}}}
}

func score(t *testing.T, ctx context.Context, w eval.Python, function, criteria string) eval.Result {
	t.Helper()
	e, err := kinds.All.New(definition(function))
	if err != nil {
		t.Fatal(err)
	}
	results := e.Evaluate(ctx, subject(t, w, criteria)).Results
	if len(results) != 1 {
		t.Fatalf("%s: got %d results", function, len(results))
	}
	return results[0]
}

// Given functions that return what they may, when they score, then the score and the details are
// theirs, whatever they print, and the module is loaded once.
func TestFunctionsScore(t *testing.T) {
	w := workers(t, false)
	for _, v := range []struct {
		function, criteria string
		score              float64
		details            string
	}{
		{"ev.py:counts", "null", 1, `"1"`},
		{"ev.py:counts", "null", 1, `"2"`},
		{"ev.py:neighbour", "null", 0.5, ""},
		{"ev.py:prints", "null", 1, ""},
		{"ev.py:later", "null", 1, `{"expected":"right"}`},
		{"ev.py:model", `{"mostWords": 7}`, 1, ""},
		{"ev.py:model", `{"most_words": 8}`, 0, ""},
		{"ev.py:tells", `{"any": [1]}`, 1, `{"told":[{"a":1},{"any":[1]},{"q":2},[],[],"/ws",null]}`},
	} {
		r := score(t, t.Context(), w, v.function, v.criteria)
		evaltest.WantScore(t, r, v.score)
		if string(r.Details) != v.details || r.Error != "" {
			t.Errorf("%s: got %s, %q", v.function, r.Details, r.Error)
		}
	}
}

// Given an evaluator that waits, when the answer is there, then it is called again with it.
func TestAFunctionWaits(t *testing.T) {
	w := workers(t, false)
	e, err := kinds.All.New(definition("ev.py:waits"))
	if err != nil {
		t.Fatal(err)
	}
	s := subject(t, w, "null")
	if v := e.Evaluate(t.Context(), s); string(v.Wait) != `[{"id":"x","value":{"q":"ok?"}}]` {
		t.Fatalf("got %s, %v", v.Wait, v.Results)
	}
	v := e.Resume(t.Context(), s, map[string]eval.Delivery{"x": {Status: "successful", Payload: json.RawMessage(`"yes"`)}})
	evaltest.WantScore(t, evaltest.Only(t, v.Results), 1)
}

// Given functions that do what they should not, when they score, then there is no score, it is said
// what was wrong, and the next one scores.
func TestFunctionsThatFail(t *testing.T) {
	w := workers(t, false)
	for function, want := range map[string]string{
		"ev.py:raises":     "the evaluator raised ValueError: bad thing (ev.py, line ",
		"ev.py:text":       `the evaluator returned '0.5' as its score; expected a number from 0 to 1`,
		"ev.py:none":       "the evaluator returned None as its score",
		"ev.py:nan":        "holds nan, which is not a JSON value",
		"ev.py:high":       "score: expected a number from 0 to 1, got 5",
		"ev.py:unscored":   "the evaluator returned an object without a score",
		"ev.py:forged":     "details: expected a string or an object, got an array",
		"ev.py:leaves":     "the evaluator's worker ended with exit status 4: on my way",
		"ev.py:ends":       "the evaluator ended itself: SystemExit: 3",
		"ev.py:large":      "the evaluator printed more than 1048576 bytes",
		"ev.py:nameless":   "'output' has no name for callers",
		"ev.py:absent":     "ev.py has no 'absent'; it has ",
		"no.py:x":          "the evaluator cannot be loaded: there is no file ",
		"no_such_module:x": "ModuleNotFoundError: No module named 'no_such_module'",
		"os:sep":           "the evaluator os:sep is a str, which cannot be called",
	} {
		r := score(t, t.Context(), w, function, "null")
		if r.Score != nil || !strings.Contains(r.Error, want) {
			t.Errorf("%s: got %v, %q, want %q", function, evaltest.Deref(r.Score), r.Error, want)
		}
		evaltest.WantScore(t, score(t, t.Context(), w, "ev.py:neighbour", "null"), 0.5)
	}
}

// Given a function that hangs, when its time is over, then its worker ends, it is said so with what it
// has printed, and the next one scores.
func TestAFunctionThatHangs(t *testing.T) {
	w := workers(t, false)
	evaltest.WantScore(t, score(t, t.Context(), w, "ev.py:neighbour", "null"), 0.5) // so that it is loaded
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if r := score(t, ctx, w, "ev.py:hangs", "null"); r.Score != nil || !strings.HasPrefix(r.Error, "the evaluator timed out") {
		t.Errorf("got %v, %q", evaltest.Deref(r.Score), r.Error)
	}
	evaltest.WantScore(t, score(t, t.Context(), w, "ev.py:neighbour", "null"), 0.5)
}

// Given fresh workers, then what a module keeps is not seen by the next evaluation.
func TestFreshFunctions(t *testing.T) {
	w := workers(t, true)
	for range 2 {
		if r := score(t, t.Context(), w, "ev.py:counts", "null"); string(r.Details) != `"1"` {
			t.Errorf("got %s, %q", r.Details, r.Error)
		}
	}
}

// Given criteria, when a function is asked about them, then each that does not fit has a reason, and
// nothing is scored.
func TestCriteriaAreChecked(t *testing.T) {
	w := workers(t, false)
	vectors := []struct{ criteria, want string }{
		{`{"most": 1}`, ""},
		{`{"most": 1, "name": "n", "share": 1, "tags": ["t"], "deep": {}}`, ""},
		{`null`, "the key 'most' is missing"},
		{`{"most": "1"}`, "most: expected int, got '1'"},
		{`{"most": true}`, "most: expected int, got True"},
		{`{"most": 1, "name": 2}`, "name: expected str, got 2"},
		{`{"most": 1, "share": "x"}`, "share: expected float, got 'x'"},
		{`{"most": 1, "tags": {}}`, "tags: expected list, got {}"},
		{`{"most": 1, "mots": 1}`, "unknown key 'mots'; the evaluator has the keys most, name, share, tags, deep"},
	}
	var criteria []json.RawMessage
	for _, v := range vectors {
		criteria = append(criteria, json.RawMessage(v.criteria))
	}
	problems, err := python.Check(t.Context(), w, python.Of(definition("ev.py:keys"), testdata(t)), criteria)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range vectors {
		if !strings.HasPrefix(problems[i], v.want) || v.want == "" && problems[i] != "" {
			t.Errorf("%s: got %q, want %q", v.criteria, problems[i], v.want)
		}
	}
	if r := score(t, t.Context(), w, "ev.py:keys", `{"mots": 1}`); r.Score != nil || !strings.Contains(r.Error, "the criteria do not fit the evaluator: the key 'most'") {
		t.Errorf("got %q", r.Error)
	}
}

// Given no interpreter, then the evaluator is not run, which is no failure of it.
func TestWithoutPython(t *testing.T) {
	w := workers(t, false)
	def := evaltest.Definition(python.Type, `{"function": "ev.py:counts", "python": "no-such-python"}`)
	e, err := kinds.All.New(def)
	if err != nil {
		t.Fatal(err)
	}
	if r := e.Evaluate(t.Context(), subject(t, w, "null")).Results[0]; !strings.Contains(r.NotRun, `there is no program "no-such-python"`) || r.Error != "" {
		t.Errorf("got %+v", r)
	}
	var lacking *eval.NotAsked
	if _, err := python.Check(t.Context(), w, python.Of(def, testdata(t)), nil); !errors.As(err, &lacking) {
		t.Errorf("got %v", err)
	}
}

// Given no package uipath, then a class of UiPath's is not run, also where a folder has its name and the
// file is not there.
func TestWithoutUiPath(t *testing.T) {
	w := workers(t, false)
	if exec.Command("python3", "-c", "import uipath").Run() == nil {
		t.Skip("this machine's python3 has the package uipath")
	}
	dir := t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(dir, "uipath"), 0o700), os.WriteFile(filepath.Join(dir, "pyproject.toml"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	def := evaltest.Definition("file://op.py:Op", `{"name": "Op"}`)
	e, err := kinds.All.New(def)
	if err != nil {
		t.Fatal(err)
	}
	s := subject(t, w, `{"operator": "*"}`)
	s.Dir = filepath.Join(dir, "sets")
	if r := e.Evaluate(t.Context(), s).Results[0]; !strings.Contains(r.NotRun, "has no package uipath") || r.Error != "" {
		t.Errorf("got %q, %q", r.NotRun, r.Error)
	}
	var lacking *eval.NotAsked
	if _, err := python.Check(t.Context(), w, python.Of(def, s.Dir), nil); !errors.As(err, &lacking) {
		t.Errorf("got %v", err)
	}
}
