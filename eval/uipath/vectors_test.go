package uipath_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
)

func TestJSONSimilarityVectors(t *testing.T) {
	for _, v := range []struct {
		expected, actual string
		want             float64
	}{
		{`{}`, `{"a":1}`, 1},
		{`{}`, `"anything"`, 1},
		{`{"a":{}}`, `{"a":"zzz"}`, 1},
		{`{"a":[1,2]}`, `{"a":[]}`, 0},
		{`{"a":1}`, `{"a":true}`, 0},
		{`{"a":null}`, `{}`, 0},
		{`{"a":null}`, `{"a":null}`, 1},
		{`{"a":null}`, `{"a":0}`, 0},
		{`{"a":0}`, `{"a":1e-13}`, 1},
		{`{"a":0}`, `{"a":1e-11}`, 0},
		{`{"a":10}`, `{"a":12}`, 0.8},
		{`{"a":10}`, `{"a":25}`, 0},
		{`{"a":-10}`, `{"a":10}`, 0},
		{`{"a":2}`, `{"a":"2"}`, 0},
		{`{"a":true}`, `{"a":true}`, 1},
		{`{"a":true}`, `{"a":1}`, 0},
		{`{"a":""}`, `{"a":""}`, 1},
		{`{"a":"Alice"}`, `{"a":"Alicia"}`, 0.6666666666666667},
		{`{"a":"Café"}`, `{"a":"Cafe"}`, 0.75},
		{`{"a":"hello"}`, `{"a":"hallo"}`, 0.8},
		{`{"a":["apple","banana","grape"]}`, `{"a":["apple","banana","orange"]}`, 0.8333333333333334},
		{`{"a":[1,2,3]}`, `{"a":[1,2]}`, 0.6666666666666666},
		{`{"a":[1,2]}`, `{"a":[1,2,3]}`, 1},
		{`{"a":"completed sucessfully"}`, `{"a":"completed successfully"}`, 0.9545454545454546},
		{`{"t":20.3,"h":65}`, `{"t":20.5,"h":65}`, 0.9950738916256158},
		{`{"a":{"b":1,"c":2}}`, `{"a":3}`, 0},
	} {
		t.Run(v.expected+" | "+v.actual, func(t *testing.T) {
			r := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition("uipath-json-similarity", `{}`), `{"expectedOutput":`+v.expected+`}`, v.actual))
			evaltest.WantScore(t, r, v.want)
		})
	}
}

func TestJSONSimilarityDetails(t *testing.T) {
	r := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition("uipath-json-similarity", `{}`), `{"expectedOutput":{"b":[1],"a":"it's"}}`, `{"b":[2,3],"a":"it's"}`))
	want := `{"expected":"{'b': [1.0], 'a': \"it's\"}","actual":"{'b': [2.0, 3.0], 'a': \"it's\"}","matched_leaves":1,"total_leaves":2}`
	if string(r.Details) != want {
		t.Errorf("details\n got %s\nwant %s", r.Details, want)
	}
}

