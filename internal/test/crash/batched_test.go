package crash

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/testenv"
)

// batchedSteps are the steps at which processes are killed one after the other, with how often each
// process gets to the step before.
var batchedSteps = []string{
	"model.suspends:3", "rollout.filesSynced:2", "engine.batchStarting:1", "engine.batchStarted:1", "engine.batchChecked:2",
	"engine.batchAnswer:3", "model.answered:2", "model.answerStored:1", "model.intended:1", "model.ran:1", "model.resultStored:1",
	"engine.batchDelivered:1", "engine.batchStarted:1", "engine.batchAnswer:2", "model.answered:1", "engine.batchStarting:1",
	"engine.batchChecked:1", "model.answered:3",
}

// batchedTurns is how many answers each rollout needs: all but the last run a command.
const batchedTurns = 4

// Rollouts of a model with tools ask in batches of a provider that takes its time, and the processes
// that work on them are killed one after the other. There is one batch for each turn, every answer is
// used once, no command runs twice, and the cost is that of the answers in batches, to the cent.
func TestModelsInBatchesKilled(t *testing.T) {
	testenv.NeedSlow(t)
	models := map[string]int{"openai/gpt-5-mini": 30, "anthropic/claude-haiku-4-5": 6}
	if os.Getenv(testenv.Long) != "" {
		models["openai-responses/gpt-5-mini"] = 6
	}
	if kills(t) >= 100 { // more than CI has time for
		models = map[string]int{"openai/gpt-5-mini": 300, "openai-responses/gpt-5-mini": 30, "anthropic/claude-haiku-4-5": 30}
	}
	for model, n := range models {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			modelsInBatches(t, model, n)
		})
	}
}

func modelsInBatches(t *testing.T, model string, n int) {
	server, err := fakejudge.Start(batchedTurn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	server.SlowBatches(3)
	var environ []string
	for name, value := range server.Environ() {
		environ = append(environ, name+"="+value)
	}
	s := emptyScenario(t, "failpoint")
	s.total, s.flags = n, []string{"--isolation", sandbox.IsolationProcess, "--wait-timeout", "8m"}
	var evaluations []any
	for i := range n {
		evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", i), "name": "e", "inputs": map[string]any{"prompt": fmt.Sprint("Work on ", i)}, "evaluationCriterias": map[string]any{"says": map[string]any{"searchText": "turn"}}})
	}
	s.write("set.json", map[string]any{"version": "1.0", "id": "batched", "name": "Batched", "evaluations": evaluations,
		"agent":      map[string]any{"type": "model", "name": "m", "model": model, "tools": []string{"bash"}, "batch": map[string]any{"interval": "20ms", "maxInterval": "50ms", "maxWait": "1h"}},
		"prices":     map[string]any{"*": map[string]any{"input": 3, "cachedInput": 0.3, "output": 7}},
		"evaluators": []any{map[string]any{"version": "1.0", "id": "says", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": map[string]any{"name": "says", "targetOutputKey": "content"}}}})
	kills := 0
	for _, step := range batchedSteps {
		if s.killed(s.command(append(environ, "EVALRUN_FAILPOINT=kill:"+step)...)) {
			kills++
		} else {
			t.Log("not killed at", step)
		}
	}
	if kills != len(batchedSteps) {
		t.Errorf("only %d processes of %d were killed", kills, len(batchedSteps))
	}
	s.flags = append(s.flags, "-o", "results.json")
	s.finish(environ...)

	batches := server.Batches()
	if len(batches) != batchedTurns {
		t.Errorf("%d batches, want one for each of %d turns", len(batches), batchedTurns)
	}
	for _, b := range batches {
		if b.Requests != n {
			t.Errorf("a batch has %d requests, want %d", b.Requests, n)
		}
	}
	for _, q := range server.Requests() {
		if q.Batch == "" {
			t.Errorf("asked directly: %v", q.Body)
		}
	}
	var doc struct {
		Results []struct {
			ID        string `json:"evaluationId"`
			Status    string
			Execution struct {
				Result struct {
					Output struct{ Content string }
				}
			} `json:"agentExecutionOutput"`
			Usage struct{ Total struct{ Cost *float64 } }
		} `json:"evaluationSetResults"`
	}
	data, err := os.ReadFile(filepath.Join(s.dir, "results.json"))
	if err == nil {
		err = json.Unmarshal(data, &doc)
	}
	if err != nil || len(doc.Results) != n {
		t.Fatalf("%d results, %v", len(doc.Results), err)
	}
	cut := 0
	one := batchedTurns * (fakejudge.InputTokens*3 + fakejudge.OutputTokens*7) / 1e6 / 2.
	for _, r := range doc.Results {
		content := r.Execution.Result.Output.Content
		if r.Status != "completed" {
			t.Errorf("%s is %s", r.ID, r.Status)
		}
		lines := strings.Fields(strings.ReplaceAll(content, "turn", ""))
		seen := map[string]bool{}
		for _, line := range lines {
			if seen[line] {
				t.Errorf("%s: the command of turn %s has run twice: %s", r.ID, line, content)
			}
			seen[line] = true
		}
		if !strings.Contains(content, "1") || !strings.Contains(content, "2") {
			cut++
		}
		if r.Usage.Total.Cost == nil || math.Abs(*r.Usage.Total.Cost-one) > 1e-12 {
			t.Errorf("%s has cost %v, want %v", r.ID, r.Usage.Total.Cost, one)
		}
	}
	// A command that was about to run, or has just run, is not run again.
	if cut > 4*4 {
		t.Errorf("%d rollouts lack a command", cut)
	}
	t.Logf("%d rollouts, %d processes killed, %d batches", n, kills, len(batches))
}

// batchedTurn is the model: three answers run a command each, the last says what the third has printed.
func batchedTurn(q fakejudge.Request) fakejudge.Reply {
	turn, last := 1, ""
	for _, key := range []string{"messages", "input"} {
		items, _ := q.Body[key].([]any)
		for _, item := range items {
			m, _ := item.(map[string]any)
			if m["role"] == "assistant" || m["type"] == "function_call" {
				turn++
			}
			switch {
			case m["role"] == "tool":
				last, _ = m["content"].(string)
			case m["type"] == "function_call_output":
				last, _ = m["output"].(string)
			case m["role"] == "user":
				blocks, _ := m["content"].([]any)
				for _, b := range blocks {
					if block, _ := b.(map[string]any); block["type"] == "tool_result" {
						last, _ = block["content"].(string)
					}
				}
			}
		}
	}
	switch turn {
	case batchedTurns:
		return fakejudge.Reply{Text: last + " turn"}
	case batchedTurns - 1:
		return fakejudge.Reply{Tool: "bash", Arguments: map[string]any{"command": "cat log"}}
	}
	return fakejudge.Reply{Tool: "bash", Arguments: map[string]any{"command": fmt.Sprintf("echo turn%d >>log", turn)}}
}
