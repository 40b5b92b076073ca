package uipath

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// projectDir has small agents, mocks and custom evaluators; publishedDir has the eval sets of UiPath's own samples.
const (
	projectDir   = "../../../fixtures/uipath-project"
	publishedDir = "../../../../shared/data/uipath"
)

// runs are the eval sets that both programs run, with the agent of the project for each.
var runs = []struct {
	// sample is where the set comes from; the project itself if it is empty.
	sample, set, agent string
	// scores are how many are compared.
	scores int
	// long says that only the long form runs it.
	long bool
}{
	{"", "exchange", "exchange", 11, false},
	{"", "mails", "classifier", 3, false},
	{"calculator", "default", "calculator", 12, false},
	{"calculator", "eval-level-expected-output", "calculator", 12, true},
	{"calculator", "legacy", "calculator", 3, true},
	{"calculator", "crash-scenarios", "calculator", 0, true},
	{"weather_tools", "default", "weather", 18, false},
	{"classification_agent", "default", "classifier", 14, true},
}

// Given a project of UiPath with mocks and custom evaluators, and the eval sets of UiPath's own samples, when both
// programs run them on the same agents, then all scores and details are the same. What a model of UiPath's cloud
// would have to say is left out.
func TestProjects(t *testing.T) {
	interpreter, err := filepath.Abs(python(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(projectDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(filepath.Dir(interpreter)), filepath.Join(dir, ".venv")); err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		t.Run(run.set+" of "+run.agent, func(t *testing.T) {
			if run.long {
				testenv.NeedLong(t)
			}
			if run.sample != "" {
				copySample(t, dir, run.sample)
			}
			set := filepath.Join("evaluations", "eval-sets", run.set+".json")
			withoutCloud(t, filepath.Join(dir, set))
			theirs := theirEval(t, dir, interpreter, run.agent, set)
			evalrun(t, dir, []int{0, 3}, "run", set, "--agent", "uipath.json:"+run.agent, "-o", "results.json", "--quiet")
			ours := decode(t, evalrun(t, dir, []int{0}, "report", "results.json", "--format", "uipath"))
			n := 0
			for i, their := range theirs.EvaluationSetResults {
				our := ours.EvaluationSetResults[i]
				expected, got := byEvaluator(their.EvaluationRunResults), byEvaluator(our.EvaluationRunResults)
				if !slices.Equal(slices.Sorted(maps.Keys(expected)), slices.Sorted(maps.Keys(got))) {
					t.Errorf("%s: evaluators %v, want %v", our.EvaluationName, text(got), text(expected))
					continue
				}
				for id, list := range expected {
					c := comparison{their: &list[0], ours: &got[id][0]}
					if n++; !c.same() {
						t.Errorf("%s: %s\nUiPath   %s\nevalrun  %s", our.EvaluationName, id, text(c.their), text(c.ours))
					}
				}
			}
			if n != run.scores {
				t.Errorf("%d scores were compared, want %d", n, run.scores)
			}
		})
	}
}

// copySample puts the eval sets of a sample into the project, beside its own agents and the code of its evaluators.
func copySample(t *testing.T, dir, sample string) {
	t.Helper()
	from := filepath.Join(publishedDir, sample, "evaluations")
	if _, err := os.Stat(from); err != nil {
		t.Skipf("the eval sets of UiPath's samples are not there: %v", err)
	}
	to := filepath.Join(dir, "evaluations")
	if err := os.RemoveAll(filepath.Join(to, "eval-sets")); err != nil {
		t.Fatal(err)
	}
	for _, file := range glob(t, filepath.Join(to, "evaluators", "*.json")) {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, pattern := range []string{"eval-sets/*.json", "evaluators/*.json"} {
		for _, file := range glob(t, filepath.Join(from, pattern)) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(to, filepath.Dir(pattern), filepath.Base(file))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// withoutCloud takes what asks a model of UiPath's cloud out of a set: evaluators, and evaluations of which it plays
// or writes a part.
func withoutCloud(t *testing.T, path string) {
	t.Helper()
	asks := map[string]bool{}
	for _, file := range glob(t, filepath.Join(filepath.Dir(path), "..", "evaluators", "*.json")) {
		var e struct {
			ID, EvaluatorTypeID string
			Category            int
		}
		decodeFile(t, file, &e)
		asks[e.ID] = strings.Contains(e.EvaluatorTypeID, "llm-judge") || e.Category == 1 || e.Category == 3
	}
	var set map[string]any
	decodeFile(t, path, &set)
	refs, _ := set["evaluatorRefs"].([]any)
	set["evaluatorRefs"] = slices.DeleteFunc(refs, func(id any) bool { return asks[id.(string)] })
	var kept []any
	for _, one := range set["evaluations"].([]any) {
		e := one.(map[string]any)
		if criteria, ok := e["evaluationCriterias"].(map[string]any); ok {
			maps.DeleteFunc(criteria, func(id string, _ any) bool { return asks[id] })
		}
		if e["simulateTools"] == nil && e["simulateInput"] == nil {
			kept = append(kept, e)
		}
	}
	set["evaluations"] = kept
	data, err := json.Marshal(set)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func decodeFile(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// theirEval has UiPath's own command run an eval set.
func theirEval(t *testing.T, dir, interpreter, agent, set string) results {
	t.Helper()
	out := filepath.Join(dir, "uipath.out.json")
	cmd := exec.Command(filepath.Join(filepath.Dir(interpreter), "uipath"), "eval", agent, set, "--no-report", "--output-file", out) //nolint:gosec // pinned
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "UIPATH_TELEMETRY_ENABLED=false", "PYTHONDONTWRITEBYTECODE=1")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, said.Bytes())
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatalf("%v\n%s", err, said.Bytes())
	}
	return decode(t, data)
}