func TestExactMatchVectors(t *testing.T) {
	for _, v := range []struct {
		name, config, expected, actual string
		want                           float64
	}{
		{"objects of text and number differ", `{}`, `{"result":"8.0"}`, `{"result":8.0}`, 0},
		{"with a key they are compared as text", `{"targetOutputKey":"result"}`, `{"result":"8.0"}`, `{"result":8}`, 1},
		{"integers become floats", `{}`, `{"a":8}`, `{"a":8.0}`, 1},
		{"text of an integer is not that of a float", `{"targetOutputKey":"result"}`, `{"result":"8"}`, `{"result":8}`, 0},
		{"True as text", `{"targetOutputKey":"a"}`, `{"a":"true"}`, `{"a":true}`, 1},
		{"None as text", `{"targetOutputKey":"a"}`, `{"a":"None"}`, `{"a":null}`, 1},
		{"an object as text", `{"targetOutputKey":"a"}`, `{"a":"{'b': 1.0}"}`, `{"a":{"b":1}}`, 1},
		{"case does not matter", `{"targetOutputKey":"a"}`, `{"a":"YES"}`, `{"a":"yes"}`, 1},
		{"unless it does", `{"targetOutputKey":"a","caseSensitive":true}`, `{"a":"YES"}`, `{"a":"yes"}`, 0},
		{"snake_case configuration", `{"target_output_key":"a","case_sensitive":true}`, `{"a":"YES"}`, `{"a":"yes"}`, 0},
		{"inside objects case matters", `{}`, `{"a":"YES"}`, `{"a":"yes"}`, 0},
		{"negated", `{"negated":true}`, `{"a":1}`, `{"a":1}`, 0},
		{"negated mismatch", `{"negated":true}`, `{"a":1}`, `{"a":2}`, 1},
		{"order of keys does not matter", `{}`, `{"a":1,"b":2}`, `{"b":2,"a":1}`, 1},
		{"order of a list does", `{}`, `{"a":[1,2]}`, `{"a":[2,1]}`, 0},
		{"True == 1.0", `{}`, `{"a":true}`, `{"a":1}`, 1},
		{"False == 0", `{}`, `{"a":[false]}`, `{"a":[0]}`, 1},
		{"expected as a JSON string", `{"targetOutputKey":"a"}`, `"{\"a\": 3}"`, `{"a":3}`, 1},
		{"nested path", `{"targetOutputKey":"a.b[1].c"}`, `{"a":{"b":[0,{"c":"x"}]}}`, `{"a":{"b":[9,{"c":"X"}]}}`, 1},
		{"list of paths", `{"targetOutputKey":["a","b.c"]}`, `{"a":1,"b":{"c":2},"z":1}`, `{"a":1,"b":{"c":2},"z":9}`, 1},
		{"list of paths, one differs", `{"targetOutputKey":["a","b.c"]}`, `{"a":1,"b":{"c":2}}`, `{"a":1,"b":{"c":3}}`, 0},
		{"whole output is text", `{}`, `"done"`, `"Done"`, 1},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition("uipath-exact-match", v.config), `{"expectedOutput":`+v.expected+`}`, v.actual))
			evaltest.WantScore(t, r, v.want)
		})
	}
}

func TestExactMatchDetails(t *testing.T) {
	r := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition("uipath-exact-match", `{}`), `{"expectedOutput":{"n":5,"s":"a\nb"}}`, `{"ok":true,"none":null,"l":[1e20,1e-7]}`))
	want := `{"expected":"{'n': 5.0, 's': 'a\\nb'}","actual":"{'ok': True, 'none': None, 'l': [1e+20, 1e-07]}"}`
	if string(r.Details) != want {
		t.Errorf("details\n got %s\nwant %s", r.Details, want)
	}
}

// An error result scores 0.
func TestOutputErrors(t *testing.T) {
	for _, v := range []struct{ name, config, criteria, output, want string }{
		{"key missing in the actual output", `{"targetOutputKey":"a"}`, `{"expectedOutput":{"a":1}}`, `{"b":1}`, `TARGET_OUTPUT_KEY_NOT_FOUND: "a" in the actual output: "a" is not there`},
		{"key missing in the expected output", `{"targetOutputKey":"a"}`, `{"expectedOutput":{"b":1}}`, `{"a":1}`, `TARGET_OUTPUT_KEY_NOT_FOUND: "a" in the expected output: "a" is not there`},
		{"index out of range", `{"targetOutputKey":"a[2]"}`, `{"expectedOutput":{"a":[1,2,3]}}`, `{"a":[1]}`, `TARGET_OUTPUT_KEY_NOT_FOUND: "a[2]" in the actual output: [2] is out of range: the length of the array is 1`},
		{"index into an object", `{"targetOutputKey":"a[0]"}`, `{"expectedOutput":{"a":[1]}}`, `{"a":{}}`, `TARGET_OUTPUT_KEY_NOT_FOUND: "a[0]" in the actual output: [0] needs an array, got an object`},
		{"list of keys with a text output", `{"targetOutputKey":["a"]}`, `{"expectedOutput":{"a":1}}`, `"x"`, `INVALID_ACTUAL_OUTPUT: a list of target output keys needs an object, got a string`},
		{"expected text that is no JSON", `{"targetOutputKey":"a"}`, `{"expectedOutput":"oops"}`, `{"a":1}`, `INVALID_EXPECTED_OUTPUT: with a target output key the expected output must be an object, got the string "oops"`},
		{"no expected output", `{}`, `{"other":1}`, `{"a":1}`, `criteria: expectedOutput is missing`},
		{"attachment", `{"targetOutputKey":"a"}`, `{"expectedOutput":{"a":1}}`, `{"a":"urn:uipath:cas:file:orchestrator:1"}`, `the output is an attachment of UiPath's storage, which evalrun cannot download`},
		{"attachment object", `{"targetOutputKey":"a"}`, `{"expectedOutput":{"a":1}}`, `{"a":{"ID":"1","FullName":"x","MimeType":"text/plain"}}`, `the output is an attachment of UiPath's storage, which evalrun cannot download`},
		{"no criteria at all", `{}`, `null`, `{}`, `MISSING_EVALUATION_CRITERIA: the evaluation has no criteria for this evaluator and the evaluator no defaultEvaluationCriteria`},
		{"criteria of the wrong kind", `{}`, `[1]`, `{}`, `criteria: expected an object or null, got an array`},
	} {
		t.Run(v.name, func(t *testing.T) {
			results := evaltest.Evaluate(t, evaltest.Definition("uipath-exact-match", v.config), v.criteria, v.output)
			if len(results) != 1 || results[0].Error != v.want {
				t.Fatalf("got %+v, want the error %q", results, v.want)
			}
			if strings.HasPrefix(v.name, "attachment") {
				evaltest.Absent(t, "score of what evalrun cannot read", results[0].Score)
				return
			}
			evaltest.WantScore(t, results[0], 0)
		})
	}
}

