package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/internal/store"
)

// person is an evaluator that asks somebody.
var person = eval.Definition{ID: "e", Name: "e", Type: judged.TypeHuman, Weight: 1, Config: json.RawMessage(`{"question":"How is it?"}`)}

// scoring makes a run of n rollouts that wait for a person's score, as if their agents had run.
func (p *poison) scoring(id string, n int) {
	p.t.Helper()
	p.runScoredBy(id, n, "echo '{}'", person)
	claims, err := p.s.Claim(p.t.Context(), id, n)
	if err != nil || len(claims) != n {
		p.t.Fatal(len(claims), err)
	}
	var all sync.WaitGroup
	for _, c := range claims {
		all.Go(func() { // together, because commits are grouped
			if _, err := p.s.CommitSegment(p.t.Context(), c.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage("{}")}); err != nil {
				p.t.Error(err)
			}
			if _, err := p.s.WaitForScores(p.t.Context(), c.Token, store.ScoreWait{Triggers: []store.NewTrigger{
				{InterruptID: "rater-1", EvaluatorID: "e", Type: "TASK", Name: "TASK", Source: "external", KeyPrefix: "task-", Spec: json.RawMessage(`{}`)}}}); err != nil {
				p.t.Error(err)
			}
		})
	}
	all.Wait()
}

// Given 1,000 rollouts that wait for a score: an engine that watches them has as many goroutines as
// one that watches one of them, and an answer ends the wait of its own rollout alone.
func TestWaitingForAScoreIsARow(t *testing.T) {
	const n = 1000
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.scoring("one", 1)
	p.scoring("many", n)
	one, many := p.goroutines("one"), p.goroutines("many")
	if many > one+10 {
		t.Errorf("%d rollouts that wait for a score cost %d goroutines, one costs %d", n, many, one)
	}
	if run, err := s.Run(t.Context(), "many"); err != nil || run.Counts.Scoring != n {
		t.Fatalf("%+v, %v", run.Counts, err)
	}
	answered := ""
	if err := s.Triggers(t.Context(), "many", false, func(g store.Trigger) error {
		if g.EvaluationID == "e7" {
			answered = g.ID
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Deliver(t.Context(), store.Delivery{TriggerID: answered, Status: store.StatusSuccessful, Payload: json.RawMessage(`{"score":0.5}`)}); err != nil {
		t.Fatal(err)
	}
	if err := New(Options{Store: s, RunID: "many", Concurrency: 4, WorkDir: dir, Resolve: os.LookupEnv}).Run(t.Context(), UntilIdle); err != nil {
		t.Fatal(err)
	}
	run, err := s.Run(t.Context(), "many")
	if err != nil || run.Counts != (store.Counts{Total: n, Scoring: n - 1, Completed: 1}) {
		t.Errorf("%+v, %v", run.Counts, err)
	}
}
