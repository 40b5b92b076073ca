package check_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
)

// found is a finding as the results have it.
type found struct {
	Check, Name, Reason string
	Passed              bool
	Score               float64
}

// look runs checks over an output, and returns the evaluator's result and the findings.
func look(t *testing.T, checks, output string, spans ...string) (eval.Result, []found) {
	t.Helper()
	results := evaltest.Evaluate(t, evaltest.Definition(eval.TypeChecks, `{"checks": `+checks+`}`), "null", output, spans...)
	if len(results) != 1 {
		t.Fatalf("got %d results", len(results))
	}
	var details struct{ Checks []found }
	if results[0].Details != nil {
		if err := json.Unmarshal(results[0].Details, &details); err != nil {
			t.Fatal(err)
		}
	}
	return results[0], details.Checks
}

// one runs one check.
func one(t *testing.T, check, output string, spans ...string) found {
	t.Helper()
	result, all := look(t, "["+check+"]", output, spans...)
	if len(all) != 1 {
		t.Fatalf("%s: %+v", check, result)
	}
	return all[0]
}

// Each check passes and fails as it says, and gives its reason in plain words.
func TestChecks(t *testing.T) {
	for _, v := range []struct {
		check, output string
		score         float64
		reason        string
	}{
		{`{"contains": "Paris"}`, `"It is Paris."`, 1, `expected a text that contains "Paris", got "It is Paris."`},
		{`{"contains": "Paris", "not": true}`, `"It is Paris."`, 0,
			`expected anything but a text that contains "Paris", got "It is Paris."`},
		{`{"contains": "1"}`, `{"a": [1, 2]}`, 1, `expected a text that contains "1", got {"a":[1,2]}`},
		{`{"containsAll": ["a", "b", "c"]}`, `"abba"`, 0,
			`expected a text that contains all of "a", "b", "c", got "abba" without "c"`},
		{`{"containsAny": ["x", "B"], "ignoreCase": true}`, `"abba"`, 1, ""},
		{`{"startsWith": "ÄB", "ignoreCase": true}`, `"äbc"`, 1, ""},
		{`{"endsWith": "c  d", "ignoreSpace": true}`, `"ab c\nd "`, 1, ""},
		{`{"equals": 1}`, `true`, 0, "expected 1, got true"},
		{`{"equals": {"a": [1.0, null]}}`, `{"a": [1, null]}`, 1, ""},
		{`{"equals": {"a": 1}}`, `"{\"a\": 1}"`, 1, ""},
		{`{"equals": {"a": 1}}`, `{"a": 1, "b": 2}`, 0, ""},
		{`{"equals": "42"}`, `42`, 1, ""},
		{`{"equals": false}`, `""`, 0, ""},
		{`{"equals": 9007199254740993}`, `9007199254740992`, 0, ""},
		{`{"regex": "(?m)^b$"}`, `"a\nb"`, 1, ""},
		{`{"regex": "^b$"}`, `"a\nb"`, 0, ""},
		{`{"isJson": true}`, `"{"`, 0, `expected JSON, got what is no JSON: "{"`},
		{`{"isJson": true}`, `""`, 0, ""},
		{`{"isJson": true}`, `{"a": 1}`, 1, ""},
		{`{"isJson": {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}}`, `{"a": "x"}`, 0, ""},
		{`{"isJson": {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}}`, `{"a": 7}`, 1, ""},
		{`{"containsJson": {"required": ["a"]}}`, `"see {x} and {\"b\": 1} and [{\"a\": 1}]"`, 1, ""},
		{`{"containsJson": {"required": ["a"], "type": "object"}}`, `"see {x} and {\"b\": 1} and {\"a\": 1}"`, 1, ""},
		{`{"containsJson": {"required": ["a"]}}`, `"{\"b\": 1}"`, 0, ""},
		{`{"containsJson": true}`, `"nothing {here"`, 0, ""},
		{`{"number": 1234.5}`, `"of 3 items the sum is 1,234.50 EUR"`, 1, ""},
		{`{"number": 21}`, `"in 2020-21"`, 1, ""},
		{`{"number": -21}`, `"it is -21"`, 1, ""},
		{`{"number": -5}`, `"x = −5"`, 1, ""},
		{`{"number": 5}`, `"x = −5"`, 0, "expected the number 5, got -5"},
		{`{"number": 0.3, "tolerance": 0.1}`, `0.2`, 1, ""},
		{`{"number": 1234567.3, "tolerance": 0.01}`, `1234567.31`, 1, ""},
		{`{"number": 1234567.3, "tolerance": 0.01}`, `1234567.311`, 0, ""},
		{`{"number": 0.3, "tolerance": 0.1}`, `0.19`, 0, "expected the number 0.3, at most 0.1 off, got 0.19"},
		{`{"number": 200, "relativeTolerance": 0.05}`, `209`, 1, ""},
		{`{"choice": "C"}`, `"c"`, 1, ""},
		{`{"choice": "A"}`, `"Answer: **A**"`, 1, ""},
		{`{"choice": "B"}`, `"B) because a is wrong"`, 1, ""},
		{`{"choice": "D"}`, `"First I thought A. The answer is B. No: the answer is D"`, 1, ""},
		{`{"choice": "A"}`, `"A good answer would be long."`, 0, ""},
		{`{"words": {"min": 2, "max": 2}}`, `"zwei Wörter"`, 1, `expected exactly 2 words, got 2: "zwei Wörter"`},
		{`{"characters": {"max": 3}}`, `"äöüß"`, 0, `expected at most 3 characters, got 4: "äöüß"`},
		{`{"anyOf": [{"contains": "a"}, {"contains": "b"}]}`, `"c"`, 0,
			`expected one of these checks to pass, got 0 of 2: expected a text that contains "a", got "c"; expected a text that contains "b", got "c"`},
		{`{"allOf": [{"contains": "a"}, {"contains": "b", "weight": 3}], "threshold": 0.75}`, `"b"`, 1, ""},
		{`{"allOf": [{"contains": "a"}, {"contains": "b", "weight": 3}], "threshold": 0.76}`, `"b"`, 0, ""},
		{`{"atLeast": 2, "of": [{"contains": "a"}, {"contains": "b"}, {"contains": "c"}], "not": true}`, `"ab"`, 0, ""},
		{`{"equals": "x", "path": "a[\"b.c\"][-1].d"}`, `{"a": {"b.c": [1, {"d": "x"}]}}`, 1, ""},
		{`{"equals": 2, "path": "a.b"}`, `{"a": "{\"b\": 2}"}`, 1, ""},
		{`{"equals": "y", "jq": ".[] | select(. != \"x\")"}`, `["x", "y", "z"]`, 1, ""},
		{`{"equals": "last", "transform": "lastLine"}`, `"first\n\n last \n"`, 1, ""},
		{`{"equals": "first", "transform": ["firstLine", "lower"]}`, `"\nFIRST\nlast"`, 1, ""},
		{`{"contains": "x", "name": "A name"}`, `"y"`, 0, `A name: expected a text that contains "x", got "y"`},
	} {
		got := one(t, v.check, v.output)
		if got.Score != v.score || got.Passed != (v.score == 1) || v.reason != "" && got.Reason != v.reason {
			t.Errorf("%s of %s: got %v, %q, expected %v, %q", v.check, v.output, got.Score, got.Reason, v.score, v.reason)
		}
	}
}

