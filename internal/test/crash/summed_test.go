package crash

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// A model whose conversation has become too long is killed when it is about to sum it up, has done so, and
// goes on without what it has summed up. It is asked for a summary a second time only if its answer was on
// its way, and each request begins with the one before, but for the one after the summary.
func TestAModelKilledAtItsSummary(t *testing.T) {
	testenv.NeedSlow(t)
	for step, twice := range map[string]int{"model.summarises": 0, "model.summarised": 1, "model.cut": 0} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			killSummary(t, step, twice)
		})
	}
}

func killSummary(t *testing.T, step string, twice int) {
	const asks = "Write down all that you need to go on"
	var mu sync.Mutex
	var requests []string
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Messages json.RawMessage }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		shown := strings.TrimSuffix(string(in.Messages), "]")
		mu.Lock()
		requests = append(requests, shown)
		mu.Unlock()
		message, tokens := map[string]any{"role": "assistant", "content": "done"}, 10
		for turn := 3; turn >= 0; turn-- {
			if strings.Contains(shown, fmt.Sprintf(`"id":"c%d"`, turn)) {
				break
			}
			call := map[string]any{"id": fmt.Sprintf("c%d", turn), "type": "function", "function": map[string]string{"name": "bash", "arguments": fmt.Sprintf(`{"command":"echo %d >>ran"}`, turn)}}
			message = map[string]any{"role": "assistant", "tool_calls": []any{call}}
			if tokens = 10; turn == 2 {
				tokens = 200
			}
		}
		if strings.Contains(shown, asks) {
			message, tokens = map[string]any{"role": "assistant", "content": "THE SUMMARY"}, 10
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"message": message}}, "usage": map[string]int{"prompt_tokens": tokens, "completion_tokens": 1}}) // a client that was killed has gone
	}))
	t.Cleanup(model.Close)
	s := emptyScenario(t, "failpoint")
	s.total, s.flags = 1, []string{"--isolation", sandbox.IsolationProcess}
	s.write("set.json", map[string]any{"version": "1.0", "id": "model", "name": "Model",
		"agent": map[string]any{"type": "model", "name": "m", "tools": []string{"bash"}, "contextTokens": 100, "history": "summary",
			"model": map[string]any{"url": model.URL, "name": "m1"}},
		"evaluations": []any{map[string]any{"id": "a", "name": "A", "inputs": map[string]any{"prompt": "Work."}, "evaluationCriterias": map[string]any{"says": map[string]any{"searchText": "done"}}}},
		"evaluators":  []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says", "targetOutputKey": "content"}}}})
	if !s.killed(s.command("EVALRUN_FAILPOINT=kill:" + step + ":1")) {
		t.Fatalf("there was no step %s", step)
	}
	s.finish()
	st := s.open()
	defer st.Close()
	if err := st.Snapshot(t.Context(), runID, func(v store.View) error {
		return v.Rollouts(func(r store.RolloutView) error {
			if last := r.Segments[len(r.Segments)-1]; r.State != "completed" || !strings.Contains(string(last.Info), `"summaries":1`) {
				t.Errorf("%s %v %s", r.State, r.Fault, last.Info)
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	summaries := 0
	for i, shown := range requests {
		if strings.Contains(shown, asks) {
			summaries++
			continue
		}
		if had := strings.Contains(shown, "THE SUMMARY"); had != (summaries > 0) {
			t.Errorf("request %d after %d summaries: %s", i, summaries, shown)
		} else if i > 0 && !strings.Contains(requests[i-1], asks) && !strings.HasPrefix(shown, requests[i-1]) {
			t.Errorf("request %d does not begin with the one before", i)
		}
	}
	if summaries != 1+twice || len(requests) != 5+summaries {
		t.Errorf("%d requests, %d of them for a summary, want %d", len(requests), summaries, 1+twice)
	}
}
