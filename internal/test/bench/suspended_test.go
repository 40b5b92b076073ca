package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// suspended is how many rollouts wait.
func suspended() int { return testenv.Size(10_000, 1000) }

// BenchmarkExecutorIdle runs the real executor over 10,000 suspended rollouts while nothing is due,
// for EVALRUN_IDLE_SECONDS (default 5, with -short 1; the figures in docs/performance.md are of 60).
func BenchmarkExecutorIdle(b *testing.B) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		b.Skip("reads /proc")
	}
	measureExecutor(b, buildProgram(b), suspendedStore(b, external))
}

// idleTime is how long a process is watched that has nothing to do.
func idleTime() time.Duration {
	if n, err := strconv.Atoi(os.Getenv("EVALRUN_IDLE_SECONDS")); err == nil {
		return time.Duration(n) * time.Second
	}
	return time.Duration(testenv.Size(5, 1)) * time.Second
}

// measureExecutor runs the real executor over a store, and reports what it takes.
func measureExecutor(b *testing.B, program, dir string) {
	b.Helper()
	window := idleTime()
	for b.Loop() {
		cmd := exec.Command(program, "executor", "--store", dir)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(2 * time.Second) // the start is not what is measured
		before := cpuTime(b, cmd.Process.Pid)
		time.Sleep(window)
		used := cpuTime(b, cmd.Process.Pid) - before
		rss, anonymous := memory(b, cmd.Process.Pid)
		if err := cmd.Process.Signal(syscall.SIGQUIT); err != nil { // the runtime prints every goroutine
			b.Fatal(err)
		}
		_ = cmd.Wait() // ends with status 2
		b.ReportMetric(100*used.Seconds()/window.Seconds(), "%CPU")
		b.ReportMetric(rss, "MB-resident")
		b.ReportMetric(anonymous, "MB-anonymous")
		goroutines := len(regexp.MustCompile(`(?m)^goroutine \d+ `).FindAllString(stderr.String(), -1))
		b.ReportMetric(float64(goroutines), "goroutines")
		if goroutines > 100 {
			b.Errorf("%d goroutines for %d suspended rollouts; a waiter is to be no more than a row", goroutines, suspended())
		}
	}
}

// BenchmarkTriggers lists 10,000 triggers with the real program; BenchmarkOpen opens and closes
// their store.
func BenchmarkTriggers(b *testing.B) {
	program, dir := buildProgram(b), suspendedStore(b, external)
	for b.Loop() {
		out, err := exec.Command(program, "triggers", "--store", dir, "--json").Output()
		if n := bytes.Count(out, []byte(`"triggerId"`)); err != nil || n != suspended() {
			b.Fatalf("%d triggers, %v", n, err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	dir := suspendedStore(b, external)
	for b.Loop() {
		s, err := sqlite.Open(dir, store.Options{MustExist: true})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func buildProgram(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	if err := testenv.Build(dir, testenv.Evalrun); err != nil {
		b.Fatal(err)
	}
	return filepath.Join(dir, "evalrun")
}

// external is something outside that a rollout waits for.
func external(int) store.NewTrigger {
	return store.NewTrigger{
		InterruptID: "i", Type: "JOB", Name: "JOB", Source: "external", KeyPrefix: "job-", FolderPath: "Shared",
		Spec: json.RawMessage(`{"type":"JOB","name":"JOB","process":"P","payload":{"process_name":"P","input_arguments":{"a":1}}}`),
	}
}

// suspendedStore makes a store with 10,000 suspended rollouts of one run, each with the trigger
// that waits makes for it.
func suspendedStore(b *testing.B, waits func(i int) store.NewTrigger) string {
	b.Helper()
	dir := filepath.Join(b.TempDir(), ".evalrun")
	s, err := sqlite.Open(dir, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}()
	suspend(b, s, dir, suspended(), waits)
	return dir
}

// suspend makes a run in a store whose rollouts are suspended, each with the trigger that waits makes for it.
func suspend(b *testing.B, s *sqlite.Store, dir string, rollouts int, waits func(i int) store.NewTrigger) {
	b.Helper()
	ctx := context.Background()
	set := &eval.Set{ID: "bench", Name: "Benchmark", Epochs: 1, Limits: eval.Limits{Suspensions: 100}}
	for i := range rollouts {
		set.Evaluations = append(set.Evaluations, eval.Evaluation{ID: fmt.Sprint("e", i), Name: fmt.Sprint("Evaluation ", i), Inputs: json.RawMessage(`{"x":1}`)})
	}
	plan, err := plans.New(plans.Request{Set: set, Agents: []agent.Entry{function.FromCommand([]string{"true"})}, BaseDir: dir, WorkDir: dir}, dir)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.CreateRun(ctx, plan); err != nil {
		b.Fatal(err)
	}
	made := 0
	for left := rollouts; left > 0; {
		claims, err := s.Claim(ctx, plan.RunID, 200)
		if err != nil {
			b.Fatal(err)
		}
		errs := make(chan error, len(claims))
		for _, c := range claims {
			waitsFor := waits(made)
			made++
			go func() {
				_, err := s.CommitSegment(ctx, c.Token, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: []store.NewTrigger{waitsFor}})
				errs <- err
			}()
		}
		for range claims {
			if err := <-errs; err != nil {
				b.Fatal(err)
			}
		}
		left -= len(claims)
	}
}

// cpuTime is what a process has used, from fields 14 and 15 of /proc/<pid>/stat in ticks of 10 ms.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err == nil {
		if ns, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64); err == nil && ns > 0 {
			return sumThreads(b, pid)
		}
	}
	data, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// sumThreads adds up the nanoseconds that the threads of a process have run.
func sumThreads(b *testing.B, pid int) (total time.Duration) {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		ns, err := strconv.ParseInt(strings.Fields(string(data))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		total += time.Duration(ns)
	}
	return total
}

// memory is the resident memory of a process in MB, all of it and the anonymous part.
func memory(b *testing.B, pid int) (rss, anonymous float64) {
	b.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	field := func(name string) float64 {
		m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(data)
		if m == nil {
			b.Fatalf("no %s in the status of the process", name)
		}
		kb, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			b.Fatal(err)
		}
		return kb / 1024
	}
	return field("VmRSS"), field("RssAnon")
}
