package runner_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// judgedSet is an eval set with a judge.
const judgedSet = `{"version": "1.0", "id": "judged", "name": "Judged",
	"evaluators": [{"id": "quality", "evaluatorTypeId": "uipath-llm-judge-output-semantic-similarity", "evaluatorConfig": {"model": "gpt-5-mini"}}],
	"evaluations": [
		{"id": "a", "name": "A", "inputs": {"a": 1, "b": 2}, "evaluationCriterias": {"quality": {"expectedOutput": {"sum": 3}}}},
		{"id": "b", "name": "B", "inputs": {"a": 2, "b": 2}, "evaluationCriterias": {"quality": {"expectedOutput": {"sum": 4}}}}]}`

// Given judges of whom one refuses: it alone is asked again. Without a key nobody is, and what they
// have said stays.
func TestOnlyTheJudgeThatHasFailedIsAskedAgain(t *testing.T) {
	var refuses atomic.Bool
	server, err := fakejudge.Start(func(r fakejudge.Request) fakejudge.Reply {
		if refuses.Load() && strings.Contains(r.Prompt, "'sum': 4") {
			return fakejudge.Reply{Refusal: "not today"}
		}
		return fakejudge.Score(75, "fine")
	})
	fatal(t, err)
	t.Cleanup(func() { _ = server.Close() })
	for name, value := range server.Environ() {
		t.Setenv(name, value)
	}
	path := filepath.Join(t.TempDir(), "evalset.json")
	fatal(t, os.WriteFile(path, []byte(judgedSet), 0o600))
	store, run := begin(path)
	defer store.Close()
	refuses.Store(true)
	result, err := store.Run(t.Context(), run.RunID, runner.RunOptions{})
	fatal(t, err)
	if result.Verdict != runner.Faulted {
		t.Fatalf("the run is %s: %s", result.Verdict, result.Reason)
	}
	asked := len(server.Requests())
	refuses.Store(false)

	scored, err := store.Score(t.Context(), run.RunID, runner.ScoreOptions{Failed: true})
	fatal(t, err)
	if scored.Verdict != runner.Finished || scored.Scored != 1 || len(server.Requests()) != asked+1 {
		t.Errorf("%+v, after %d more questions", scored, len(server.Requests())-asked)
	}
	for id, score := range scoresOf(t, store, run.RunID) {
		if score == nil || *score != 0.75 {
			t.Errorf("%s has the score %v", id, score)
		}
	}

	t.Setenv("OPENAI_API_KEY", "")
	if _, err := store.Score(t.Context(), run.RunID, runner.ScoreOptions{}); err == nil {
		t.Error("scored again without a key")
	}
	if scores := scoresOf(t, store, run.RunID); scores["a"] == nil || scores["b"] == nil {
		t.Errorf("the scores are lost: %v", scores)
	}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func scoresOf(t *testing.T, s *runner.Store, runID string) map[string]*float64 {
	t.Helper()
	out := map[string]*float64{}
	fatal(t, s.Report(t.Context(), runID, runner.Variables{}, func(r *runner.Report) error {
		return r.Rollouts(func(one *schemas.Rollout) error {
			out[one.EvaluationID] = one.Score
			return nil
		})
	}))
	return out
}
