package runner_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// BenchmarkScore scores stored outputs again with three evaluators each, the results document and
// the verdict included. It reports the most that the live heap grew in another such call.
func BenchmarkScore(b *testing.B) {
	for _, n := range []int{testenv.Size(1000, 100), testenv.Size(10000, 1000)} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, runID := storedRun(b, n)
			score := func() {
				scored, err := s.Score(b.Context(), runID, runner.ScoreOptions{})
				if err != nil || scored.Scored != n || scored.Verdict != runner.Finished {
					b.Fatal(scored, err)
				}
			}
			before := processorTime()
			for b.Loop() {
				score()
			}
			b.StopTimer()
			b.ReportMetric((processorTime()-before).Seconds()/float64(b.N), "cpu-s/op")
			b.ReportMetric(float64(heapGrowth(score))/(1<<20), "peak-MiB")
		})
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heapGrowth is the most that the live heap grows while f runs.
func heapGrowth(f func()) (growth uint64) {
	live := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	base, stop := live(), make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if now := live(); now > base {
					growth = max(growth, now-base)
				}
			}
		}
	})
	f()
	close(stop)
	watching.Wait()
	return growth
}

// storedRun is a final run of n rollouts with an output of 1 KiB each.
func storedRun(b *testing.B, n int) (*runner.Store, string) {
	b.Helper()
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	text := bytes.Repeat([]byte("x"), 1000)
	evaluators := []map[string]any{}
	criteria := map[string]any{}
	for id, typ := range map[string]string{"exact": "uipath-exact-match", "contains": "uipath-contains", "similar": "uipath-json-similarity"} {
		config := map[string]any{}
		criteria[id] = map[string]any{"expectedOutput": map[string]any{"sum": 3, "text": string(text)}}
		if id == "contains" {
			config["targetOutputKey"] = "text"
			criteria[id] = map[string]any{"searchText": "xx"}
		}
		evaluators = append(evaluators, map[string]any{"id": id, "evaluatorTypeId": typ, "evaluatorConfig": config})
	}
	var evaluations []map[string]any
	for i := range n {
		id := fmt.Sprint("e", i)
		evaluations = append(evaluations, map[string]any{"id": id, "name": id, "inputs": map[string]any{"a": 1}, "evaluationCriterias": criteria})
	}
	data, err := json.Marshal(map[string]any{"version": "1.0", "id": "s", "name": "S", "evaluators": evaluators, "evaluations": evaluations})
	check(err)
	path := filepath.Join(b.TempDir(), "evalset.json")
	check(os.WriteFile(path, data, 0o600))
	s, run := begin(path)
	b.Cleanup(func() { check(s.Close()) })
	output := json.RawMessage(fmt.Sprintf(`{"sum":3,"text":%q}`, text))
	st := s.Internal()
	claims, err := st.Claim(b.Context(), run.RunID, n)
	check(err)
	var ending sync.WaitGroup
	todo := make(chan store.Claim)
	for range 64 {
		ending.Go(func() {
			for c := range todo {
				_, err := st.CommitSegment(b.Context(), c.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: output})
				if err == nil {
					err = st.Finish(b.Context(), c.Token, nil)
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, c := range claims {
		todo <- c
	}
	close(todo)
	ending.Wait()
	return s, run.RunID
}
