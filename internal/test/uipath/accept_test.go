package uipath

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/evalrun/evalrun/eval/evalset"
)

// form is a file in a form that one of the programs may refuse. Where they do not agree, difference
// is the id of the row of docs/compatibility.md.
type form struct {
	name       string
	difference string
	evaluator  object
	set        string
	evaluators list
}

func forms() []form {
	var out []form
	add := func(difference, name string, evaluator object) {
		out = append(out, form{name: name, difference: difference, evaluator: evaluator})
	}
	// one is the difference if the value is one of those, and none otherwise.
	one := func(difference string, value any, of ...any) string {
		if slices.Contains(of, any(text(value))) {
			return difference
		}
		return ""
	}
	current := object{{"version", "1.0"}, {"id", "e"}, {"evaluatorTypeId", exactMatch}, {"evaluatorConfig", object{{"name", "e"}}}}
	with := func(kind string, config ...member) object {
		return current.with("evaluatorTypeId", kind).with("evaluatorConfig", append(object{{"name", "e"}}, config...))
	}
	add("", "plain", current)
	add("", "without id", current[:1].with("evaluatorTypeId", exactMatch).with("evaluatorConfig", object{{"name", "e"}}))
	add("", "without type", current.without("evaluatorTypeId"))
	add("missing-or-null", "without configuration", current.without("evaluatorConfig"))
	add("version-missing", "without version", current.without("version"))
	add("missing-or-null", "configuration null", current.with("evaluatorConfig", nil))
	add("", "configuration empty", current.with("evaluatorConfig", object{}))
	add("", "unknown type", current.with("evaluatorTypeId", "uipath-foo"))
	add("missing-or-null", "description null", current.with("description", nil))
	add("missing-or-null", "name null", current.with("name", nil))
	add("", "id a number", current.with("id", 5))
	add("empty-values", "id empty", current.with("id", ""))
	for _, judge := range []string{"output", "trajectory", "output-semantic-similarity", "trajectory-similarity", "trajectory-simulation", "output-strict-json-similarity"} {
		add("", "judge "+judge, with("uipath-llm-judge-"+judge))
		add("", "judge with a model "+judge, with("uipath-llm-judge-"+judge, member{"model", "gpt-4o"}, member{"prompt", "{{ActualOutput}}"}))
	}
	for _, v := range []any{true, "true", "yes", 1, 0, 2, nil, "x"} {
		null := one("missing-or-null", v, "null")
		add(null, "caseSensitive "+text(v), with(exactMatch, member{"caseSensitive", v}))
		add(null, "strict "+text(v), with(toolCall+"order", member{"strict", v}))
	}
	for _, v := range []any{"", list{}, 5, nil, list{"a", 5}, list{""}, list{"a", ""}} {
		add(cmp.Or(one("missing-or-null", v, "null"), one("empty-values", v, `""`, `[""]`, `["a",""]`)), "targetOutputKey "+text(v), with(exactMatch, member{"targetOutputKey", v}))
	}
	lines := member{"lineByLineEvaluator", true}
	for _, v := range []any{"", nil, 5} {
		add(cmp.Or(one("missing-or-null", v, "null"), one("empty-values", v, `""`)), "lineDelimiter "+text(v), with(exactMatch, lines, member{"lineDelimiter", v}))
	}
	class := member{"positiveClass", "a"}
	add("", "binary without a class", with(binary))
	for _, v := range []any{"", " ", 1} {
		add(one("empty-values", v, `""`), "positiveClass "+text(v), with(binary, member{"positiveClass", v}))
	}
	for _, v := range []any{"accuracy", "fscore", "f-score"} {
		add("", "metricType "+text(v), with(binary, class, member{"metricType", v}))
	}
	for _, v := range []any{0, -1, 1001, "2"} {
		add(one("f-value", v, "-1", "1001", `"2"`), "binary fValue "+text(v), with(binary, class, member{"fValue", v}))
	}
	add("classification-by-line", "binary line by line", with(binary, class, lines))
	add("", "binary with several keys", with(binary, class, member{"targetOutputKey", list{"a"}}))
	two := member{"classes", list{"a", "b"}}
	add("", "multiclass without classes", with(multiclass))
	for _, v := range []list{{}, {"a"}, {"a", "A"}, {"a", " "}, {"a", "a"}} {
		add(one("empty-values", v, "[]"), "classes "+text(v), with(multiclass, member{"classes", v}))
	}
	add("", "averaging weighted", with(multiclass, two, member{"averaging", "weighted"}))
	add("", "multiclass fValue 0", with(multiclass, two, member{"fValue", 0}))
	single := member{"classes", list{"a"}}
	precision := object{{"type", "precision"}, {"averaging", "macro"}}
	aggregators := func(a ...any) member { return member{"aggregators", list(a)} }
	add("", "aggregators without classes", with(exactMatch, aggregators(precision)))
	add("", "aggregators, case sensitive", with(exactMatch, single, aggregators(precision), member{"caseSensitive", true}))
	add("", "aggregators, negated", with(exactMatch, single, aggregators(precision), member{"negated", true}))
	add("", "aggregators, line by line", with(exactMatch, single, aggregators(precision), lines))
	add("", "no aggregators", with(exactMatch, aggregators()))
	add("", "aggregator accuracy", with(exactMatch, single, aggregators(object{{"type", "accuracy"}})))
	add("missing-or-null", "aggregator without averaging", with(exactMatch, single, aggregators(object{{"type", "precision"}})))
	add("", "confusion matrix with averaging", with(exactMatch, single, aggregators(object{{"type", "confusion_matrix"}, {"averaging", "macro"}})))
	for _, v := range []any{0, 1000, 1001} {
		add("", "aggregator fValue "+text(v), with(exactMatch, single, aggregators(object{{"type", "fscore"}, {"averaging", "macro"}, {"fValue", v}})))
	}
	add("", "precision with fValue", with(exactMatch, single, aggregators(precision.with("fValue", 2))))
	add("", "aggregator with an unknown key", with(exactMatch, single, aggregators(precision.with("zz", 2))))
	add("", "a padded class", with(exactMatch, member{"classes", list{"a "}}, aggregators(precision)))
	add("", "aggregators with several keys", with(exactMatch, single, aggregators(precision), member{"targetOutputKey", list{"a", "b"}}))
	defaults := func(v any) member { return member{"defaultEvaluationCriteria", v} }
	add("default-criteria", "default without expectedOutput", with(exactMatch, defaults(object{{"foo", 1}})))
	add("", "default a list", with(exactMatch, defaults(list{1})))
	add("", "default a string", with(exactMatch, defaults(object{{"expectedOutput", "x"}})))
	add("default-criteria", "default count without comparator", with(toolCall+"count", defaults(object{{"toolCallsCount", object{{"a", 1}}}})))
	add("default-criteria", "default search text a number", with(contains, defaults(object{{"searchText", 5}})))
	add("", "an unknown key", with(exactMatch, member{"foo", 1}))
	add("custom-evaluator", "a class that does not exist", current.without("evaluatorTypeId").with("evaluatorSchema", "file://x.py:X"))
	add("", "a class without a file", current.with("evaluatorSchema", "file://x.py"))
	legacy := object{{"fileName", "e.json"}, {"id", "e"}, {"name", "e"}, {"description", "d"}, {"category", 0}, {"type", 1}, {"targetOutputKey", "*"},
		{"createdAt", "2025-06-26T17:45:39.651Z"}, {"updatedAt", "2025-06-26T17:45:39.651Z"}, {"prompt", "{{ActualOutput}} {{AgentRunHistory}} {{ExpectedAgentBehavior}}"}, {"model", "gpt-4o"}, {"targetSubOutputKey", "a"}}
	for category := -1; category < 5; category++ {
		for kind := -1; kind < 12; kind++ {
			add(judged(category, kind), fmt.Sprintf("legacy category %d type %d", category, kind), legacy.with("category", category).with("type", kind))
		}
	}
	for _, m := range legacy[:9] {
		add(one("legacy-dates", m.key, `"createdAt"`, `"updatedAt"`), "legacy without "+m.key, legacy.without(m.key))
	}
	add("", "legacy with a date that is none", legacy.with("createdAt", "x"))
	add("missing-or-null", "legacy key null", legacy.with("targetOutputKey", nil))
	add("", "legacy key empty", legacy.with("targetOutputKey", ""))
	add("", "legacy type a name", legacy.with("type", "Equals"))
	add("", "legacy type a string", legacy.with("type", "1"))
	add("", "CSV without columns", legacy.with("type", 10).without("targetSubOutputKey"))
	add("empty-values", "CSV with blank columns", legacy.with("type", 10).with("targetSubOutputKey", " , "))
	add("", "legacy judge without a prompt", legacy.with("category", 1).with("type", 5).without("prompt"))
	add("judges-unchecked", "legacy judge without a model", legacy.with("category", 1).with("type", 5).without("model"))
	add("judges-unchecked", "legacy judge with the agent's model", legacy.with("category", 1).with("type", 5).with("model", "same-as-agent"))
	add("", "legacy lineDelimiter empty", legacy.with("lineByLineEvaluation", true).with("lineDelimiter", ""))

	addSet := func(difference, name, set string, evaluators ...any) {
		out = append(out, form{name: name, difference: difference, set: set, evaluators: append(list{}, evaluators...)})
	}
	item := object{{"id", "1"}, {"name", "one"}, {"inputs", object{}}, {"evaluationCriterias", object{{"e", object{{"expectedOutput", object{}}}}}}}
	set := object{{"version", "1.0"}, {"id", "s"}, {"name", "s"}, {"evaluatorRefs", list{"e"}}, {"evaluations", list{item}}}
	addSet("", "set", text(set), current)
	for _, v := range []any{json.Number("1.0"), "2.0", "1", nil, "x", "0.5"} {
		addSet(one("version-missing", v, "null"), "set version "+text(v), text(set.with("version", v)), current)
	}
	addSet("version-missing", "set without version", text(set.without("version")), current)
	addSet("", "set without id", text(set.without("id")), current)
	addSet("", "set without name", text(set.without("name")), current)
	addSet("evaluations-missing", "set without evaluations", text(set.without("evaluations")), current)
	addSet("", "set with no evaluation", text(set.with("evaluations", list{})), current)
	addSet("", "set without references", text(set.without("evaluatorRefs")), current)
	addSet("", "set with an evaluator that is not there", text(set.with("evaluatorRefs", list{"e", "ghost"})), current)
	addSet("byte-order-mark", "set with a byte order mark", "\ufeff"+text(set), current)
	addSet("nan-in-files", "set with NaN", strings.Replace(text(set), `"inputs":{}`, `"inputs":{"a":NaN}`, 1), current)
	addSet("", "set that is no object", "[]", current)
	addSet("duplicate-ids", "two evaluations with one id", text(set.with("evaluations", list{item, item.with("name", "two")})), current)
	addSet("", "two evaluations with one name", text(set.with("evaluations", list{item, item.with("id", "2")})), current)
	addSet("duplicate-ids", "two evaluators with one id", text(set), current, current.with("name", "two"))
	for _, key := range []string{"id", "name", "inputs", "evaluationCriterias"} {
		addSet("", "evaluation without "+key, text(set.with("evaluations", list{item.without(key)})), current)
	}
	addSet("", "evaluation whose id is a number", text(set.with("evaluations", list{item.with("id", 5)})), current)
	addSet("", "evaluation whose inputs are a list", text(set.with("evaluations", list{item.with("inputs", list{})})), current)
	addSet("", "evaluation whose criteria are a string", text(set.with("evaluations", list{item.with("evaluationCriterias", object{{"e", "x"}})})), current)
	addSet("", "evaluation with an expected output that is a list", text(set.with("evaluations", list{item.with("expectedOutput", list{})})), current)
	addSet("", "snake case", text(set.with("evaluations", list{item.without("evaluationCriterias").with("evaluation_criterias", object{})})), current)
	addSet("", "an unknown key in the set", text(set.with("zzz", 1)), current)
	addSet("", "weights", text(set.with("evaluatorConfigs", list{object{{"ref", "e"}, {"weight", 3}}, "e"})), current)
	addSet("", "a negative weight", text(set.with("evaluatorConfigs", list{object{{"ref", "e"}, {"weight", -1}}})), current)
	addSet("", "an evaluator that is not used and broken", text(set), current, object{{"id", "other"}})
	return out
}

