package uipath

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// evaluators are all that the generated sets use, by id.
var evaluators = map[string]object{}

func evaluator(id, kind string, config ...member) {
	evaluators[id] = object{{"version", "1.0"}, {"id", id}, {"name", id}, {"description", "d"}, {"evaluatorTypeId", kind},
		{"evaluatorConfig", append(object{{"name", id}}, config...)}}
}

func legacyEvaluator(id string, kind int, config ...member) {
	o := object{{"fileName", id + ".json"}, {"id", id}, {"name", id}, {"description", "d"}, {"category", 0}, {"type", kind}, {"targetOutputKey", "*"},
		{"createdAt", "2025-06-26T17:45:39.651Z"}, {"updatedAt", "2025-06-26T17:45:39.651Z"}}
	for _, m := range config {
		o = o.with(m.key, m.value)
	}
	evaluators[id] = o
}

const (
	exactMatch = "uipath-exact-match"
	contains   = "uipath-contains"
	similarity = "uipath-json-similarity"
	binary     = "uipath-binary-classification"
	multiclass = "uipath-multiclass-classification"
	toolCall   = "uipath-tool-call-"
)

func init() {
	key, deep, several := member{"targetOutputKey", "result"}, member{"targetOutputKey", "a.b[0].c"}, member{"targetOutputKey", list{"result", "a.b"}}
	byLine, byBar := member{"lineByLineEvaluator", true}, member{"lineDelimiter", "|"}
	cased, negated, strict := member{"caseSensitive", true}, member{"negated", true}, member{"strict", true}

	evaluator("exact", exactMatch)
	evaluator("exact-cased", exactMatch, cased)
	evaluator("exact-negated", exactMatch, negated)
	evaluator("exact-key", exactMatch, key)
	evaluator("exact-key-cased", exactMatch, key, cased)
	evaluator("exact-deep", exactMatch, deep)
	evaluator("exact-several", exactMatch, several)
	evaluator("similar", similarity)
	evaluator("similar-key", similarity, key)
	evaluator("similar-deep", similarity, deep)
	evaluator("similar-several", similarity, several)
	evaluator("contains", contains)
	evaluator("contains-cased", contains, cased)
	evaluator("contains-negated", contains, negated)
	evaluator("contains-key", contains, key)
	evaluator("contains-deep", contains, deep)
	evaluator("contains-several", contains, several)
	legacyEvaluator("legacy-equal", 1)
	legacyEvaluator("legacy-equal-key", 1, key)
	legacyEvaluator("legacy-equal-deep", 1, deep)
	legacyEvaluator("legacy-similar", 6)
	legacyEvaluator("legacy-similar-key", 6, key)
	legacyEvaluator("legacy-similar-deep", 6, deep)

	evaluator("lines", exactMatch, key, byLine)
	evaluator("lines-whole", exactMatch, byLine)
	evaluator("lines-bar", exactMatch, key, byLine, byBar)
	evaluator("lines-negated", exactMatch, key, byLine, negated)
	evaluator("lines-several", exactMatch, several, byLine)
	evaluator("lines-similar", similarity, key, byLine)
	evaluator("lines-contains", contains, key, byLine)
	legacyEvaluator("legacy-lines", 1, key, member{"lineByLineEvaluation", true})
	legacyEvaluator("legacy-lines-similar", 6, key, member{"lineByLineEvaluation", true})
	evaluator("lines-deep", exactMatch, deep, byLine)

	legacyEvaluator("csv", 10, key, member{"targetSubOutputKey", "name"})
	legacyEvaluator("csv-two", 10, key, member{"targetSubOutputKey", " Name ,age"})
	legacyEvaluator("csv-lines", 10, key, member{"targetSubOutputKey", "name"}, member{"lineByLineEvaluation", true})

	classes := member{"classes", list{"Yes", "no", "Ünknown"}}
	evaluator("binary", binary, key, member{"positiveClass", "Yes"}, member{"metricType", "f-score"}, member{"fValue", 2.0})
	evaluator("multiclass", multiclass, key, classes, member{"metricType", "f-score"}, member{"averaging", "macro"})
	evaluator("multiclass-micro", multiclass, key, classes, member{"metricType", "precision"}, member{"averaging", "micro"})
	var all list
	for _, kind := range []string{"precision", "recall", "fscore"} {
		for _, averaging := range []string{"macro", "micro"} {
			all = append(all, object{{"type", kind}, {"averaging", averaging}})
		}
	}
	all = append(all, object{{"type", "fscore"}, {"averaging", "macro"}, {"fValue", 2}}, object{{"type", "fscore"}, {"averaging", "micro"}, {"fValue", 0.5}}, object{{"type", "confusion_matrix"}})
	evaluator("classes", exactMatch, key, member{"classes", list{"Yes", "no", "maybe"}}, member{"aggregators", all})
	evaluator("classes-one", exactMatch, key, member{"classes", list{"a", "Yes"}}, member{"aggregators", list{object{{"type", "fscore"}, {"averaging", "micro"}}}})

	for _, kind := range []string{"order", "count", "args", "output"} {
		evaluator(kind, toolCall+kind)
		evaluator(kind+"-strict", toolCall+kind, strict)
	}
	evaluator("args-subset", toolCall+"args", member{"subset", true})
}

