package uipath

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
	evalpython "github.com/evalrun/evalrun/eval/python"
	"github.com/evalrun/evalrun/internal/evalworker"
)

// Given custom evaluators of UiPath's users, when evalrun runs them with their own package, then
// scores and details are those of the package, and what does not fit is an error of that evaluator.
func TestCustomEvaluators(t *testing.T) {
	python(t)
	dir, err := filepath.Abs("testdata/custom/eval-sets")
	if err != nil {
		t.Fatal(err)
	}
	workers := evalworker.New(false)
	defer workers.Close()
	const star, plain = `{"name": "track_operator", "attributes": {"operator": "*"}}`, `{"name": "Operator"}`
	const byDefault = `{"name": "Operator", "defaultEvaluationCriteria": {"operator": "+"}}`
	for name, v := range map[string]struct {
		class, config, criteria, span, output string
		score, scale                          float64
		details, failure, checked             string
	}{
		"vector 45: as expected":          {"Operator", plain, `{"operator": "*"}`, star, `{}`, 1, 1, `{"expected":"*","actual":"*"}`, "", ""},
		"vector 45: another":              {"Operator", plain, `{"operator": "+"}`, star, `{}`, 0, 1, `{"expected":"+","actual":"*"}`, "", ""},
		"vector 46: null":                 {"Operator", byDefault, `null`, star, `{}`, 0, 1, `{"expected":"+","actual":"*"}`, "", ""},
		"vector 46: none":                 {"Operator", byDefault, `{}`, star, `{}`, 0, 1, `{"expected":"+","actual":"*"}`, "", ""},
		"none at all":                     {"Operator", plain, `null`, star, `{}`, 0, 0, "", "there are none", "there are none"},
		"vector 47: no span":              {"Operator", plain, `{"operator": "*"}`, `{"name": "x"}`, `{}`, 0, 0, "", "Exception thrown by evaluator: No 'track_operator' span found", ""},
		"vector 48: a number":             {"Operator", plain, `{"operator": 5}`, star, `{}`, 0, 0, "", "should be a valid string", "should be a valid string"},
		"vector 48: no operator":          {"Operator", plain, `{"other": "*"}`, star, `{}`, 0, 0, "", "Field required", "Field required"},
		"vector 50: true":                 {"Answered", plain, `{"operator": "*"}`, star, `{"a": 1}`, 100, 100, "", "", ""},
		"vector 52: a text":               {"Answered", plain, `{"operator": "*"}`, star, `"x"`, 100, 100, "", "", ""},
		"vector 52: a list":               {"Answered", plain, `{"operator": "*"}`, star, `[1]`, 0, 0, "", "ValidationError", ""},
		"an empty output is an empty one": {"Answered", plain, `{"operator": "*"}`, star, `null`, 0, 100, "", "", ""},
		"vector 49: no class":             {"Absent", plain, `{"operator": "*"}`, star, `{}`, 0, 0, "", "Class 'Absent' not found", "cannot be loaded"},
		"vector 49: another class":        {"Nobody", plain, `{"operator": "*"}`, star, `{}`, 0, 0, "", "must be a subclass of BaseEvaluator", "cannot be loaded"},
	} {
		def := eval.Definition{ID: "e", Name: "E", Weight: 1, Type: "file://operator.py:" + v.class, Config: json.RawMessage(v.config)}
		e, err := kinds.All.New(def)
		if err != nil {
			t.Fatal(err)
		}
		s := eval.Subject{Dir: dir, Python: workers, Output: json.RawMessage(v.output), Trace: [][]json.RawMessage{{json.RawMessage(v.span)}},
			Evaluation: eval.Evaluation{ID: "1", Name: "n", Inputs: json.RawMessage(`{}`), Criteria: map[string]json.RawMessage{"e": json.RawMessage(v.criteria)}}}
		r := e.Evaluate(t.Context(), s).Results[0]
		if v.failure != "" {
			if r.Score != nil || !strings.Contains(r.Error, v.failure) {
				t.Errorf("%s: got %v, %q%s", name, evaltest.Deref(r.Score), r.Error, r.NotRun)
			}
		} else if r.Score == nil || *r.Score != v.score || r.Scale != v.scale || string(r.Details) != v.details {
			t.Errorf("%s: got %v of %v, %s, %q%s", name, evaltest.Deref(r.Score), r.Scale, r.Details, r.Error, r.NotRun)
		}
		problems, err := evalpython.Check(t.Context(), workers, evalpython.Of(def, dir), []json.RawMessage{json.RawMessage(v.criteria)})
		said := strings.Join(problems, "")
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, v.checked) || v.checked == "" && said != "" {
			t.Errorf("%s: the check says %q", name, said)
		}
	}
}
