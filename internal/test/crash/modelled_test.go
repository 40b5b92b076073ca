package crash

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/peers/fakemodel"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// modelSteps are the durable steps of a conversation with tools. At the last one it has come to its end.
var modelSteps = []string{"model.begins", "model.answered", "model.answerStored", "model.intended", "model.ran", "model.resultStored",
	"rollout.filesSynced"}

// A model that runs commands is killed at each of its steps. The conversation goes on there, each
// request begins with the ones before byte for byte, and no command runs twice.
func TestAModelKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	commands, places := 2, []string{sandbox.IsolationProcess}
	if os.Getenv(testenv.Long) != "" {
		commands, places = 12, isolations()
	}
	for _, isolation := range places {
		for at, step := range modelSteps {
			for n := 1; n <= commands; n++ {
				if n > 1 && (step == modelSteps[0] || at == len(modelSteps)-1) {
					break // a conversation begins once, and ends once
				}
				if commands == 2 && n != 1+at%2 || isolation != places[0] && n%3 != at%3 {
					continue // one kill for each step in the short form, and fewer in the second place
				}
				t.Run(fmt.Sprintf("%s %s %d", isolation, step, n), func(t *testing.T) {
					t.Parallel()
					killModel(t, isolation, step, n, commands)
				})
			}
		}
	}
}

func killModel(t *testing.T, isolation, step string, n, commands int) {
	server, err := fakemodel.Start(fakemodel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	s := emptyScenario(t, "failpoint")
	s.total, s.flags = 1, []string{"--isolation", isolation}
	prompt := ""
	for i := range commands {
		prompt += fmt.Sprintf(`[[CALL bash {"command":"echo %d >>ran"}]]`, i)
	}
	s.write("set.json", map[string]any{"version": "1.0", "id": "model", "name": "Model",
		"agent":       map[string]any{"type": "model", "name": "m", "tools": []string{"bash"}, "model": map[string]any{"url": server.URL() + "/v1", "name": "m1"}},
		"evaluations": []any{map[string]any{"id": "a", "name": "A", "inputs": map[string]any{"prompt": prompt + `[[CALL bash {"command":"cat ran"}]][[SAY done]]`}, "evaluationCriterias": map[string]any{"says": map[string]any{"searchText": "done"}}}},
		"evaluators":  []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says", "targetOutputKey": "content"}}}})
	if !s.killed(s.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:%s:%d", step, n))) {
		t.Fatalf("there was no step %s %d", step, n)
	}
	s.finish()
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.Snapshot(t.Context(), runID, func(v store.View) error {
		return v.Rollouts(func(r store.RolloutView) error {
			last := r.Segments[len(r.Segments)-1]
			if r.State != "completed" || string(last.Output) != `{"content":"done"}` {
				t.Errorf("%s %s %v", r.State, last.Output, r.Fault)
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	requests := server.Requests()
	again := 0
	if step == "model.answered" {
		again = 1 // its answer was lost
	}
	if len(requests) != commands+2+again {
		t.Errorf("%d requests, want %d", len(requests), commands+2+again)
	}
	for i := 1; i < len(requests); i++ {
		before, after := messagesOf(t, requests[i-1].Body), messagesOf(t, requests[i].Body)
		if len(before) > len(after) || !cmp.Equal(before, after[:len(before)]) {
			t.Errorf("request %d does not begin with the one before", i)
		}
	}
	var results []string
	for _, m := range requests[len(requests)-1].Messages {
		for _, r := range m.Results {
			results = append(results, r.Text)
		}
	}
	if len(results) != commands+1 {
		t.Fatalf("%d results: %q", len(results), results)
	}
	var want []string
	for i := range commands {
		interrupted := strings.Contains(results[i], "may have run")
		if killed := (step == "model.intended" || step == "model.ran") && i == n-1; interrupted != killed {
			t.Errorf("command %d: %q", i, results[i])
		}
		if !interrupted || step == "model.ran" {
			want = append(want, fmt.Sprint(i))
		}
	}
	if got := strings.Fields(results[commands]); !slices.Equal(got, want) {
		t.Errorf("commands %v ran, want %v", got, want)
	}
}

func messagesOf(t *testing.T, body json.RawMessage) []json.RawMessage {
	t.Helper()
	var in struct{ Messages []json.RawMessage }
	if err := json.Unmarshal(body, &in); err != nil {
		t.Fatal(err)
	}
	return in.Messages
}