// What is not there, or is of another kind, fails the check, and does so if the check is turned round.
func TestChecksOfWhatIsNotThere(t *testing.T) {
	for _, v := range []struct{ check, output, reason string }{
		{`{"contains": "x", "path": "a.b"%s}`, `{"a": {}}`, `a.b is not there: there is no "b"`},
		{`{"contains": "x", "path": "a.b"%s}`, `{"a": 7}`, `a.b is not there: "b" needs an object, and there is a number`},
		{`{"contains": "x", "path": "a[-3]"%s}`, `{"a": [1, 2]}`, `a[-3] is not there: the length of the array is 2`},
		{`{"contains": "x", "path": "[0]"%s}`, `null`, `[0] is not there: [0] needs an array, and there is null`},
		{`{"contains": "x"%s}`, `null`, `it is null, which is no text`},
		{`{"contains": "x", "transform": "trim"%s}`, ``, `it is null, which is no text`},
		{`{"contains": "x", "jq": ".a | error(\"no\")"%s}`, `{"a": 7}`, `jq finds no value`},
		{`{"number": 1%s}`, `"NaN"`, `there is no number in "NaN"`},
		{`{"number": 1%s}`, `"` + strings.Repeat("9", 400) + `"`, `there is no number in`},
		{`{"number": 1%s}`, `true`, `there is no number in true`},
		{`{"choice": "A"%s}`, `"I cannot say"`, `names none of ABCD as its choice`},
		{`{"levenshtein": "x"%s}`, `"` + strings.Repeat("a", 10_001) + `"`, `it has 10001 characters, and levenshtein compares at most 10000`},
		{`{"rougeL": "x"%s}`, `"` + strings.Repeat("a ", 10_001) + `"`, `it has 10001 words, and rougeL compares at most 10000`},
		{`{"regex": "(a?){900}b"%s}`, `"` + strings.Repeat("a", 2<<20) + `"`, `bytes, and this expression takes at most`},
		{`{"containsJson": true%s}`, `"` + strings.Repeat(`[1,`, 1<<20) + `"`, `it has too many beginnings of JSON that do not end`},
		{`{"contains": "x"%s}`, `"\u0000\ud800"`, ``},
	} {
		for _, not := range []string{"", `, "not": true`} {
			got := one(t, fmt.Sprintf(v.check, not), v.output)
			if v.reason == "" {
				continue // it is scored, whatever is in it
			}
			if got.Score != 0 || got.Passed || !strings.Contains(got.Reason, v.reason) {
				t.Errorf("%s: got %v, %q, expected 0 and %q", v.check+not, got.Score, got.Reason, v.reason)
			}
		}
	}
}

