package postgres_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/postgres"
	"github.com/evalrun/evalrun/internal/testenv"
)

// benchURL is the store that a process works on which BenchmarkSegments has started.
const benchURL = "STORE_BENCH_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(benchURL); url != "" {
		pause, err := time.ParseDuration(os.Getenv("STORE_BENCH_PAUSE"))
		if err == nil {
			err = workThrough(url, pause)
		}
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// places is how many segments a process of BenchmarkSegments has under way at once.
const places = 50

// workThrough says that it is ready, waits for its input to end, and then claims and ends rollouts
// of one segment until none is left to claim.
func workThrough(url string, pause time.Duration) (err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := postgres.Open(url, store.Options{Files: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	var all sync.WaitGroup
	failed := make(chan error, places)
	free := make(chan struct{}, places)
	for range places {
		free <- struct{}{}
	}
	score := 1.0
	work := func(c store.Claim) error {
		time.Sleep(pause)
		if _, err := s.CommitSegment(ctx, c.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{"r":1}`)}); err != nil {
			return err
		}
		return s.Finish(ctx, c.Token, &score, store.Result{EvaluatorID: "exact", Data: json.RawMessage(`[{"score":1}]`)})
	}
	for {
		<-free
		n := 1
		for more := true; more; {
			select {
			case <-free:
				n++
			default:
				more = false
			}
		}
		claims, err := s.Claim(ctx, "", n)
		if err != nil || len(claims) == 0 {
			all.Wait()
			close(failed)
			for one := range failed {
				err = errors.Join(err, one)
			}
			return err
		}
		for range n - len(claims) {
			free <- struct{}{}
		}
		for _, c := range claims {
			all.Go(func() {
				if err := work(c); err != nil {
					failed <- err
					return // the place stays taken
				}
				s.Forget(store.Tokens{Rollouts: []store.Token{c.Token}})
				free <- struct{}{}
			})
		}
	}
}

// BenchmarkSegments takes rollouts of one segment from their plan to their end, with processes that
// have 50 places each.
func BenchmarkSegments(b *testing.B) {
	for _, pause := range []time.Duration{0, 20 * time.Millisecond} {
		for _, processes := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%v/processes=%d", pause, processes), func(b *testing.B) {
				var took, processor time.Duration
				n := testenv.Size(3000, 200)
				for b.Loop() {
					by, of := segments(b, n, processes, pause)
					took, processor = took+by, processor+of
				}
				b.ReportMetric(float64(b.N*n)/took.Seconds(), "segments/s")
				b.ReportMetric(float64(processor.Microseconds())/float64(b.N*n), "client-µs/segment")
			})
		}
	}
}

func TestProcessesShareTheWork(t *testing.T) { segments(t, 150, 3, 0) }

// segments has processes end all rollouts of a plan. It returns how long it took by the clock, and the time that the processes had a processor.
func segments(b testing.TB, n, processes int, pause time.Duration) (took, processor time.Duration) {
	b.Helper()
	dir := b.TempDir()
	url := at(b, dir)
	s, err := postgres.Open(url, store.Options{Files: dir})
	if err != nil {
		b.Fatal(err)
	}
	p := store.Plan{RunID: store.NewRunID(), Name: "bench", Data: json.RawMessage(`{}`)}
	for i := range n {
		id := fmt.Sprintf("e%05d", i)
		p.Evaluations = append(p.Evaluations, store.Evaluation{ID: id, Data: json.RawMessage(`{"inputs":{"x":1}}`)})
		p.Rollouts = append(p.Rollouts, store.PlannedRollout{ID: store.RolloutID(p.RunID, id, "agent", 1), Evaluation: i, EvaluationName: id, Agent: "agent", Epoch: 1})
	}
	if _, err := s.CreateRun(b.Context(), p); err != nil {
		b.Fatal(err)
	}
	var inputs []io.Closer
	var all []*exec.Cmd
	for range processes {
		cmd := exec.CommandContext(b.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), benchURL+"="+url, "STORE_BENCH_PAUSE="+pause.String())
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			b.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			b.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			b.Fatal(err)
		}
		inputs, all = append(inputs, in), append(all, cmd)
	}
	began := time.Now()
	for _, in := range inputs {
		if err := in.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for _, cmd := range all {
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		processor += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	took = time.Since(began)
	if run, err := s.Run(b.Context(), p.RunID); err != nil || run.Counts.Completed != n || !run.Final() {
		b.Fatalf("%+v, %v", run.Counts, err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	return took, processor
}
