package evalset_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Every eval set of UiPath's samples loads.
func TestLoadUiPathSamples(t *testing.T) {
	uipathData := testenv.DataDir(t, "uipath")
	files, err := filepath.Glob(uipathData + "/*/evaluations/eval-sets/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples in %s: %v", uipathData, err)
	}
	for _, file := range files {
		t.Run(strings.TrimPrefix(file, uipathData+"/"), func(t *testing.T) {
			set, problems, err := evalset.Load(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				if !p.Warning {
					t.Error(p)
				}
			}
			for _, def := range set.Evaluators {
				if _, err := kinds.All.New(def); err != nil {
					t.Error(err)
				}
			}
			roundTrips(t, set)
		})
	}
}

// roundTrips asserts that a stored set is the set that was stored.
func roundTrips(t *testing.T, set *eval.Set) {
	t.Helper()
	stored, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	var back eval.Set
	if err := json.Unmarshal(stored, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if string(again) != string(stored) {
		t.Errorf("stored and read back\n got %s\nwant %s", again, stored)
	}
}

func loadSample(t *testing.T, name string) *eval.Set {
	t.Helper()
	set, _, err := evalset.Load(filepath.Join(testenv.DataDir(t, "uipath"), name))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestLoadCurrentSample(t *testing.T) {
	set := loadSample(t, "calculator/evaluations/eval-sets/default.json")
	if set.ID != "NewSchemaSampleEval" || set.Name != "New Schema Sample Evaluation" || len(set.Evaluations) != 4 {
		t.Errorf("%s, %s, %d evaluations", set.ID, set.Name, len(set.Evaluations))
	}
	// In the order of the files' names, not of the references.
	want := []string{"ContainsEvaluator", "CorrectOperatorEvaluator", "ExactMatchEvaluator", "JsonSimilarityEvaluator", "LLMJudgeHaiku45",
		"LLMJudgeOutputEvaluator", "LLMJudgeSonnet45", "LLMJudgeStrictJSONSimilarityOutputEvaluator", "TrajectoryEvaluator"}
	if got := set.EvaluatorIDs(); !slices.Equal(got, want) {
		t.Errorf("evaluators %v, want %v", got, want)
	}
	for _, def := range set.Evaluators {
		if def.NotRun != "" {
			t.Errorf("%s: not run: %q", def.ID, def.NotRun)
		}
	}
	if first := set.Evaluations[0]; first.NotRunnable != "" || set.MockedFunctions[first.ID] == nil {
		t.Errorf("not runnable: %q, or nothing is played: %v", first.NotRunnable, set.MockedFunctions)
	}
	if got := set.Evaluations[1]; got.NotRunnable != "" || string(got.Criteria["ContainsEvaluator"]) != "null" || len(got.Criteria) != 9 {
		t.Errorf("evaluation 2: %+v", got)
	}
	if len(set.Evaluations[3].Criteria) != 0 {
		t.Errorf("evaluation 4 has criteria %v", set.Evaluations[3].Criteria)
	}
}

func TestLoadLegacySample(t *testing.T) {
	set := loadSample(t, "calculator/evaluations/eval-sets/legacy.json")
	want := []string{"legacy-equals", "legacy-equals", "legacy-json-similarity", "legacy-trajectory", "legacy-trajectory", "legacy-trajectory", "legacy-trajectory"}
	for i, def := range set.Evaluators {
		if def.Type != want[i] {
			t.Errorf("%s has the type %s, want %s", def.ID, def.Type, want[i])
		}
	}
	if got := string(set.Evaluations[0].Criteria["equality"]); got != `{"expectedOutput":{"result":2.0},"expectedAgentBehavior":"The operation should produce the right output."}` {
		t.Errorf("criteria %s", got)
	}
	if len(set.Evaluations[0].Criteria) != 7 {
		t.Errorf("%d criteria, want one for each of 7 evaluators", len(set.Evaluations[0].Criteria))
	}
	for i, want := range []string{"", "simulateTools: a model in UiPath's cloud plays it, which evalrun does not call; a mockingStrategy of type mockito holds its answers", "simulateInput: a model in UiPath's cloud writes it, which evalrun does not call"} {
		if got := set.Evaluations[i].NotRunnable; got != want {
			t.Errorf("evaluation %d: not runnable: %q, want %q", i, got, want)
		}
	}
}

func TestSuspendSampleNamesAnEvaluatorLikeItsType(t *testing.T) {
	set := loadSample(t, "tool-calling-suspend-resume/evaluations/eval-sets/test_simple_no_auth.json")
	def := set.Evaluators[0]
	if def.ID != "uipath-contains" || def.Name != "Resume Output Contains Evaluator" {
		t.Errorf("%+v: the name beside the configuration wins over the one in it", def)
	}
}