// An output of 5 MB is checked, and what is said of it is short.
func TestChecksOfLongOutputs(t *testing.T) {
	output := `"` + strings.Repeat("lorem ipsum 12 [", 5<<20/16) + ` {\"a\": 1} end"`
	_, all := look(t, `[{"contains": "end"}, {"endsWith": " end"}, {"regex": "[a-z]+ \\d+ x"}, {"number": 1},
		{"words": {"max": 3}}, {"isJson": true}, {"levenshtein": "end"}, {"bleu": "end"}, {"equals": "end"},
		{"containsAll": ["end", "nowhere"]}, {"choice": "A"}, {"path": "a", "equals": 1}]`, output)
	if len(all) != 12 {
		t.Fatalf("got %d findings", len(all))
	}
	for i, f := range all {
		if len(f.Reason) > 1000 {
			t.Errorf("%s has a reason of %d bytes", f.Check, len(f.Reason))
		}
		if wantPass := i < 2 || i == 3; f.Passed != wantPass {
			t.Errorf("%s: got %t: %s", f.Check, f.Passed, f.Reason)
		}
	}
}

// The published examples of the measures.
func TestSimilarities(t *testing.T) {
	const hypothesis = "It is a guide to action which ensures that the military always obeys the commands of the party"
	references := `["It is a guide to action that ensures that the military will forever heed Party commands",
		"It is the guiding principle which guarantees the military forces always being under the command of the Party",
		"It is the practical guide for the army always to heed the directions of the party"]`
	for _, v := range []struct {
		check, output string
		score         float64
	}{
		// The example of Papineni and others, 2002, as NLTK's documentation has its score.
		{`{"bleu": ` + references + `}`, hypothesis, 0.5045666840058485},
		{`{"bleu": ["the cat is on the mat"]}`, "the the the the the the the", 0},
		{`{"bleu": ["the cat"]}`, "the cat", 1},
		{`{"bleu": ["a b c d e f g h"]}`, "a b c d", math.Exp(-1)},
		// The examples of Lin, 2004, of ROUGE-L, and of the package rouge_score.
		{`{"rougeL": "police killed the gunman"}`, "police kill the gunman", 0.75},
		{`{"rougeL": "police killed the gunman"}`, "the gunman kill police", 0.5},
		{`{"rouge1": "The quick brown fox jumps over the lazy dog"}`, "The quick brown dog jumps on the log.", 0.7058823529411765},
		{`{"rougeL": "The quick brown fox jumps over the lazy dog"}`, "The quick brown dog jumps on the log.", 0.5882352941176471},
		{`{"rouge2": "a b c"}`, "a b d", 0.5},
		{`{"rouge2": "a"}`, "a", 0},
		{`{"rouge1": "東京都"}`, "東京", 0.8},
		{`{"levenshtein": "kitten"}`, "sitting", 4.0 / 7},
		{`{"levenshtein": ["KITTEN", "Sitting"], "ignoreCase": true}`, "sitting", 1},
		{`{"levenshtein": "äöü"}`, "", 0},
		{`{"levenshtein": ["kitten", "x"], "maxDistance": 3}`, "sitting", 1},
		{`{"levenshtein": "kitten", "maxDistance": 2}`, "sitting", 0},
	} {
		output, err := json.Marshal(v.output)
		if err != nil {
			t.Fatal(err)
		}
		if got := one(t, v.check, string(output)); math.Abs(got.Score-v.score) > 1e-12 {
			t.Errorf("%s of %q: got %v, expected %v", v.check, v.output, got.Score, v.score)
		}
	}
}

