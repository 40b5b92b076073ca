package web_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// BenchmarkStreams measures what 100 browsers that look at a run cost it: a run of 1,000 rollouts, in
// the process that serves its pages, with nobody looking and with 100 streams of its changes, by turns.
// x-quiet is the median of the ratios of five pairs by the clock, and x-quiet-cpu that of the time of
// processors, which others on the machine disturb less; at most 1.15 is wanted. The agent is as quick as one
// can be, so that there is no idle time in which the streams cost nothing.
func BenchmarkStreams(b *testing.B) {
	pairs, streams, rollouts := testenv.Size(5, 1), testenv.Size(100, 10), testenv.Size(1000, 50)
	for b.Loop() {
		var clock, cpu []float64
		for i := range pairs {
			took := map[int]cost{}
			for _, n := range [][]int{{0, streams}, {streams, 0}}[i%2] {
				took[n] = watchedRun(b, n, rollouts)
			}
			b.Logf("nobody looks: %v, %d streams: %v", took[0], streams, took[streams])
			clock, cpu = append(clock, float64(took[streams].clock)/float64(took[0].clock)), append(cpu, float64(took[streams].cpu)/float64(took[0].cpu))
		}
		slices.Sort(clock)
		slices.Sort(cpu)
		b.ReportMetric(clock[pairs/2], "x-quiet")
		b.ReportMetric(cpu[pairs/2], "x-quiet-cpu")
	}
}

// cost is how long a run took, and the time of processors that this process and its agents had.
type cost struct{ clock, cpu time.Duration }

// cpuTime is the time of processors that this process and those of its children that have ended had.
func cpuTime(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// watchedRun runs a set while n clients listen to the stream of its run, and returns what it took.
func watchedRun(b *testing.B, n, rollouts int) cost {
	b.Helper()
	dir := b.TempDir()
	var evaluations []string
	for i := range rollouts {
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "e%d", "name": "Evaluation %d", "inputs": {"n": %d}, "evaluationCriterias": {"x": {"expectedOutput": {"n": %d}}}}`, i, i, i, i+i%2))
	}
	path := filepath.Join(dir, "set.json")
	if err := os.WriteFile(path, []byte(`{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sed", "s/.*\"input\"://; s/,\"resume\".*//"]},
		"evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "n"}}], "evaluations": [`+strings.Join(evaluations, ",")+`]}`), 0o600); err != nil {
		b.Fatal(err)
	}
	set, err := runner.Load([]string{path}, runner.LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := runner.Open(filepath.Join(dir, "store"), runner.OpenOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	created, err := s.Create(b.Context(), set, runner.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(pagesOf(s))
	defer server.Close()
	ctx, cancel := context.WithCancel(b.Context())
	var listening sync.WaitGroup
	defer listening.Wait()
	defer cancel()
	for range n {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/runs/"+created.RunID+"/live", nil)
		if err != nil {
			b.Fatal(err)
		}
		a, err := http.DefaultClient.Do(r)
		if err != nil || a.StatusCode != http.StatusOK {
			b.Fatal(a, err)
		}
		listening.Go(func() {
			_, _ = io.Copy(io.Discard, a.Body) // until the run is over, or this one is cancelled
			_ = a.Body.Close()
		})
	}
	began, before := time.Now(), cpuTime(b)
	if _, err := s.Run(ctx, created.RunID, runner.RunOptions{}); err != nil {
		b.Fatal(err)
	}
	return cost{time.Since(began), cpuTime(b) - before}
}
