package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// Given two raters who are asked about each of two rollouts, of whom one answers at once and the other
// one the next day, when everything that knew of it has ended: the rollout has its score then and not
// before, and the day counts as waiting. Whom nobody answers ends at limits.scoreTimeout without one.
func TestTwoRatersOneOfWhomAnswersTheNextDay(t *testing.T) {
	dir := t.TempDir()
	now := time.Now().UTC().Truncate(time.Second)
	clock := func() time.Time { return now }
	open := func() *poison {
		s, err := sqlite.Open(filepath.Join(dir, "store"), store.Options{Now: clock})
		if err != nil {
			t.Fatal(err)
		}
		return &poison{t, dir, s}
	}
	begin := func() (*poison, func()) {
		p := open()
		s := p.s
		if err := New(Options{Store: s, RunID: "run", Concurrency: 4, WorkDir: dir, Resolve: os.LookupEnv, Now: clock}).Run(t.Context(), UntilIdle); err != nil {
			t.Fatal(err)
		}
		return p, func() { _ = s.Close() }
	}
	planned := open()
	planned.runOf("run", 2, `echo '{"content": "hello"}'`, func(req *plans.Request) {
		req.Set.Limits.ScoreTimeout = 36 * time.Hour
		req.Set.Evaluators = []eval.Definition{{ID: "e", Name: "e", Type: judged.TypeHuman, Weight: 1, Config: json.RawMessage(`{"question":"How is it?","raters":2}`)}}
	})
	_ = planned.s.Close()

	day, end := begin()
	day.stands("scoring", "scoring")
	triggers := map[string]string{}
	if err := day.s.Triggers(t.Context(), "run", false, func(g store.Trigger) error {
		triggers[g.EvaluationID+" "+g.InterruptID] = g.ID
		return nil
	}); err != nil || len(triggers) != 4 {
		t.Fatal(triggers, err)
	}
	day.rate(triggers["e0 rater-1"], 0.8)
	end()
	day, end = begin()
	day.stands("scoring", "scoring")
	end()

	now = now.Add(25 * time.Hour)
	day, end = begin()
	day.stands("scoring", "scoring")
	day.rate(triggers["e0 rater-2"], 0.4)
	end()
	day, end = begin()
	rollouts := day.stands("completed", "scoring")
	if r := rollouts[0]; r.Score == nil || *r.Score < 0.599 || *r.Score > 0.601 || r.Clocks.Scoring != 25*time.Hour || r.Clocks.Waiting != 25*time.Hour || r.Segment != 1 {
		t.Errorf("the score is %v after %+v", r.Score, r.Clocks)
	}
	end()

	now = now.Add(12 * time.Hour)
	day, end = begin()
	defer end()
	rollouts = day.stands("completed", "completed")
	var results []eval.Result
	if err := json.Unmarshal(rollouts[1].Results[0].Data, &results); err != nil {
		t.Fatal(err)
	}
	if r := results[0]; rollouts[1].Score != nil || r.Score != nil || r.ErrorCategory != eval.JudgeExpired {
		t.Errorf("what nobody has rated is %+v", r)
	}
}

// rate gives a score.
func (p *poison) rate(trigger string, score float64) {
	p.t.Helper()
	payload, err := json.Marshal(map[string]float64{"score": score})
	if err != nil {
		p.t.Fatal(err)
	}
	got, err := p.s.Deliver(p.t.Context(), store.Delivery{TriggerID: trigger, Status: store.StatusSuccessful, Payload: payload, By: "rate"})
	if err != nil || got.Disposition != store.Accepted {
		p.t.Fatal(got, err)
	}
}

// stands checks the states of the rollouts of "run", of which only completed ones may have results.
func (p *poison) stands(want ...eval.State) (rollouts []store.RolloutView) {
	p.t.Helper()
	if err := p.s.Snapshot(p.t.Context(), "run", func(v store.View) error {
		return v.Rollouts(func(r store.RolloutView) error {
			rollouts = append(rollouts, r)
			return nil
		})
	}); err != nil {
		p.t.Fatal(err)
	}
	for i, r := range rollouts {
		if r.State != want[i] || (r.State == eval.StateCompleted) != (len(r.Results) > 0) {
			p.t.Errorf("rollout %d is %s with %d results, want %s", i, r.State, len(r.Results), want[i])
		}
	}
	return rollouts
}