// judged is the difference that a legacy evaluator of a category and type is in: evalrun
// does not look at the type of a judge.
func judged(category, kind int) string {
	if (category == 1 || category == 3) && (kind < 0 || kind > 10) {
		return "judges-unchecked"
	}
	return ""
}

func (o object) without(key string) object {
	var out object
	for _, m := range o {
		if m.key != key {
			out = append(out, m)
		}
	}
	return out
}

// TestAcceptance has both programs judge files in odd forms.
func TestAcceptance(t *testing.T) {
	python(t)
	cases := forms()
	var described list
	for _, f := range cases {
		if f.set == "" {
			described = append(described, object{{"evaluator", f.evaluator}})
		} else {
			described = append(described, object{{"set", f.set}, {"evaluators", f.evaluators}})
		}
	}
	path := filepath.Join(t.TempDir(), "forms.json")
	if err := os.WriteFile(path, []byte(text(described)), 0o600); err != nil {
		t.Fatal(err)
	}
	var theirs []*string
	reference(t, &theirs, "accept", path)
	for i, f := range cases {
		ours := f.refusal()
		agree := (theirs[i] == nil) == (ours == nil)
		their := "accepts it"
		if theirs[i] != nil {
			their = "refuses it: " + *theirs[i]
		}
		switch {
		case !agree && f.difference == "":
			t.Errorf("%s: UiPath %s\n%s\nevalrun: %v", f.name, their, text(described[i]), ours)
		case agree && f.difference != "":
			t.Errorf("%s: no longer the difference %s; UiPath %s, evalrun: %v", f.name, f.difference, their, ours)
		}
	}
}

// refusal is evalrun's.
func (f form) refusal() error {
	if f.set == "" {
		_, _, err := evalset.ParseEvaluator("e.json", []byte(text(f.evaluator)))
		return err
	}
	files := fstest.MapFS{}
	for i, e := range f.evaluators {
		files[fmt.Sprintf("%d.json", i)] = &fstest.MapFile{Data: []byte(text(e))}
	}
	_, _, err := evalset.Parse("evaluations/eval-sets/set.json", []byte(f.set), files)
	return err
}
