package uipath

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// results is the output of `uipath eval`, as both programs write it.
type results struct {
	EvaluationSetResults []struct {
		EvaluationName       string   `json:"evaluationName"`
		EvaluationRunResults []result `json:"evaluationRunResults"`
	} `json:"evaluationSetResults"`
	DatasetEvaluatorResults map[string]any `json:"datasetEvaluatorResults"`
}

type result struct {
	EvaluatorID string `json:"evaluatorId"`
	Result      struct {
		Score   float64 `json:"score"`
		Details any     `json:"details"`
	} `json:"result"`
	IsLineResult bool `json:"isLineResult"`
}

// TestScores has both programs score the same files: generated ones, and some that are always the
// same.
func TestScores(t *testing.T) {
	python(t)                                                                                    // or the test ends here
	seed, n := setting(t, "EVALRUN_UIPATH_SEED", 1), int(setting(t, "EVALRUN_UIPATH_CASES", 20)) //nolint:gosec // a small number
	t.Logf("EVALRUN_UIPATH_SEED=%d EVALRUN_UIPATH_CASES=%d", seed, n)
	g := newGenerator(seed)
	sets := map[string][]evaluation{
		"outputs": g.outputs(n), "lines": g.lines(n), "tables": g.tables(n), "classes": g.classes(n), "tools": g.tools(n), "floats": g.floats(1 + n/20),
		"criteria": criteriaCases(), "odd-calls": oddCalls(), "configurations": configured(), "characters": characters(),
	}
	p := newProject(t)
	for name, evaluations := range sets {
		for i := range evaluations {
			if evaluations[i].name == "" {
				evaluations[i].name = fmt.Sprintf("%s %d", name, i)
			}
		}
		p.set(t, name, evaluations)
	}
	sets["legacy"] = g.legacy(n)
	p.legacySet(t, "legacy", sets["legacy"])
	theirs, ours := p.score(t)
	met, count := accepted{}, 0
	for _, name := range slices.Sorted(maps.Keys(sets)) {
		count += compare(t, met, sets[name], theirs[name], ours[name])
		compareDatasets(t, theirs[name], ours[name])
	}
	t.Logf("%d scores; accepted differences: %v", count, met)
	for _, d := range differences {
		if met[d.id] == 0 {
			t.Errorf("the difference %s was not met: it is no longer one", d.id)
		}
	}
}

// score has both programs run every set of the project.
func (p *project) score(t *testing.T) (theirs, ours map[string]results) {
	t.Helper()
	out := t.TempDir()
	reference(t, nil, "score", p.dir, out)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "agent.json", object{{"type", "function"}, {"command", list{self, "agent"}}})
	theirs, ours = map[string]results{}, map[string]results{}
	for _, name := range p.sets {
		data, err := os.ReadFile(filepath.Join(out, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		theirs[name] = decode(t, data)
		document := name + "-results.json"
		evalrun(t, p.dir, []int{0, 3}, "run", filepath.Join("evaluations", "eval-sets", name+".json"), "--agent", "agent.json", "-o", document, "--quiet")
		ours[name] = decode(t, evalrun(t, p.dir, []int{0}, "report", document, "--format", "uipath"))
	}
	return theirs, ours
}

// thrown stands for all that an evaluator may say when it fails: the two programs say it in words
// of their own.
const thrown = "Exception thrown by evaluator: …"

func decode(t *testing.T, data []byte) results {
	t.Helper()
	var r results
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	for _, item := range r.EvaluationSetResults {
		for i := range item.EvaluationRunResults {
			details := &item.EvaluationRunResults[i].Result.Details
			*details = withoutWording(*details)
		}
	}
	return r
}

func withoutWording(v any) any {
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, "Exception thrown by evaluator: ") {
			return thrown
		}
	case []any:
		for i := range v {
			v[i] = withoutWording(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = withoutWording(v[key])
		}
	}
	return v
}

// compare reports what differs and is not accepted, and gives the number of scores that were
// compared.
func compare(t *testing.T, met accepted, evaluations []evaluation, theirs, ours results) (n int) {
	t.Helper()
	if len(theirs.EvaluationSetResults) != len(evaluations) || len(ours.EvaluationSetResults) != len(evaluations) {
		t.Errorf("%d evaluations, UiPath has %d and evalrun %d", len(evaluations), len(theirs.EvaluationSetResults), len(ours.EvaluationSetResults))
		return 0
	}
	for i, e := range evaluations {
		their, our := theirs.EvaluationSetResults[i], ours.EvaluationSetResults[i]
		if their.EvaluationName != e.name || our.EvaluationName != e.name {
			t.Errorf("evaluation %q is %q and %q", e.name, their.EvaluationName, our.EvaluationName)
			continue
		}
		lists, others := byEvaluator(their.EvaluationRunResults), byEvaluator(our.EvaluationRunResults)
		ids := slices.AppendSeq(slices.Collect(maps.Keys(lists)), maps.Keys(others))
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			for len(lists[id]) > 0 || len(others[id]) > 0 {
				c := comparison{evaluation: e, evaluator: evaluators[strings.Split(id, "_line_")[0]]}
				c.their, lists[id] = first(lists[id])
				c.ours, others[id] = first(others[id])
				n++
				if !c.same() && !met.accept(c) {
					t.Errorf("%s: %s\noutput   %s\nspans    %s\ncriteria %s\nUiPath   %s\nevalrun  %s", e.name, id, text(e.output), text(e.spans),
						text(e.criteria.get(strings.Split(id, "_line_")[0])), text(c.their), text(c.ours))
				}
			}
		}
	}
	return n
}

// same allows for sums in another order, which may differ in the last digit.
func (c comparison) same() bool {
	return c.their != nil && c.ours != nil && c.their.IsLineResult == c.ours.IsLineResult && almostEqual(c.their.Result.Score, c.ours.Result.Score) &&
		reflect.DeepEqual(c.their.Result.Details, c.ours.Result.Details)
}

func byEvaluator(list []result) map[string][]result {
	out := map[string][]result{}
	for _, r := range list {
		out[r.EvaluatorID] = append(out[r.EvaluatorID], r)
	}
	return out
}

func first(list []result) (*result, []result) {
	if len(list) == 0 {
		return nil, nil
	}
	return &list[0], list[1:]
}

// compareDatasets compares set-level results.
func compareDatasets(t *testing.T, theirs, ours results) {
	t.Helper()
	if !almostEqual(any(theirs.DatasetEvaluatorResults), any(ours.DatasetEvaluatorResults)) {
		t.Errorf("set-level results\nUiPath   %s\nevalrun  %s", text(theirs.DatasetEvaluatorResults), text(ours.DatasetEvaluatorResults))
	}
}

func almostEqual(a, b any) bool {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return ok && math.Abs(a-b) <= 1e-12*math.Max(1, math.Abs(a))
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, almostEqual)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, almostEqual)
	}
	return a == b
}