// Checks of tools read the calls of the trace.
func TestChecksOfTools(t *testing.T) {
	spans := []string{
		evaltest.Span(`{"tool.name": "search", "input.value": "{\"query\": \"a lease\", \"limit\": 5}"}`),
		evaltest.Span(`{"tool.name": "read", "input.value": "{\"page\": 2}"}`),
		evaltest.Span(`{"tool.name": "search", "input.value": "{\"query\": \"a token\"}"}`),
		evaltest.Span(`{"tool.name": "answer"}`),
	}
	for check, want := range map[string]float64{
		`{"toolF1": ["search", "read", "answer"]}`:                                                                     1,
		`{"toolF1": ["answer", "answer!", "answer?", "answer.", "answer,", "answer:", "answer;"]}`:                     0.6,
		`{"toolF1": ["search", "delete"]}`:                                                                             0.4,
		`{"toolOrder": ["search", "search", "answer"]}`:                                                                1,
		`{"toolOrder": ["answer", "search"]}`:                                                                          0,
		`{"toolCall": {"name": "search", "min": 2, "max": 2}}`:                                                         1,
		`{"toolCall": {"name": "delete"}, "not": true}`:                                                                1,
		`{"toolCall": {"name": "delete", "max": 0}}`:                                                                   1,
		`{"toolCall": {"max": 3}}`:                                                                                     0,
		`{"toolCall": {"name": "search", "min": 2, "args": [{"path": "query", "contains": "lease"}]}}`:                 0,
		`{"toolCall": {"args": [{"path": "page", "number": 2}]}}`:                                                      1,
		`{"toolCall": {"args": [{"anyOf": [{"path": "page", "number": 3}, {"path": "limit", "number": 5}]}]}}`:         1,
		`{"toolCall": {"name": "search", "args": [{"path": "query", "regex": "^a"}, {"path": "limit", "number": 6}]}}`: 0,
	} {
		if got := one(t, check, "{}", spans...); got.Score != want {
			t.Errorf("%s: got %v, %s, expected %v", check, got.Score, got.Reason, want)
		}
	}
	if got := one(t, `{"toolOrder": ["search"]}`, "{}"); got.Reason != "expected calls in the order search, got no calls" {
		t.Errorf("got %q", got.Reason)
	}
}