func TestContainsVectors(t *testing.T) {
	for _, v := range []struct {
		config, criteria, output string
		want                     float64
	}{
		{`{}`, `{"searchText":"resume DATA"}`, `{"r":"Completed with resume data"}`, 1},
		{`{"caseSensitive":true}`, `{"searchText":"resume DATA"}`, `{"r":"Completed with resume data"}`, 0},
		{`{"targetOutputKey":"result"}`, `{"searchText":"8"}`, `{"result":8}`, 1},
		{`{"targetOutputKey":"result"}`, `{"search_text":"8.0"}`, `{"result":8}`, 1},
		{`{"negated":true}`, `{"searchText":"x"}`, `{"a":"y"}`, 1},
		{`{"targetOutputKey":"ok"}`, `{"searchText":"true"}`, `{"ok":true}`, 1},
	} {
		evaltest.WantScore(t, evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition("uipath-contains", v.config), v.criteria, v.output)), v.want)
	}
}

func TestLineByLine(t *testing.T) {
	def := evaltest.Definition("uipath-exact-match", `{"targetOutputKey":"text","lineByLineEvaluator":true}`)
	results := evaltest.Evaluate(t, def, `{"expectedOutput":{"text":"one\n\ntwo\nthree"}}`, `{"text":"one\n2\n"}`)
	if len(results) != 4 {
		t.Fatalf("got %d results, want three lines and the aggregate", len(results))
	}
	for i, want := range []struct {
		id, name string
		line     bool
		score    float64
	}{
		{"e_line_1", "E (Line 1)", true, 1}, {"e_line_2", "E (Line 2)", true, 0}, {"e_line_3", "E (Line 3)", true, 0}, {"e", "E", false, 1.0 / 3},
	} {
		r := results[i]
		if r.EvaluatorID != want.id || r.EvaluatorName != want.name || r.Line != want.line {
			t.Errorf("result %d: got %s, %s, line %v, want %+v", i, r.EvaluatorID, r.EvaluatorName, r.Line, want)
		}
		evaltest.WantScore(t, r, want.score)
	}
	want := `{"line_by_line_results":[` +
		`{"line_number":1,"actual":"one","expected":"one","score":1,"details":{"expected":"one","actual":"one"}},` +
		`{"line_number":2,"actual":"2","expected":"two","score":0,"details":{"expected":"two","actual":"2"}},` +
		`{"line_number":3,"actual":"","expected":"three","score":0,"details":{"expected":"three","actual":""}}],` +
		`"total_lines_actual":2,"total_lines_expected":3,"aggregation_method":"average"}`
	if string(results[3].Details) != want {
		t.Errorf("details\n got %s\nwant %s", results[3].Details, want)
	}
}

func TestLineByLineIsOffForAListOfPaths(t *testing.T) {
	def := evaltest.Definition("uipath-exact-match", `{"targetOutputKey":["text"],"lineByLineEvaluator":true}`)
	evaltest.Only(t, evaltest.Evaluate(t, def, `{"expectedOutput":{"text":"a\nb"}}`, `{"text":"a\nb"}`))
}