// project is a folder as UiPath lays it out.
type project struct {
	dir  string
	sets []string
}

func newProject(t *testing.T) *project {
	t.Helper()
	p := &project{dir: t.TempDir()}
	for id, e := range evaluators {
		p.write(t, filepath.Join("evaluations", "evaluators", id+".json"), e)
	}
	return p
}

func (p *project) write(t *testing.T, path string, v any) {
	t.Helper()
	path = filepath.Join(p.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text(v)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// set writes an eval set with the evaluators that its evaluations have criteria for.
func (p *project) set(t *testing.T, name string, evaluations []evaluation) {
	t.Helper()
	refs, items := map[string]bool{}, list{}
	for _, e := range evaluations {
		for _, m := range e.criteria {
			if _, ok := evaluators[m.key]; ok {
				refs[m.key] = true
			}
		}
		inputs := object{{"output", e.output}}
		if len(e.spans) > 0 {
			inputs = inputs.with("spans", e.spans)
		}
		if e.crash {
			inputs = inputs.with("crash", true)
		}
		item := object{{"id", e.name}, {"name", e.name}, {"inputs", inputs}, {"evaluationCriterias", e.criteria}}
		if e.expected != nil {
			item = item.with("expectedOutput", e.expected)
		}
		items = append(items, item)
	}
	p.write(t, filepath.Join("evaluations", "eval-sets", name+".json"), object{{"version", "1.0"}, {"id", name}, {"name", name},
		{"evaluatorRefs", slices.Sorted(maps.Keys(refs))}, {"evaluations", items}})
	p.sets = append(p.sets, name)
}

// legacySet writes an eval set of the legacy format: what is expected is the same for all its
// evaluators.
func (p *project) legacySet(t *testing.T, name string, evaluations []evaluation) {
	t.Helper()
	refs, items := list{}, list{}
	for _, m := range evaluations[0].criteria {
		refs = append(refs, m.key)
	}
	for i, e := range evaluations {
		evaluations[i].name = fmt.Sprintf("%s %d", name, i)
		items = append(items, object{{"id", evaluations[i].name}, {"name", evaluations[i].name}, {"inputs", object{{"output", e.output}}}, {"expectedOutput", e.expected},
			{"expectedAgentBehavior", ""}, {"evalSetId", name}, {"createdAt", "2025-09-04T18:54:58.378Z"}, {"updatedAt", "2025-09-04T18:55:55.416Z"}})
	}
	p.write(t, filepath.Join("evaluations", "eval-sets", name+".json"), object{{"fileName", name + ".json"}, {"id", name}, {"name", name}, {"batchSize", 10},
		{"evaluatorRefs", refs}, {"evaluations", items}, {"createdAt", "2025-09-04T18:54:58.378Z"}, {"updatedAt", "2025-09-04T18:55:55.416Z"}})
	p.sets = append(p.sets, name)
}

// evaluation is one item of a set, and what its agent does.
type evaluation struct {
	name     string
	output   any
	spans    list
	crash    bool
	criteria object
	expected any
	// aborts says that UiPath gives the whole evaluation up: every evaluator then has the score 0.
	aborts bool
}

// outputs are evaluations for the evaluators that compare outputs.
func (g generator) outputs(n int) []evaluation {
	var out []evaluation
	for range n {
		actual := g.output()
		var expected any = g.output()
		if g.chance(0.85) {
			expected = g.changed(actual, 0.25)
		}
		if g.chance(0.12) {
			expected = pick(g, text(expected), g.word(), literal(g, expected, false))
		}
		switch expected.(type) {
		case object, string:
		default:
			expected = object{{"result", expected}}
		}
		search := pick(g, g.word(), g.word(), literal(g, actual.get("result"), false), literal(g, actual, false))
		if s, ok := actual.get("result").(string); ok && g.chance(0.4) {
			search = s[:len(s)/2]
		}
		if g.chance(0.3) {
			search = strings.ToUpper(search)
		}
		e := evaluation{output: actual}
		for _, id := range []string{"exact", "exact-cased", "exact-negated", "exact-key", "exact-key-cased", "exact-deep", "exact-several", "similar", "similar-key",
			"similar-deep", "similar-several", "legacy-equal", "legacy-equal-key", "legacy-equal-deep", "legacy-similar", "legacy-similar-key", "legacy-similar-deep"} {
			criteria := object{{"expectedOutput", expected}}
			if strings.HasPrefix(id, "legacy") {
				criteria = criteria.with("expectedAgentBehavior", "")
			}
			e.criteria = append(e.criteria, member{id, criteria})
		}
		for _, id := range []string{"contains", "contains-cased", "contains-negated", "contains-key", "contains-deep", "contains-several"} {
			e.criteria = append(e.criteria, member{id, object{{"searchText", search}}})
		}
		out = append(out, e)
	}
	return out
}

// legacy are evaluations of a set of the legacy format, which may have evaluators of both formats.
func (g generator) legacy(n int) []evaluation {
	var out []evaluation
	for range 1 + n/5 {
		actual := g.output()
		expected, ok := g.changed(actual, 0.25).(object)
		if !ok {
			expected = g.output()
		}
		e := evaluation{output: actual, expected: expected}
		for _, id := range []string{"legacy-equal", "legacy-equal-deep", "legacy-similar-key", "similar", "exact-key"} {
			e.criteria = append(e.criteria, member{id, object{{"expectedOutput", expected}, {"expectedAgentBehavior", ""}}})
		}
		out = append(out, e)
	}
	return out
}

func (g generator) text() string {
	delimiter := pick(g, "\n", "\n", "\n", "|", "\r\n", "\n\n")
	var lines []string
	for range g.IntN(6) {
		lines = append(lines, pick(g, "a", "b", "Item: x", "", " ", "é", "ITEM: X", "1", "\t", "a b", "it's"))
	}
	return strings.Join(lines, delimiter) + pick(g, "", "", delimiter)
}

// lines are evaluations for what compares line by line.
func (g generator) lines(n int) []evaluation {
	var out []evaluation
	for range n {
		var actual any = g.text()
		if g.chance(0.1) {
			actual = g.value(1)
		}
		expected := actual
		if g.chance(0.6) {
			expected = pick[any](g, g.changed(actual, 1), g.text())
		}
		criteria := object{{"expectedOutput", object{{"result", expected}, {"a", object{{"b", list{object{{"c", expected}}}}}}}}}
		e := evaluation{output: object{{"result", actual}, {"a", object{{"b", list{object{{"c", actual}}}}}}}}
		for _, id := range []string{"lines", "lines-whole", "lines-bar", "lines-negated", "lines-several", "lines-similar", "lines-deep"} {
			e.criteria = append(e.criteria, member{id, criteria})
		}
		e.criteria = append(e.criteria, member{"lines-contains", object{{"searchText", pick(g, "a", "item", "é", "", "\n")}}},
			member{"legacy-lines", criteria.with("expectedAgentBehavior", "")}, member{"legacy-lines-similar", criteria.with("expectedAgentBehavior", "")})
		out = append(out, e)
	}
	return out
}

func (g generator) csv() string {
	var lines []string
	for range 1 + g.IntN(4) {
		var fields []string
		for range 1 + g.IntN(3) {
			fields = append(fields, pick(g, "name", "age", "Bob", "1", `"a,b"`, `"a ""b"""`, "", " x ", "é", "NAME"))
		}
		lines = append(lines, strings.Join(fields, ","))
	}
	if g.chance(0.7) {
		lines[0] = pick(g, "name,age", "age,Name", "x,NAME,age")
	}
	return strings.Join(lines, pick(g, "\n", "\n", "\r\n")) + pick(g, "", "\n")
}

func (g generator) tables(n int) []evaluation {
	var out []evaluation
	for range n {
		actual := g.csv()
		expected := actual
		if g.chance(0.6) {
			expected = g.csv()
		}
		criteria := object{{"expectedOutput", object{{"result", expected}}}, {"expectedAgentBehavior", ""}}
		out = append(out, evaluation{output: object{{"result", actual}}, criteria: object{{"csv", criteria}, {"csv-two", criteria}, {"csv-lines", criteria}},
			aborts: strings.TrimSpace(actual) == "" || strings.TrimSpace(expected) == ""})
	}
	return out
}

// classes are evaluations for classification.
func (g generator) classes(n int) []evaluation {
	labels := []string{"Yes", "yes", "no", "NO", "maybe", "Ünknown", "ÜNKNOWN", "Yes ", "", "other"}
	var out []evaluation
	for range n {
		expected := pick(g, labels[:7]...)
		if g.chance(0.1) {
			expected = pick(g, labels...)
		}
		var actual any = expected
		if g.chance(0.5) {
			actual = pick(g, labels...)
		}
		if g.chance(0.1) {
			actual = pick[any](g, true, json.Number("1"), nil, list{"Yes"}, object{{"x", json.Number("1")}})
		}
		criteria := object{{"expectedClass", expected}}
		e := evaluation{output: object{{"result", actual}}, criteria: object{{"binary", criteria}, {"multiclass", criteria}, {"multiclass-micro", criteria}}}
		for _, id := range []string{"classes", "classes-one"} {
			e.criteria = append(e.criteria, member{id, object{{"expectedOutput", object{{"result", expected}}}}})
		}
		out = append(out, e)
	}
	return out
}
