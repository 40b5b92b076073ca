package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

func TestAWorkerServesOneJobAfterAnother(t *testing.T) {
	w := newWorld(t, "well", false)
	first := w.do("a")
	for n := 2; n <= 5; n++ {
		if d := w.do("b"); d.n != n || d.pid != first.pid || d.stderr != "does b" {
			t.Errorf("job %d: got %+v", n, d)
		}
	}
	if w.started != 1 || first.stderr != "does a" {
		t.Errorf("%d workers were started; the first job printed %q", w.started, first.stderr)
	}
}

func TestAFreshPoolGivesEachJobAWorkerOfItsOwn(t *testing.T) {
	w := newWorld(t, "well", true)
	for range 5 {
		if d := w.do("a"); d.n != 1 || d.stderr != "does a" {
			t.Errorf("got %+v", d)
		}
	}
	if w.started != 5 {
		t.Errorf("%d workers were started", w.started)
	}
}

func TestAWorkerWithoutMarks(t *testing.T) {
	w := newWorld(t, "without marks", false)
	w.do("a")
	if d := w.do("error"); d.Error == nil || d.Error.Message != "bad thing" || w.started != 1 {
		t.Errorf("got %+v, %d started", d, w.started)
	}
}

// What a worker does harms the job that it has, and not the next one.
func TestWhatAWorkerDoesHarmsOneJob(t *testing.T) {
	for what, want := range map[string]struct {
		category fault.Category
		says     string
	}{
		"exit":    {fault.Exit, "the agent's worker ended with exit status 4"},
		"close":   {fault.Exit, "the agent's worker ended with"},
		"other":   {fault.InvalidOutput, "it has the id of another request: 999"},
		"none":    {fault.InvalidOutput, `it has no "id"`},
		"nan":     {fault.InvalidOutput, "it is no JSON object"},
		"neither": {fault.InvalidOutput, `not exactly one of "output" and "error"`},
		"no json": {fault.InvalidOutput, `it is no JSON object that is an answer: "Traceback"`},
		"huge":    {fault.OutputLimit, "more than 1000 bytes"},
		"long":    {fault.OutputLimit, "more than 1000 bytes"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, "well", false)
			before := w.do("a")
			bad := w.do(what)
			if bad.Fault == nil || bad.Fault.Category != want.category || !strings.Contains(bad.Fault.Message, want.says) {
				t.Errorf("got %+v", bad.Fault)
			}
			if !strings.HasPrefix(bad.stderr, "does "+what) {
				t.Errorf("its stderr is %q", bad.stderr)
			}
			if after := w.do("b"); after.n != 1 || after.pid == before.pid || after.stderr != "does b" || w.started != 2 {
				t.Errorf("the next job: got %+v, %d workers were started", after, w.started)
			}
		})
	}
}

func TestAnAnswerThatComesTwiceHarmsNoOtherJob(t *testing.T) {
	w := newWorld(t, "well", false)
	w.do("twice")
	for range 3 {
		if d := w.do("a"); d.Fault != nil {
			t.Errorf("got %+v", d.Fault)
		}
	}
	if w.started != 2 {
		t.Errorf("%d workers were started: the one that answered twice is to be replaced", w.started)
	}
}

// A worker that died without a job is replaced, and the job does not notice.
func TestAWorkerThatDiesBetweenJobs(t *testing.T) {
	w := newWorld(t, "well", false)
	for range 3 {
		if d := w.do("leaves"); d.n != 1 || d.Fault != nil {
			t.Errorf("got %+v", d)
		}
	}
	if w.started != 3 {
		t.Errorf("%d workers were started", w.started)
	}
}

// A worker whose stderr is closed tells no more where its jobs begin. A job at which it dies may have
// begun, and is not done again.
func TestAWorkerWithoutStderrDoesNoJobTwice(t *testing.T) {
	endMarkTime = 100 * time.Millisecond
	t.Cleanup(func() { endMarkTime = 5 * time.Second })
	w := newWorld(t, "well", false)
	for range 2 {
		if d := w.do("close stderr"); d.Fault != nil {
			t.Fatalf("got %+v", d.Fault)
		}
	}
	if d := w.do("exit"); d.Fault == nil || d.Fault.Category != fault.Exit || w.started != 1 {
		t.Errorf("got %+v after %d starts", d, w.started)
	}
}

