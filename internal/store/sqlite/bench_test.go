package sqlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

func benchPlan(n int) store.Plan {
	p := store.Plan{RunID: store.NewRunID(), Name: "bench", EvaluationSetID: "set", EvaluationSetName: "Set", Data: json.RawMessage(`{}`)}
	for i := range n {
		id := fmt.Sprintf("e%05d", i)
		p.Evaluations = append(p.Evaluations, store.Evaluation{ID: id, Data: json.RawMessage(`{"inputs":{"x":1}}`)})
		p.Rollouts = append(p.Rollouts, store.PlannedRollout{ID: store.RolloutID(p.RunID, id, "agent", 1), Evaluation: i, EvaluationName: id, Agent: "agent", Epoch: 1})
	}
	return p
}

// claimAll calls work for every rollout that can be claimed, from two goroutines that claim one at
// a time.
func claimAll(tb testing.TB, s *sqlite.Store, runID string, work func(store.Claim) error) {
	tb.Helper()
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for {
				claims, err := s.Claim(context.Background(), runID, 1)
				if err != nil {
					tb.Error(err)
				}
				if err != nil || len(claims) == 0 {
					return
				}
				if err := work(claims[0]); err != nil {
					tb.Error(err)
					return
				}
				s.Forget(store.Tokens{Rollouts: []store.Token{claims[0].Token}})
			}
		})
	}
	group.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
}

// BenchmarkRollout takes 1000 rollouts from their plan to their end.
func BenchmarkRollout(b *testing.B) {
	ctx := context.Background()
	rollouts := testenv.Size(1000, 100)
	score := 1.0
	for b.Loop() {
		s, err := sqlite.Open(b.TempDir(), store.Options{})
		if err != nil {
			b.Fatal(err)
		}
		p := benchPlan(rollouts)
		if _, err := s.CreateRun(ctx, p); err != nil {
			b.Fatal(err)
		}
		claimAll(b, s, p.RunID, func(c store.Claim) error {
			if _, err := s.CommitSegment(ctx, c.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{"answer":42}`)}); err != nil {
				return err
			}
			if err := s.RecordResult(ctx, c.Token, store.Result{EvaluatorID: "exact", Data: json.RawMessage(`[{"score":1}]`)}); err != nil {
				return err
			}
			return s.Finish(ctx, c.Token, &score)
		})
		if run, err := s.Run(ctx, p.RunID); err != nil || !run.Final() {
			b.Fatal(run, err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(rollouts), "µs/rollout")
}

// suspended makes a store with n suspended rollouts, each waiting for a job that is polled.
func suspended(b *testing.B, n int) (dir, runID string) {
	b.Helper()
	ctx := context.Background()
	dir = b.TempDir()
	s := open(b, dir)
	p := benchPlan(n)
	if _, err := s.CreateRun(ctx, p); err != nil {
		b.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	for {
		claims, err := s.Claim(ctx, p.RunID, 500)
		if err != nil {
			b.Fatal(err)
		}
		if len(claims) == 0 {
			break
		}
		var group sync.WaitGroup
		for _, c := range claims {
			group.Go(func() {
				if _, err := s.CommitSegment(ctx, c.Token, store.SegmentEnd{Outcome: store.OutcomeSuspended, SuspendTimeout: 24 * time.Hour, Triggers: []store.NewTrigger{
					{InterruptID: "i", Type: "JOB", Name: "JOB", Source: "http", KeyPrefix: "job-", Spec: json.RawMessage(`{"name":"p","input_arguments":{"a":1}}`), Checked: true, NextCheck: later}}}); err != nil {
					b.Error(err)
				}
			})
		}
		group.Wait()
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return dir, p.RunID
}

// BenchmarkSuspended measures what 10,000 rollouts that wait cost those who look at the store.
func BenchmarkSuspended(b *testing.B) {
	ctx := context.Background()
	waiting := testenv.Size(10_000, 1000)
	dir, runID := suspended(b, waiting)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s, err := sqlite.Open(dir, store.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	s := open(b, dir)

	for _, of := range []struct{ name, runID string }{{"store", ""}, {"run", runID}} {
		for _, op := range []struct {
			name string
			run  func(runID string) error
		}{
			{"triggers", func(runID string) error {
				n := 0
				err := s.Triggers(ctx, runID, false, func(store.Trigger) error { n++; return nil })
				if n != waiting {
					return fmt.Errorf("%d triggers", n)
				}
				return err
			}},
			{"claim", func(runID string) error { _, err := s.Claim(ctx, runID, 10); return err }},
			{"claimTriggers", func(runID string) error { _, err := s.ClaimTriggers(ctx, runID, 10); return err }},
			{"backlog", func(runID string) error { _, err := s.Backlog(ctx, runID); return err }},
		} {
			b.Run(op.name+"/"+of.name, func(b *testing.B) {
				for b.Loop() {
					if err := op.run(of.runID); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("run", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Run(ctx, runID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			if err := s.Snapshot(ctx, runID, func(v store.View) error { return v.Rollouts(func(store.RolloutView) error { return nil }) }); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkClaim claims one of 10,000 rollouts that can be claimed.
func BenchmarkClaim(b *testing.B) {
	ctx := context.Background()
	s := open(b, b.TempDir())
	if _, err := s.CreateRun(ctx, benchPlan(testenv.Size(10_000, 1000))); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if claims, err := s.Claim(ctx, "", 1); err != nil || len(claims) != 1 {
			b.Fatal(claims, err)
		}
	}
}
