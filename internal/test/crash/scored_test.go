package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// newScoredScenario makes a scenario of agents that wait for nothing and evaluators that do: one
// waits for a local job, then for a person, who has answered before anything has begun. Another one
// counts how often it is called.
func newScoredScenario(t *testing.T) *scenario {
	t.Helper()
	s := emptyScenario(t, "failpoint")
	s.total, s.results, s.scored = 3, 3, true
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var evaluations []any
	for i := range s.total {
		id := fmt.Sprintf("e%d", i)
		evaluations = append(evaluations, map[string]any{"id": id, "name": id, "inputs": map[string]any{}, "evaluationCriterias": map[string]any{
			"exact": map[string]any{"expectedOutput": map[string]any{"answers": 0, "segmentsCounted": true}}, "waits": nil, "counts": nil}})
	}
	s.write("set.json", map[string]any{
		"version": "1.0", "id": "crash", "name": "Crash", "evaluations": evaluations,
		"agent": map[string]any{"type": "function", "name": "agent", "command": []string{self, "agent"}},
		"jobs":  map[string]any{"Local": map[string]any{"source": "exec", "command": []string{self, "job"}, "env": map[string]string{"CRASHTEST_DIR": s.dir}}},
		"evaluators": []any{
			map[string]any{"id": "waits", "type": "command", "command": []string{self, "waiting-evaluator"}},
			map[string]any{"version": "1.0", "id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "exact"}},
			map[string]any{"id": "counts", "type": "command", "command": []string{self, "counting-evaluator", s.dir}},
		},
	})
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.total {
		id := store.EvaluatorTriggerID(store.RolloutID(runID, fmt.Sprintf("e%d", i), "agent", 1), "waits", 1, 0)
		receipt, err := st.Deliver(t.Context(), store.Delivery{TriggerID: id, Status: store.StatusSuccessful, Payload: json.RawMessage(`"good"`), By: "test"})
		if err != nil || receipt.Disposition != store.Parked {
			t.Fatal(receipt, err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return s
}

// playWaitingEvaluator waits for a job, then for a person, and then has a score. What it has waited
// for it must get once, and all of it.
func playWaitingEvaluator() error {
	var in struct {
		Resume map[string]json.RawMessage `json:"resume"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	switch {
	case in.Resume == nil:
		fmt.Println(`{"__interrupt__": [{"id": "job", "value": {"name": "Local", "input_arguments": {}}}]}`)
	case len(in.Resume) == 1 && string(in.Resume["job"]) == `{"job":"done"}`:
		fmt.Println(`{"__interrupt__": [{"id": "person", "value": "how good is it?"}]}`)
	case len(in.Resume) == 1 && string(in.Resume["person"]) == `"good"`:
		fmt.Println(`{"score": 1}`)
	default:
		return fmt.Errorf("resumed with %s", in.Resume)
	}
	return nil
}

// playCountingEvaluator leaves a mark for each call.
func playCountingEvaluator() error {
	var in struct {
		RolloutID string `json:"rolloutId"`
	}
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	fmt.Println(`{"score": 1}`)
	return appendLine(filepath.Join(os.Args[2], "scored-"+in.RolloutID), "called")
}

// checkScored looks at how often the evaluator that counts was called: once, and once more for each
// process that was killed before its result was stored.
func (s *scenario) checkScored(note func(string, ...any)) {
	marks, err := filepath.Glob(filepath.Join(s.dir, "scored-*"))
	if err == nil && len(marks) != s.total {
		err = errors.New("an evaluator was not called")
	}
	if err != nil {
		note("%v", err)
	}
	for _, mark := range marks {
		if n, err := countLines(mark); err != nil || n > 1+s.kills {
			note("%s: called %d times, %d processes were killed (%v)", filepath.Base(mark), n, s.kills, err)
		}
	}
}
