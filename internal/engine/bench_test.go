package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// trivialAgent is a static program that prints {"r":1}, after as many milliseconds as its argument
// says.
const trivialAgent = `package main

import (
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) > 1 {
		ms, _ := strconv.Atoi(os.Args[1])
		time.Sleep(time.Duration(ms) * time.Millisecond)
	}
	os.Stdout.WriteString("{\"r\":1}\n")
}
`

// BenchmarkRun runs 500 evaluations at -j 2 and, in the same process, a bare loop that starts the
// same command with the same parallelism. added-ms/rollout is the difference, x-bare the ratio.
func BenchmarkRun(b *testing.B) {
	program := buildAgent(b)
	for _, args := range [][]string{{}, {"20"}} {
		name := "trivial"
		if len(args) > 0 {
			name = args[0] + "ms"
		}
		b.Run(name, func(b *testing.B) {
			n := testenv.Size(500, 50)
			command := append([]string{program}, args...)
			var bare, ours time.Duration
			for b.Loop() {
				bare += bareLoop(b, command, n)
				ours += fullRun(b, command, n)
			}
			b.ReportMetric(float64((ours-bare).Microseconds())/1000/float64(b.N*n), "added-ms/rollout")
			b.ReportMetric(float64(ours)/float64(bare), "x-bare")
			b.ReportMetric(float64(bare.Microseconds())/1000/float64(b.N*n), "bare-ms/rollout")
		})
	}
}

func buildAgent(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte(trivialAgent), 0o600); err != nil {
		b.Fatal(err)
	}
	program := filepath.Join(dir, "agent")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return program
}

func bareLoop(b *testing.B, command []string, n int) time.Duration {
	began := time.Now()
	work := make(chan struct{}, n)
	for range n {
		work <- struct{}{}
	}
	close(work)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range work {
				cmd := exec.Command(command[0], command[1:]...)
				cmd.Stdin = bytes.NewReader([]byte(`{"input":{}}`))
				if out, err := cmd.Output(); err != nil || len(out) == 0 {
					b.Errorf("%v: %q", err, out)
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

func fullRun(b *testing.B, command []string, n int) time.Duration {
	dir := b.TempDir()
	set := &eval.Set{ID: "bench", Name: "Benchmark", Epochs: 1, Limits: eval.Limits{Suspensions: 100}}
	set.Evaluators = []eval.Definition{{ID: "e", Name: "e", Type: "uipath-exact-match", Weight: 1, Config: json.RawMessage(`{"name":"e"}`)}}
	for i := range n {
		set.Evaluations = append(set.Evaluations, eval.Evaluation{ID: fmt.Sprint("e", i), Name: fmt.Sprint("E", i), Inputs: json.RawMessage(`{"x":1}`),
			Criteria: map[string]json.RawMessage{"e": json.RawMessage(`{"expectedOutput":{"r":1}}`)}})
	}
	began := time.Now()
	s, err := sqlite.Open(filepath.Join(dir, ".evalrun"), store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	plan, err := plans.New(plans.Request{Set: set, Agents: []agent.Entry{function.FromCommand(command)}, BaseDir: dir, WorkDir: dir}, s.Dir())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.CreateRun(context.Background(), plan); err != nil {
		b.Fatal(err)
	}
	r := engine.New(engine.Options{Store: s, RunID: plan.RunID, Concurrency: 2, WorkDir: dir, Resolve: os.LookupEnv})
	if err := r.Run(context.Background(), engine.UntilFinal); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	run, err := s.Run(context.Background(), plan.RunID)
	if err != nil || run.Counts.Completed != n {
		b.Fatalf("%+v, %v", run.Counts, err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}
