package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/workspace"
)

// BenchmarkDeliveries delivers to five runs, one after the other, while an executor watches five
// open runs, and again while it watches a thousand. cpu-ms/delivery is what that costs this
// process, executor and delivery together; x-five is the ratio of the two.
func BenchmarkDeliveries(b *testing.B) {
	var few, many time.Duration
	for b.Loop() {
		few += deliverAmong(b, 5)
		many += deliverAmong(b, testenv.Size(1000, 50))
	}
	b.ReportMetric(few.Seconds()*1000/5/float64(b.N), "cpu-ms/delivery-of-5")
	b.ReportMetric(many.Seconds()*1000/5/float64(b.N), "cpu-ms/delivery-of-1000")
	b.ReportMetric(float64(many)/float64(few), "x-five")
}

func deliverAmong(b *testing.B, open int) time.Duration {
	dir := b.TempDir()
	s, err := sqlite.Open(filepath.Join(dir, ".evalrun"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range open + 1 { // one is for the executor to begin with
		suspendedRun(b, s, dir, i)
	}
	other, err := sqlite.Open(s.Dir(), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer other.Close()
	finished := make(chan struct{}, 1)
	r := engine.New(engine.Options{Store: s, Concurrency: 2, WorkDir: dir, Resolve: os.LookupEnv, Events: func(e store.Event) {
		if e.Type == store.RunFinished {
			finished <- struct{}{}
		}
	}})
	done := make(chan error, 1)
	go func() { done <- r.Run(context.Background(), engine.UntilStopped) }()
	deliver := func(i int) {
		receipt, err := other.Deliver(context.Background(), store.Delivery{Source: "external", ItemKey: fmt.Sprint("key-", i), Status: store.StatusSuccessful, Payload: json.RawMessage(`{}`)})
		if err != nil || receipt.Disposition != store.Accepted {
			b.Fatal(receipt.Disposition, err)
		}
		<-finished
	}
	deliver(open)
	before := cpuTime(b)
	for i := range 5 {
		deliver(i)
	}
	took := cpuTime(b) - before
	r.Stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	return took
}

// suspendedRun makes a run of one rollout that waits for a key. No agent is run for that.
func suspendedRun(b *testing.B, s *sqlite.Store, dir string, i int) {
	ctx := context.Background()
	id, key := fmt.Sprint("run-", i), fmt.Sprint("key-", i)
	set := &eval.Set{ID: "bench", Name: "Benchmark", Epochs: 1, Limits: eval.Limits{Suspensions: 100, OutputBytes: 1 << 20},
		Evaluations: []eval.Evaluation{{ID: "e", Name: "E", Inputs: json.RawMessage(`{}`), Criteria: map[string]json.RawMessage{}}}}
	plan, err := plans.New(plans.Request{RunID: id, Set: set, Agents: []agent.Entry{function.FromCommand([]string{"echo", "{}"})}, BaseDir: dir, WorkDir: dir}, s.Dir())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.CreateRun(ctx, plan); err != nil {
		b.Fatal(err)
	}
	claims, err := s.Claim(ctx, id, 1)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(files.Of(s).Work(claims[0].RolloutID), workspace.FolderWorkspace), 0o700); err != nil {
		b.Fatal(err)
	}
	if _, err := s.CommitSegment(ctx, claims[0].Token, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: []store.NewTrigger{{InterruptID: "i", Type: "JOB", Name: "JOB",
		Source: "external", ItemKey: key, Spec: json.RawMessage(`{"type":"JOB","name":"JOB","itemKey":"` + key + `"}`)}}}); err != nil {
		b.Fatal(err)
	}
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