// What nobody knows is no score, and not a score of 0.
func TestChecksOfWhatIsNotKnown(t *testing.T) {
	for check, want := range map[string]string{
		`{"maxLatency": "2s"}`: "maxLatency: the working time of the rollout is not known",
		`{"maxCost": 1}`:       "maxCost: the cost of the rollout is not known",
		`{"maxTokens": 1}`:     "maxTokens: the tokens of the rollout are not known",
		`{"maxTurns": 1}`:      "maxTurns: the calls of models are not known",
		`{"anyOf": [{"contains": "x"}, {"maxTurns": 1}]}`: "anyOf: maxTurns: the calls of models are not known",
		`{"contains": "{{expected}}"}`:                    "{{expected}}: the evaluation has no expectedOutput",
		`{"contains": "{{input.a}}"}`:                     "{{input.a}}: a is not there",
	} {
		if got, _ := look(t, "["+check+"]", `"y"`); got.Score != nil || !strings.HasPrefix(got.Error, want) {
			t.Errorf("%s: got %v, %q, expected no score and %q", check, evaltest.Deref(got.Score), got.Error, want)
		}
	}
}

// Weights and the threshold of the evaluator make its score; the checks of an evaluation are added.
func TestScoreOfChecks(t *testing.T) {
	for config, want := range map[string]float64{
		`{"checks": [{"contains": "a"}, {"contains": "b", "weight": 3}]}`:                   0.4,
		`{"checks": [{"contains": "a"}, {"contains": "b", "weight": 3}], "threshold": 0.4}`: 1,
		`{"checks": [{"contains": "a"}, {"contains": "b", "weight": 3}], "threshold": 0.5}`: 0,
		`{"checks": [{"contains": "b", "weight": 0}]}`:                                      1,
		`{}`: 1,
	} {
		result := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition(eval.TypeChecks, config),
			`{"checks": [{"equals": "a"}]}`, `"a"`))
		if math.Abs(*result.Score-want) > 1e-12 {
			t.Errorf("%s: got %v, expected %v", config, *result.Score, want)
		}
	}
	for config, criteria := range map[string]string{
		`{}`: `null`, `{"checks": [{"contains": "b", "weight": 0}]}`: `{}`, `{"path": "a"}`: `{"checks": [{"regex": "("}]}`,
		`{"threshold": 1}`: `{"checks": "x"}`,
	} {
		result := evaltest.Evaluate(t, evaltest.Definition(eval.TypeChecks, config), criteria, `"a"`)[0]
		if result.Score != nil || result.Error == "" {
			t.Errorf("%s with %s: got %v, expected an error and no score", config, criteria, evaltest.Deref(result.Score))
		}
	}
}

