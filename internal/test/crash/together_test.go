package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// TestDeliveredByManyProcesses is a set of 100 evaluations of which 60 suspend, 20 of them twice.
// What they wait for is delivered in random order in three batches by processes of their own, two
// batches at once, each of which resumes.
func TestDeliveredByManyProcesses(t *testing.T) {
	testenv.NeedLong(t)
	s := newScenario(t, "failpoint")
	var evaluations []map[string]any
	for i := range 100 {
		in := agentInput{}
		if i < 60 {
			in = agentInput{Process: "Elsewhere", Rounds: 1}
		}
		if i < 20 {
			in.Rounds = 2
		}
		evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", i), "name": fmt.Sprint("Evaluation ", i), "inputs": in,
			"evaluationCriterias": map[string]any{"exact": map[string]any{"expectedOutput": map[string]any{"answers": in.Rounds, "segmentsCounted": true}}}})
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.total, s.results = len(evaluations), 1
	s.write("set.json", map[string]any{"version": "1.0", "id": "hundred", "name": "Hundred", "evaluations": evaluations,
		"agent":      map[string]any{"type": "function", "command": []string{self, "agent"}},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "exact"}}}})

	if code, out := s.evalrun("run", "--run-id", runID, "-o", "results.json", "set.json"); code != 75 {
		t.Fatalf("run: exit code %d\n%s", code, out)
	}
	waiting := s.waiting()
	if len(waiting) != 60 {
		t.Fatalf("%d triggers are waited for, expected 60", len(waiting))
	}
	rand.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })

	var both sync.WaitGroup
	for _, batch := range [][]string{waiting[:20], waiting[20:40]} {
		both.Go(func() { s.deliverAndResume(batch, 75) })
	}
	both.Wait()
	s.deliverAndResume(append(s.waiting(), waiting[40:]...), -1) // the second suspensions of the first two batches, too
	s.deliverAndResume(s.waiting(), 0)

	var document struct {
		Final                bool   `json:"final"`
		Status               string `json:"status"`
		EvaluationSetResults []struct {
			EvaluationID         string            `json:"evaluationId"`
			Status               string            `json:"status"`
			Score                float64           `json:"score"`
			EvaluationRunResults []json.RawMessage `json:"evaluationRunResults"`
		} `json:"evaluationSetResults"`
	}
	data, err := os.ReadFile(filepath.Join(s.dir, "results.json"))
	if err == nil {
		err = json.Unmarshal(data, &document)
	}
	if err != nil || !document.Final || document.Status != "successful" || len(document.EvaluationSetResults) != 100 {
		t.Fatalf("the results document: final %v, %s, %d results, %v", document.Final, document.Status, len(document.EvaluationSetResults), err)
	}
	for _, r := range document.EvaluationSetResults {
		if r.Status != "completed" || r.Score != 1 || len(r.EvaluationRunResults) != 1 {
			t.Errorf("%s: %s, score %v, %d results", r.EvaluationID, r.Status, r.Score, len(r.EvaluationRunResults))
		}
	}
	for _, wrong := range s.violations() {
		t.Error(wrong)
	}
}

// evalrun runs a command to its end.
func (s *scenario) evalrun(args ...string) (code int, out string) {
	s.t.Helper()
	cmd := exec.Command(s.program, args...)
	cmd.Dir = s.dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		s.t.Error(err)
		return -1, ""
	}
	return cmd.ProcessState.ExitCode(), stdout.String() + stderr.String()
}

// waiting lists the triggers that are waited for.
func (s *scenario) waiting() (ids []string) {
	s.t.Helper()
	_, out := s.evalrun("triggers", "--json")
	var waiting []struct {
		TriggerID string `json:"triggerId"`
	}
	if err := json.Unmarshal([]byte(out), &waiting); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	for _, trigger := range waiting {
		ids = append(ids, trigger.TriggerID)
	}
	return ids
}

// deliverAndResume delivers a batch, a process for each trigger, and resumes once. A negative code
// is not looked at.
func (s *scenario) deliverAndResume(triggers []string, code int) {
	for _, id := range triggers {
		cmd := exec.Command(s.program, "deliver", id, "--payload", "-")
		cmd.Dir, cmd.Stdin = s.dir, strings.NewReader(`{"delivered":true}`)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Errorf("deliver %s: %v\n%s", id, err, out)
		}
	}
	if got, out := s.evalrun("resume", "results.json"); code >= 0 && got != code {
		s.t.Errorf("resume: exit code %d, expected %d\n%s", got, code, out)
	}
}
