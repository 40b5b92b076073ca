package exports

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/schemas"
)

// trajectory is what read_harbor.py prints.
type trajectory struct {
	Errors  []string
	Same    bool
	ID      string
	Steps   [][]any
	Results []string
	Tokens  []*int64
	Status  schemas.State
	Score   *float64
	Notes   string
}

// validated are the trajectories of a run, by rollout, as Harbor reads them.
func (w world) validated(interpreter, run string) map[string]trajectory {
	w.t.Helper()
	out := map[string]trajectory{}
	for line := range strings.Lines(string(python(w.t, interpreter, "read_harbor.py", w.evalrun(0, "report", "--format", "atif", run)))) {
		var one trajectory
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			w.t.Fatal(err)
		}
		if len(one.Errors) > 0 || !one.Same {
			w.t.Errorf("Harbor says of a trajectory: %q", one.Errors)
		}
		out[one.ID] = one
	}
	return out
}

// Given rollouts in every state: then Harbor's validator takes their trajectories, which say how
// each stands.
func TestHarborTakesOurTrajectories(t *testing.T) {
	t.Parallel()
	interpreter := other(t, "harbor")
	w := newWorld(t)
	w.evalrun(75, "run", "-q", "--run-id", "r", "sums.json", "--", "sh", filepath.Join(w.dir, "agent.sh"))
	all, doc := w.validated(interpreter, "r"), w.document("r")
	if len(all) != len(doc.EvaluationSetResults) {
		t.Errorf("%d trajectories of %d rollouts", len(all), len(doc.EvaluationSetResults))
	}
	for id, one := range index(doc) {
		got := all[id]
		same(t, "the status", got.Status, one.Status)
		same(t, "the score", got.Score, one.Score)
		last := got.Steps[len(got.Steps)-1]
		switch one.Status {
		case schemas.StateCompleted:
			same(t, "the last step", last, []any{"agent", `{"sum":3}`, "", []string{}})
			same(t, "the results of tools", got.Results, []string{"found"})
		case schemas.StateSuspended:
			if text, _ := last[1].(string); last[0] != "system" || !strings.HasPrefix(text, "suspended: it waits for API") {
				t.Errorf("the last step of a suspended rollout is %v", last)
			}
		default:
			if text, _ := last[1].(string); last[0] != "system" || !strings.HasPrefix(text, "exit: ") {
				t.Errorf("the last step of a faulted rollout is %v", last)
			}
		}
		if one.Usage != nil && one.Usage.Total != nil {
			same(t, "the tokens", got.Tokens, []*int64{&one.Usage.Total.InputTokens, &one.Usage.Total.OutputTokens})
		}
	}
}

func TestHarborTakesConversations(t *testing.T) {
	t.Parallel()
	interpreter := other(t, "harbor")
	w := newWorld(t)
	w.evalrun(75, "run", "-q", "--isolation", "process", "--run-id", "c", "-o", "results.json", "code.json")
	w.approve("c")
	w.evalrun(0, "resume", "-q", "-o", "results.json", "c")
	for _, one := range w.validated(interpreter, "c") {
		var parts []string
		results := one.Results
		for _, step := range one.Steps {
			if step[2] != "" {
				parts = append(parts, "thought:"+step[2].(string))
			}
			parts = append(parts, step[0].(string)+":"+step[1].(string))
			for _, name := range step[3].([]any) {
				parts, results = append(parts, "call:"+name.(string), "result:"+results[0]), results[1:]
			}
		}
		isSpoken(t, parts)
	}
	alone := filepath.Join(t.TempDir(), "copy.json")
	if err := os.Rename(filepath.Join(w.dir, "results.json"), alone); err != nil {
		t.Fatal(err)
	}
	for _, one := range w.validated(interpreter, alone) {
		if !strings.HasPrefix(one.Notes, "missing: what the agent said") {
			t.Errorf("without its store the notes are %q", one.Notes)
		}
	}
}
