package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

// An outline has what a comparison needs, as the rollout has it.
func TestOutlinesAreThoseOfTheRollouts(t *testing.T) {
	for _, name := range []string{"results.json", "results-v1.json"} {
		whole, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, whole); err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{whole, compact.Bytes()} {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := OpenOnce(path)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []schemas.Rollout
			if err := r.Rollouts(func(one *schemas.Rollout) error {
				want = append(want, schemas.Rollout{EvaluationID: one.EvaluationID, EvaluationName: one.EvaluationName, RolloutID: one.RolloutID, Agent: one.Agent,
					Epoch: one.Epoch, Status: one.Status, Score: one.Score, Error: one.Error, FaultOwner: one.FaultOwner, Environment: one.Environment, Cluster: one.Cluster,
					Outdated: one.Outdated, Usage: one.Usage, EvaluationRunResults: one.EvaluationRunResults,
					Inputs: one.Inputs, ExpectedOutput: one.ExpectedOutput, Criteria: one.Criteria})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := r.Outlines(func(one *schemas.Rollout) error {
				got = append(got, *one)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
				t.Errorf("%s: %s", name, diff)
			}
		}
	}
}

// What is wrong with a document is said in the same words, wherever it is cut or damaged.
func TestOutlinesOfADamagedDocument(t *testing.T) {
	testenv.NeedSlow(t)
	whole, err := os.ReadFile(filepath.Join("testdata", "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "results.json")
	start := bytes.Index(whole, []byte(`"evaluationSetResults"`))
	damaged := func(i int, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		nothing := func(*schemas.Rollout) error { return nil }
		_, usual := readDocument(path, nothing)
		if got := readOutlines(path, nothing); usual == nil || got == nil || got.Error() != usual.Error() {
			t.Errorf("at %d: got %v, want %v", i, got, usual)
		}
	}
	for i := start; i < len(whole)-2; i += 97 {
		damaged(i, whole[:i])
		damaged(i, append(bytes.Clone(whole[:i]), "\x00"+string(whole[i:])...))
	}
	damaged(-1, bytes.Replace(whole, []byte(`"status": "completed"`), []byte(`"status": 7`), 2)) // the second is that of a rollout
}