func TestClassificationOfOneRollout(t *testing.T) {
	multi := `{"targetOutputKey":"c","classes":["Spam","ham"]}`
	binary := `{"targetOutputKey":"c","positiveClass":"spam"}`
	for _, v := range []struct {
		kind, config, criteria, output string
		want                           float64
		details, error                 string
	}{
		{"uipath-binary-classification", binary, `{"expectedClass":"SPAM"}`, `{"c":"Spam"}`, 1, `{"expected":"spam","actual":"spam"}`, ""},
		{"uipath-binary-classification", binary, `{"expectedClass":"ham"}`, `{"c":"spam"}`, 0, `{"expected":"ham","actual":"spam"}`, ""},
		{"uipath-multiclass-classification", multi, `{"expectedClass":"spam"}`, `{"c":"SPAM"}`, 1, `{"expected":"spam","actual":"spam"}`, ""},
		{"uipath-multiclass-classification", multi, `{"expectedClass":"eggs"}`, `{"c":"ham"}`, 0, ``, `INVALID_EXPECTED_CLASS: the expected class "eggs" is none of spam, ham`},
		{"uipath-multiclass-classification", multi, `{"expectedClass":"ham"}`, `{"c":"eggs"}`, 0, ``, `INVALID_PREDICTED_CLASS: the predicted class "eggs" is none of spam, ham`},
		{"uipath-multiclass-classification", multi, `{"expectedClass":7}`, `{"c":"eggs"}`, 0, ``, `criteria: expectedClass: expected a string, got a number`},
	} {
		r := evaltest.Evaluate(t, evaltest.Definition(v.kind, v.config), v.criteria, v.output)[0]
		evaltest.WantScore(t, r, v.want)
		if string(r.Details) != v.details || r.Error != v.error {
			t.Errorf("%s: details %s, error %q, want %s and %q", v.criteria, r.Details, r.Error, v.details, v.error)
		}
	}
}

func TestCriteriaResolution(t *testing.T) {
	const config = `{"targetOutputKey":"result","defaultEvaluationCriteria":{"expectedOutput":{"result":5}}}`
	for _, v := range []struct {
		name, criteria, expectedOutput string
		want                           float64
	}{
		{"null takes the evaluation's expected output", `null`, `{"result":10}`, 1},
		{"criteria without one get it", `{"other":1}`, `{"result":10}`, 1},
		{"criteria's own wins", `{"expectedOutput":{"result":7}}`, `{"result":10}`, 0},
		{"null without an expected output takes the default", `null`, ``, 0},
		{"an empty object is no criteria", `{}`, ``, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			e, err := kinds.All.New(evaltest.Definition("uipath-exact-match", config))
			if err != nil {
				t.Fatal(err)
			}
			s := eval.Subject{Output: json.RawMessage(`{"result":10}`), Evaluation: eval.Evaluation{
				Criteria: map[string]json.RawMessage{"e": json.RawMessage(v.criteria)}, ExpectedOutput: json.RawMessage(v.expectedOutput)}}
			evaltest.WantScore(t, evaltest.Only(t, e.Evaluate(context.Background(), s).Results), v.want)
		})
	}
	t.Run("an empty expected output is used", func(t *testing.T) {
		e, err := kinds.All.New(evaltest.Definition("uipath-json-similarity", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		s := eval.Subject{Output: json.RawMessage(`{"a":1}`), Evaluation: eval.Evaluation{
			Criteria: map[string]json.RawMessage{"e": json.RawMessage(`null`)}, ExpectedOutput: json.RawMessage(`{}`)}}
		evaltest.WantScore(t, evaltest.Only(t, e.Evaluate(context.Background(), s).Results), 1)
	})
	t.Run("an evaluator that is no output evaluator is not touched", func(t *testing.T) {
		e, err := kinds.All.New(evaltest.Definition("uipath-contains", `{"defaultEvaluationCriteria":{"searchText":"1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		s := eval.Subject{Output: json.RawMessage(`{"a":1}`), Evaluation: eval.Evaluation{
			Criteria: map[string]json.RawMessage{"e": json.RawMessage(`null`)}, ExpectedOutput: json.RawMessage(`{"x":1}`)}}
		evaltest.WantScore(t, evaltest.Only(t, e.Evaluate(context.Background(), s).Results), 1)
	})
	t.Run("an evaluator without an entry is skipped", func(t *testing.T) {
		e, err := kinds.All.New(evaltest.Definition("uipath-contains", `{}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Evaluate(context.Background(), eval.Subject{}).Results; got != nil {
			t.Errorf("got %+v, want no result", got)
		}
	})
}

func TestEvaluatorThatCannotRun(t *testing.T) {
	def := evaltest.Definition("file://types/x.json", `{"anything":1}`)
	def.NotRun = "a reason"
	results := evaltest.Evaluate(t, def, `null`, `{}`)
	if len(results) != 1 || results[0].NotRun != "a reason" || results[0].Score != nil {
		t.Errorf("got %+v, want one result that says why there is no score", results)
	}
}