// A set says at its line what is wrong with a check.
func TestWrongChecks(t *testing.T) {
	for check, want := range map[string]string{
		`{}`:                                        "expected a check, one of contains, ",
		`{"contain": "x"}`:                          `did you mean "contains"?`,
		`{"contains": "x", "regex": "y"}`:           "expected one check in each object, got contains and regex",
		`{"contains": ""}`:                          "expected a text that is not empty",
		`{"contains": null}`:                        "expected the value of contains, got null",
		`{"contains": ["x"]}`:                       "expected a text, got an array",
		`{"regex": "(?=x)"}`:                        "without look-ahead, look-behind and back-references",
		`{"regex": "x{9999}"}`:                      "invalid repeat count",
		`{"contains": "x", "tolerance": 1}`:         "contains has no tolerance",
		`{"maxTurns": 1, "path": "a"}`:              "maxTurns has no path; it does not look at the output",
		`{"equals": 1, "ignoreCase": true}`:         "only a text is compared with ignoreCase, got a number",
		`{"equals": 1, "path": "a..b"}`:             "expected a path such as",
		`{"equals": 1, "path": "a", "jq": ".a"}`:    "expected either path or jq, got both",
		`{"equals": 1, "jq": ".["}`:                 "unexpected EOF",
		`{"equals": "a", "transform": "tirm"}`:      `did you mean "trim"?`,
		`{"isJson": {"$ref": "#"}}`:                 "expected #/$defs/NAME or #/definitions/NAME",
		`{"isJson": {"type": "strin"}}`:             "expected a JSON schema",
		`{"isJson": false}`:                         "expected true or a JSON schema, got false",
		`{"number": "many"}`:                        "expected a number",
		`{"number": 1, "tolerance": -1}`:            "expected a number from 0",
		`{"choice": "E"}`:                           "expected one of the letters ABCD",
		`{"words": {}}`:                             "or one of both",
		`{"words": {"min": 3, "max": 2}}`:           "min is more than max",
		`{"words": {"mni": 3}}`:                     "unknown key; expected one of min, max",
		`{"toolCall": {"args": [{"maxCost": 1}]}}`:  "maxCost does not look at arguments",
		`{"atLeast": 3, "of": [{"contains": "a"}]}`: "expected at most 1",
		`{"atLeast": 1}`:                            "missing; expected an array",
		`{"anyOf": []}`:                             "expected at least one check",
		`{"maxLatency": "soon"}`:                    "expected a duration",
		`{"isJson": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b/items"}, "b": {"items": {"$ref": "#/$defs/a"}}}}}`: "refers to itself",
		`{"isJson": {"$ref": "#/$defs/%61", "$defs": {"a": {"$ref": "#/$defs/%61"}}}}`:                                          "expected #/$defs/NAME",
		`{"isJson": {"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"$ref": "#/$defs/a~1b"}}}}`:                                      "expected #/$defs/NAME",
		`{"isJson": {"$REF": "#/$defs/a", "$defs": {"a": {"$Ref": "#/$defs/a"}}}}`:                                              `there is no keyword "$REF"; did you mean "$ref"?`,
		`{"isJson": {"$ref": "#/$defs/a", "$defs": {"a": {"dependentSchemas": {"default": {"$ref": "#/$defs/a"}}}}}}`:           "refers to itself",
		`{"isJson": {"properties": {"a": {"$id": "x", "$defs": {"n": {"$ref": "#/$defs/n"}}, "$ref": "#/$defs/n"}}}}`:           "only the whole schema may have $id",
		doubling(20): "lead to more than 10000 schemas",
		strings.Repeat(`{"anyOf": [`, 12) + `{"contains": "a"}` + strings.Repeat(`]}`, 12): "at most 10 deep",
	} {
		set := `{"version": "1.0", "id": "s", "name": "S", "evaluations": [
			{"id": "1", "name": "one", "inputs": {}, "checks": [` + check + `]}]}`
		_, problems, err := evalset.Parse("set.json", []byte(set), nil)
		if !strings.Contains(fmt.Sprint(problems), want) || !strings.Contains(fmt.Sprint(problems), "set.json:2:") {
			t.Errorf("%s: got %v, expected %q", check, problems, want)
		} else if warned := strings.Contains(check, `"contain"`); err == nil && !warned {
			t.Errorf("%s: the set is taken", check)
		}
	}
}

