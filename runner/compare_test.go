package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

// writeDocument writes a results document of n evaluations with random scores, of about 1.5 kB each.
func writeDocument(b testing.TB, path string, n int, r *rand.Rand) {
	b.Helper()
	set := &eval.Set{Epochs: 1, Thresholds: eval.Thresholds{Pass: 1}, Evaluators: []eval.Definition{{ID: "e", Name: "e", Weight: 1}}}
	statistics := summary.New(set, kinds.All)
	doc := schemas.Results{Head: schemas.Head{SchemaVersion: schemas.Version, RunID: filepath.Base(path), StoreID: "s", EvaluationSetName: "S", Final: true}}
	text := func(n int) json.RawMessage { return json.RawMessage(`{"text":"` + strings.Repeat("x", n) + `"}`) }
	for i := range n {
		score := r.Float64()
		one := schemas.Rollout{EvaluationID: fmt.Sprint("e", i), EvaluationName: fmt.Sprint("Evaluation ", i), Agent: "a", Epoch: 1, Status: schemas.StateCompleted, Score: &score,
			EvaluationRunResults: []schemas.Evaluated{{EvaluatorID: "e", EvaluatorName: "e", Result: schemas.EvaluationResult{Score: &score, Details: text(200)}}},
			Inputs:               text(400), Criteria: map[string]json.RawMessage{"e": text(200)},
			AgentExecutionOutput: &schemas.AgentExecution{Result: schemas.ExecutionResult{Status: schemas.Successful, Output: text(300)}}}
		doc.EvaluationSetResults = append(doc.EvaluationSetResults, one)
		statistics.Add(rolloutOf(&one))
	}
	summary := statistics.Summary()
	doc.Statistics = &summary
	data, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		b.Fatal(err)
	}
}

// From two documents of 10,000 evaluations to the comparison, with all tests.
func BenchmarkCompareDocuments(b *testing.B) {
	r, dir := rand.New(rand.NewPCG(1, 1)), b.TempDir() //nolint:gosec // cases, no secrets
	paths := []string{filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")}
	for _, path := range paths {
		writeDocument(b, path, testenv.Size(10_000, 1000), r)
	}
	for b.Loop() {
		var sides [2]compare.Side
		var errs [2]error
		var done sync.WaitGroup
		for i, path := range paths {
			done.Go(func() { sides[i], errs[i] = OpenSide(path, "") })
		}
		done.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			b.Fatal(err)
		}
		if _, err := Compare(sides[0], sides[1], compare.Options{Settings: stats.DefaultSettings}); err != nil {
			b.Fatal(err)
		}
	}
}

// V13: a document that has a rollout twice is not what a run has written.
func TestADocumentHasEachRolloutOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.json")
	writeDocument(t, path, 3, rand.New(rand.NewPCG(1, 1))) //nolint:gosec // cases, no secrets
	if _, err := OpenSide(path, ""); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	twice := strings.ReplaceAll(string(data), `"evaluationId": "e2"`, `"evaluationId": "e1"`)
	if err := os.WriteFile(path, []byte(twice), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenSide(path, ""); err == nil || !strings.Contains(err.Error(), "has epoch 1 of evaluation e1 and agent a twice") {
		t.Errorf("got %v", err)
	}
}