// What a worker starts for a job is gone with the worker, though it has the marker of the job.
func TestWhatAWorkerStartsEndsWithIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux shows the environments of processes")
	}
	w := newWorld(t, "well", false)
	pid, err := strconv.Atoi(strings.TrimPrefix(w.do("start").stderr, "does start "))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.pool.Close(); err != nil {
		t.Fatal(err)
	}
	// A process that was killed may not be reaped yet.
	if left, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); len(left) > 0 {
		t.Errorf("process %d is still there: %q", pid, left)
	}
}

func TestAJobThatHangsIsEndedWithItsContext(t *testing.T) {
	w := newWorld(t, "well", false)
	w.do("a")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("too long"))
	defer cancel()
	if d := w.doWith(ctx, "hang"); d.Output != nil || d.Error != nil || d.Fault != nil {
		t.Errorf("got %+v", d)
	}
	if d := w.do("b"); d.n == 0 {
		t.Errorf("the next job: got %+v", d)
	}
}

func TestAWorkerIsReplaced(t *testing.T) {
	for name, c := range map[string]struct {
		what string
		jobs int
	}{
		"that has grown":               {"grown", 1},
		"whose loop is closed":         {"closed", 1},
		"that leaves something thrice": {"dirty", 3},
		"that has done many jobs":      {"a", maxJobs},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "well", false)
			for n := range c.jobs {
				if d := w.do(c.what); d.n != n+1 {
					t.Fatalf("job %d: got %+v", n+1, d)
				}
			}
			if d := w.do("a"); d.n != 1 {
				t.Errorf("got %+v", d)
			}
		})
	}
}

// A worker that says why it cannot work would say so again: it is asked once.
func TestAWorkerThatRefuses(t *testing.T) {
	w := newWorld(t, "refuses", false)
	for range 3 {
		if d := w.do("a"); d.Fault == nil || d.Fault.Category != fault.Start || d.Fault.Message != "it has no packages" {
			t.Errorf("got %+v", d.Fault)
		}
	}
	if w.started != 1 {
		t.Errorf("it was started %d times", w.started)
	}
}

func TestWhatIsPrintedBeforeTheGreeting(t *testing.T) {
	if d := newWorld(t, "talks first", false).do("a"); d.n != 1 || d.stderr != "loading\n{\"evalrun\":1,\"nonce\":\"another\"}\ndoes a" {
		t.Errorf("got %+v", d)
	}
	for how, want := range map[string]string{
		"dies":         "ended before it was ready: exit status 7",
		"never greets": "printed more than 64 kB and did not greet evalrun",
	} {
		if d := newWorld(t, how, false).do("a"); d.Fault == nil || d.Fault.Category != fault.Start || !strings.Contains(d.Fault.Message, want) {
			t.Errorf("%s: got %+v", how, d.Fault)
		}
	}
}

func TestAfterThreeDeathsWorkersAreNotKept(t *testing.T) {
	w := newWorld(t, "well", false)
	var said []bool
	for range 4 {
		said = append(said, strings.HasSuffix(w.do("exit").stderr, givenUp))
	}
	if !slices.Equal(said, []bool{false, false, true, false}) {
		t.Errorf("it was said after %v", said)
	}
	for range 2 {
		if d := w.do("a"); d.n != 1 {
			t.Errorf("got %+v", d)
		}
	}
}

// Rollouts that wait need no process.
func TestAWorkerThatNobodyNeedsIsEnded(t *testing.T) {
	w := newWorld(t, "well", false)
	w.pool.idle = time.Nanosecond
	first := w.do("a")
	w.pool.mu.Lock()
	for w.pool.alive > 0 {
		changed := w.pool.changed
		w.pool.mu.Unlock()
		<-changed
		w.pool.mu.Lock()
	}
	w.pool.mu.Unlock()
	if d := w.do("b"); d.pid == first.pid || d.n != 1 {
		t.Errorf("got %+v", d)
	}
}

func TestJobsAtOnce(t *testing.T) {
	w := newWorld(t, "well", false)
	var all sync.WaitGroup
	for i := range 40 {
		what := []string{"a", "exit", "twice", "error"}[i%4]
		all.Go(func() {
			d := w.do(what)
			if (what == "exit") != (d.Fault != nil) || (what == "error") != (d.Error != nil) {
				t.Errorf("%s: got %+v", what, d)
			}
		})
	}
	all.Wait()
}