// The key checks of an evaluation uses the set's evaluator of this type, or adds one.
func TestChecksOfAnEvaluation(t *testing.T) {
	parse := func(evaluators, evaluation string) (*eval.Set, string) {
		set, problems, _ := evalset.Parse("set.json", []byte(`{"version": "1.0", "id": "s", "name": "S", "evaluators": [`+
			evaluators+`], "thresholds": {"evaluators": {"checks": 1}}, "evaluations": [{"id": "1", "name": "one", "inputs": {"n": 7}, `+evaluation+`}]}`), nil)
		return set, problems.Error()
	}
	set, problems := parse("", `"expectedOutput": {"a": "x"}, "checks": [{"equals": "{{expected.a}}"}, {"contains": "{{input.n}}", "not": true}]`)
	if problems != "" || len(set.Evaluators) != 1 || set.Evaluators[0].ID != "checks" {
		t.Fatalf("got %+v, %s", set, problems)
	}
	e, err := kinds.All.New(set.Evaluators[0])
	if err != nil {
		t.Fatal(err)
	}
	results := e.Evaluate(t.Context(), eval.Subject{Evaluation: set.Evaluations[0], Output: json.RawMessage(`"x"`)}).Results
	evaltest.WantScore(t, evaltest.Only(t, results), 1)

	ours := `{"id": "checks", "type": "checks", "checks": [{"contains": "x"}]}`
	if set, problems = parse(ours, `"checks": [{"contains": "y"}]`); problems != "" || len(set.Evaluators) != 1 {
		t.Errorf("got %+v, %s", set, problems)
	}
	for want, in := range map[string][2]string{
		"is of another type": {`{"id": "checks", "type": "command", "command": ["true"]}`, `"checks": [{"contains": "y"}]`},
		"the set has several": {ours + `, {"id": "more", "type": "checks", "checks": [{"contains": "x"}]}`,
			`"checks": [{"contains": "y"}]`},
		"expected checks either here or under": {ours, `"checks": [{"contains": "y"}], "evaluationCriterias": {"checks": null}`},
	} {
		if _, problems = parse(in[0], in[1]); !strings.Contains(problems, want) {
			t.Errorf("got %s, expected %s", problems, want)
		}
	}
}

// A text in which nothing is filled in, though it looks so, is warned of once.
func TestTextsThatLookLikePlaces(t *testing.T) {
	for check, warns := range map[string]bool{
		`{"contains": "Dear {{input.name}}", "not": true}`:          true,
		`{"contains": "{{inputs.name}}"}`:                           true,
		`{"anyOf": [{"containsAny": ["a", "{{expectedOutput}}"]}]}`: true,
		`{"contains": "{{ expected.city }}"}`:                       false,
		`{"contains": "{{name}}"}`:                                  false,
	} {
		_, problems, err := evalset.Parse("set.json", []byte(`{"version": "1.0", "id": "s", "name": "S", "evaluations": [
			{"id": "1", "name": "one", "inputs": {}, "checks": [`+check+`]}]}`), nil)
		n := strings.Count(fmt.Sprint(problems), "warning: evaluations[0].checks[0]")
		if err != nil || n > 1 || (n == 1) != warns {
			t.Errorf("%s: %v, %v", check, problems, err)
		}
	}
}

// doubling makes a schema of which each definition refers to the next one twice.
func doubling(definitions int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"isJson": {"$ref": "#/$defs/0", "$defs": {"%d": {}`, definitions)
	for i := range definitions {
		fmt.Fprintf(&b, `, "%d": {"allOf": [{"$ref": "#/$defs/%d"}, {"$ref": "#/$defs/%d"}]}`, i, i+1, i+1)
	}
	return b.String() + `}}}`
}

// A schema may name its properties like keywords, have an id, and name a definition several times.
func TestSchemaWithNamesLikeKeywords(t *testing.T) {
	check := `{"isJson": {"$id": "https://example.com/s", "$defs": {"default": {"type": "string"}},
		"properties": {"$ref": {"$ref": "#/$defs/default"}, "$id": {"$ref": "#/$defs/default"}, "Type": {"const": 1},
		"enum": {"$ref": "#/$defs/default"}}}}`
	if got := one(t, check, `{"$ref": "a", "$id": "b", "Type": 1, "enum": "c"}`); !got.Passed {
		t.Errorf("%+v", got)
	}
	if got := one(t, check, `{"enum": 1}`); got.Passed {
		t.Errorf("%+v", got)
	}
	var chain strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&chain, `"%d": {"$ref": "#/$defs/%d"}, `, i, i+1)
	}
	check = `{"isJson": {"$ref": "#/$defs/0", "$defs": {` + chain.String() + `"1000": {"type": "string"}}}}`
	if got := one(t, check, `1`); got.Passed {
		t.Errorf("a chain of references: %+v", got)
	}
}
