package uipath

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// comparison is what the two programs say of one evaluation: result for result, nil where one says
// nothing.
type comparison struct {
	evaluation  evaluation
	evaluator   object
	their, ours *result
}

// differences are accepted in scores and details. Each id is that of a row of
// docs/compatibility.md.
var differences = []struct {
	id    string
	holds func(comparison) bool
}{
	{"aborted-evaluation", func(c comparison) bool {
		return c.evaluation.aborts && (c.their == nil || c.their.Result.Score == 0)
	}},
	{"crashed-agent", func(c comparison) bool {
		return c.evaluation.crash && c.their != nil && c.their.Result.Score == 0 && c.ours == nil
	}},
	{"lines-of-a-path", func(c comparison) bool {
		config, _ := c.evaluator.get("evaluatorConfig").(object)
		path, _ := config.get("targetOutputKey").(string)
		return byLine(c.evaluator) && strings.ContainsAny(path, ".[") && c.their != nil && c.their.Result.Score == 0 && c.ours != nil
	}},
	{"lines-of-an-object", func(c comparison) bool {
		criteria, _ := c.evaluation.criteria.get(id(c.evaluator)).(object)
		return byLine(c.evaluator) && (hasOwnKey(c.evaluation.output) || hasOwnKey(criteria.get("expectedOutput")))
	}},
	{"argument-keys", func(c comparison) bool {
		return isArgs(c.evaluator) && failed(c.their) && c.ours != nil && anyArguments(c.evaluation, regexp.MustCompile(`^\s*\{\s*[0-9]`))
	}},
	{"character-names", func(c comparison) bool {
		return isArgs(c.evaluator) && c.their != nil && c.ours != nil && anyArguments(c.evaluation, regexp.MustCompile(`\\N\{`))
	}},
}

func id(evaluator object) string {
	s, _ := evaluator.get("id").(string)
	return s
}

// byLine holds for evaluators that compare line by line, of both formats.
func byLine(evaluator object) bool {
	config, _ := evaluator.get("evaluatorConfig").(object)
	return config.get("lineByLineEvaluator") == true || evaluator.get("lineByLineEvaluation") == true
}

// hasOwnKey reports whether the result of an output is an object that has a result.
func hasOwnKey(output any) bool {
	var o struct {
		Result map[string]any
	}
	if json.Unmarshal([]byte(text(output)), &o) != nil {
		return false
	}
	_, has := o.Result["result"]
	return has
}

func isArgs(evaluator object) bool { return evaluator.get("evaluatorTypeId") == toolCall+"args" }

func failed(r *result) bool { return r != nil && r.Result.Details == thrown }

func anyArguments(e evaluation, form *regexp.Regexp) bool {
	return slices.ContainsFunc(e.spans, func(span any) bool {
		return form.MatchString(strings.ReplaceAll(inputValue(span), `\\`, `\`))
	})
}

func inputValue(span any) string {
	var s struct {
		Attributes struct {
			Input string `json:"input.value"`
		}
	}
	unmarshal(text(span), &s)
	return s.Attributes.Input
}

// accepted counts the differences that were met.
type accepted map[string]int

// accept reports whether a difference is in a row, and counts it.
func (a accepted) accept(c comparison) bool {
	for _, d := range differences {
		if d.holds(c) {
			a[d.id]++
			return true
		}
	}
	return false
}

// documented are the ids of the rows that docs/compatibility.md has of UiPath.
func documented(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("../../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(data), "\n## UiPath's eval runtime\n")
	if !found {
		t.Fatal("docs/compatibility.md has no section on UiPath's eval runtime")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var ids []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\|").FindAllStringSubmatch(section, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// Every row that this package accepts is in the document, and every row of its section on UiPath is
// accepted here.
func TestDifferencesAreDocumented(t *testing.T) {
	var known []string
	for _, d := range differences {
		known = append(known, d.id)
	}
	for _, f := range forms() {
		if f.difference != "" {
			known = append(known, f.difference)
		}
	}
	ids := documented(t)
	slices.Sort(known)
	for _, id := range slices.Compact(known) {
		if !slices.Contains(ids, id) {
			t.Errorf("docs/compatibility.md has no row `%s`", id)
		}
	}
	for _, id := range ids {
		if !slices.Contains(known, id) {
			t.Errorf("docs/compatibility.md has the row `%s`, which is accepted nowhere", id)
		}
	}
}

func unmarshal(s string, into any) {
	if err := json.Unmarshal([]byte(s), into); err != nil {
		panic(err)
	}
}
