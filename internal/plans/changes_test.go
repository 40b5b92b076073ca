package plans

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	_ "github.com/evalrun/evalrun/internal/agent/types"
	"github.com/evalrun/evalrun/internal/store"
)

func digestPlan(t *testing.T, change func(*eval.Set)) store.Plan {
	t.Helper()
	set := eval.Set{
		ID: "s", Name: "S", Path: "set.yaml", Epochs: 2, Reduce: eval.ReduceMean, Thresholds: eval.Thresholds{Score: &eval.Threshold{Min: 0.5}, Pass: 1},
		Evaluators: []eval.Definition{{ID: "e", Type: "uipath-exact-match", Weight: 1}},
		Evaluations: []eval.Evaluation{{ID: "a", Inputs: json.RawMessage(`{"n": 1}`), Criteria: map[string]json.RawMessage{"e": json.RawMessage(`{}`)}},
			{ID: "b", Inputs: json.RawMessage(`{}`), Criteria: map[string]json.RawMessage{}}},
	}
	change(&set)
	plan, err := New(Request{RunID: "r", Set: &set, Agents: []agent.Entry{{Name: "x", Type: function.Name, Settings: &function.Settings{}, Command: []string{"true"}}},
		BaseDir: t.TempDir(), WorkDir: t.TempDir()}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func digestOf(t *testing.T, p store.Plan) string {
	t.Helper()
	plan, err := Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Digest
}

// A plan differs from another only where a person would say so: not by where its files lie or
// how its JSON is laid out.
func TestPlanChanges(t *testing.T) {
	before := digestPlan(t, func(*eval.Set) {})
	for name, v := range map[string]struct {
		change func(*eval.Set)
		want   []string
	}{
		"nothing": {func(*eval.Set) {}, nil},
		"path and layout": {func(s *eval.Set) {
			s.Path, s.Digest, s.Evaluations[0].Inputs = "x/set.yaml", "sha256:1", json.RawMessage(`{"n":1}`)
		}, nil},
		"an input":          {func(s *eval.Set) { s.Evaluations[0].Inputs = json.RawMessage(`{"n": 2}`) }, []string{"evaluation a (inputs)"}},
		"one less, one new": {func(s *eval.Set) { s.Evaluations[1].ID = "c" }, []string{"evaluation b is gone", "evaluation c is new"}},
		"a threshold":       {func(s *eval.Set) { s.Thresholds.Score = nil }, []string{"thresholds (score)"}},
		"epochs":            {func(s *eval.Set) { s.Epochs = 3 }, []string{"epochs"}},
		"an evaluator":      {func(s *eval.Set) { s.Evaluators[0].Weight = 2 }, []string{"evaluator e (weight)"}},
		"an owner":          {func(s *eval.Set) { s.Faults = map[string]string{"job": "agent"} }, []string{"faults"}},
	} {
		after := digestPlan(t, v.change)
		got, err := Changes(before, before.Evaluations, after)
		if err != nil || !slices.Equal(got, v.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, v.want)
		}
		if same := digestOf(t, before) == digestOf(t, after); same != (v.want == nil) {
			t.Errorf("%s: the digests are equal: %v", name, same)
		}
	}
}

// A plan that an earlier version has stored has no digest and no origin, and its evaluations have
// none of the newer keys.
func TestPlanOfAnEarlierVersion(t *testing.T) {
	plan := digestPlan(t, func(*eval.Set) {})
	old := plan
	var data map[string]json.RawMessage
	if err := json.Unmarshal(plan.Data, &data); err != nil {
		t.Fatal(err)
	}
	delete(data, "digest")
	delete(data, "origin")
	old.Data, _ = json.Marshal(data) // it came from JSON
	if strings.Contains(string(old.Data), "sha256") {
		t.Fatal("there is still a digest")
	}
	if got, err := Changes(old, old.Evaluations, plan); err != nil || got != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
