package crash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// A conversation with a user who is played is killed at each of its steps. It goes on there: nobody is
// asked again but the one whose answer was on its way.
func TestAUserKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	for step, twice := range map[string]int{"model.begins": 0, "model.userAnswered": 1, "model.userStored": 0,
		"model.answered": 1, "model.answerStored": 0, "rollout.filesSynced": 0} {
		t.Run(step, func(t *testing.T) {
			if !strings.HasPrefix(step, "model.user") {
				testenv.NeedLong(t)
			}
			t.Parallel()
			killUser(t, step, twice)
		})
	}
}

func killUser(t *testing.T, step string, twice int) {
	var mu sync.Mutex
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Model    string            `json:"model"`
			Messages []json.RawMessage `json:"messages"`
		}
		err := json.NewDecoder(r.Body).Decode(&in)
		mu.Lock()
		asked++
		mu.Unlock()
		text := fmt.Sprintf("answer to %d", len(in.Messages)) // by what was said, and not by how often it was asked
		if in.Model == "person" {
			said, _ := json.Marshal(map[string]any{"message": fmt.Sprintf("message after %d", len(in.Messages)),
				"done": len(in.Messages) >= 6, "reached": true})
			text = string(said)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"choices": []any{map[string]any{"message": map[string]any{"role": "assistant", "content": text}, "finish_reason": "stop"}},
			"usage":   map[string]any{"prompt_tokens": 1, "completion_tokens": 1}})
	}))
	t.Cleanup(server.Close)
	s := emptyScenario(t, "failpoint")
	s.total = 1
	at := func(name string) map[string]any { return map[string]any{"url": server.URL + "/v1", "name": name} }
	s.write("set.json", map[string]any{"version": "1.0", "id": "user", "name": "User",
		"agent": map[string]any{"type": "model", "name": "m", "model": at("m1"),
			"user": map[string]any{"model": at("person"), "goal": "{{goal}}"}},
		"evaluations": []any{map[string]any{"id": "a", "name": "A", "inputs": map[string]any{"goal": "a refund"},
			"evaluationCriterias": map[string]any{"says": map[string]any{"searchText": "answer to"}}}},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains",
			"evaluatorConfig": map[string]any{"name": "says", "targetOutputKey": "content"}}}})
	n := 2 // of each but the first and the last step there are several
	if step == "model.begins" || step == "rollout.filesSynced" {
		n = 1
	}
	if !s.killed(s.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:%s:%d", step, n))) {
		t.Fatalf("there was no step %s %d", step, n)
	}
	s.finish()
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	const want = `{"content":"answer to 3","messages":[{"role":"user","content":"message after 2"},` +
		`{"role":"assistant","content":"answer to 1"},{"role":"user","content":"message after 4"},` +
		`{"role":"assistant","content":"answer to 3"},{"role":"user","content":"message after 6"}],"endedBy":"reached"}`
	if err := st.Snapshot(t.Context(), runID, func(v store.View) error {
		return v.Rollouts(func(r store.RolloutView) error {
			last := r.Segments[len(r.Segments)-1]
			if r.State != "completed" || string(last.Output) != want {
				t.Errorf("%s %s %v", r.State, last.Output, r.Fault)
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if asked != 5+twice {
		t.Errorf("%d requests, want %d", asked, 5+twice)
	}
}
