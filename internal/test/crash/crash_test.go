package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// kills is how often the suite kills in each of its two ways; CI sets EVALRUN_CRASH_KILLS.
func kills(t *testing.T) int {
	text := os.Getenv("EVALRUN_CRASH_KILLS")
	if text == "" {
		return 8
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("EVALRUN_CRASH_KILLS: %v", err)
	}
	return n
}

// TestKilledAtEachStep kills one process at its N-th durable step, for every N or for as many as
// there is time for, spread evenly.
func TestKilledAtEachStep(t *testing.T) {
	testenv.NeedLong(t)
	for _, kind := range kinds() {
		steps := countSteps(t, kind.scenario)
		n := min(max(kills(t)/kind.share, 1), steps)
		t.Logf("%s: %d durable steps, %d kills", kind.name, steps, n)
		for i := range n {
			killAt(t, kind, 1+i*steps/n)
		}
	}
}

func killAt(t *testing.T, kind kind, step int) {
	t.Run(fmt.Sprintf("%s step %d", kind.name, step), func(t *testing.T) {
		t.Parallel()
		s := kind.scenario(t)
		s.kills = 1
		if !s.killed(s.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:any:%d", step))) {
			t.Logf("there was no step %d this time", step)
		}
		s.finish()
		for _, wrong := range s.violations() {
			t.Error(wrong)
		}
	})
}

// kind is a kind of scenario.
type kind struct {
	name     string
	scenario func(*testing.T) *scenario
	// share is how many times fewer kills it gets.
	share int
}

// kinds are the kinds of scenarios: agents that wait for jobs, agents in environments that wait for a
// person, and evaluators that wait for both.
func kinds() []kind {
	all := []kind{{"jobs", func(t *testing.T) *scenario { return newScenario(t, "failpoint") }, 1}}
	all = append(all, kind{"calls", newCallingScenario, 2}, kind{"scored", newScoredScenario, 4})
	for _, isolation := range isolations() {
		all = append(all, kind{isolation, func(t *testing.T) *scenario { return newApprovedScenario(t, isolation) }, 4})
	}
	return all
}

// countSteps counts the durable steps of an undisturbed run, by halving: the process is killed if
// there are at least so many.
func countSteps(t *testing.T, scenario func(*testing.T) *scenario) int {
	low, high := 1, 2048
	for low < high {
		middle := (low + high + 1) / 2
		s := scenario(t)
		if s.killed(s.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:any:%d", middle))) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low
}

// TestKilledAtRandom kills process after process at random moments until the run is done.
func TestKilledAtRandom(t *testing.T) {
	testenv.NeedSlow(t)
	const perRun = 4
	all := kinds()
	if os.Getenv(testenv.Long) == "" {
		all = all[:1] // the others are killed in CI
	}
	for _, kind := range all {
		for i := range max(kills(t)/perRun/kind.share, 1) {
			killAtRandom(t, kind, i, perRun)
		}
	}
}

func killAtRandom(t *testing.T, kind kind, i, times int) {
	t.Run(kind.name+" "+strconv.Itoa(i), func(t *testing.T) {
		t.Parallel()
		s := kind.scenario(t)
		s.kills = times
		for range times {
			cmd := s.command()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// A moment of the process's life, not a wait for something: it is killed whatever it is
			// doing then.
			timer := time.AfterFunc(time.Duration(rand.IntN(600))*time.Millisecond, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait() // killed, or done
			timer.Stop()
		}
		s.finish()
		for _, wrong := range s.violations() {
			t.Error(wrong)
		}
	})
}

// TestStopped stops a process at a step until its lease has run out and another one has finished
// the run. When it goes on it must not change anything any more.
//
// The whole process is stopped, so its other goroutines stop wherever they are. If one of them is
// between its last look at the clock and the arrival of its request at a service that cannot
// deduplicate, the job is started twice, and no client can prevent that. So such jobs are there
// only where they are stopped just before that look.
func TestStopped(t *testing.T) {
	testenv.NeedLong(t)
	for _, step := range []string{"rollout.agentEnded", "rollout.filesSynced", "rollout.segmentCommitted", "rollout.evaluated", "trigger.starting"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			var without []string
			if step != "trigger.starting" {
				without = []string{"Searchable", asksProcess}
			}
			s := newScenario(t, "failpoint", without...)
			s.overtake(step)
			for _, wrong := range s.violations() {
				t.Error(wrong)
			}
		})
	}
}

// TestStoppedWithAgents is the same with agents in environments: the agent of the stopped process
// is still there when another one takes its rollout over.
func TestStoppedWithAgents(t *testing.T) {
	testenv.NeedLong(t)
	for _, isolation := range isolations() {
		for _, step := range []string{"rollout.claimed", "rollout.prepared", "rollout.agentEnded", "rollout.filesSynced", "rollout.segmentCommitted", "rollout.evaluated"} {
			t.Run(isolation+" "+step, func(t *testing.T) {
				t.Parallel()
				s := newApprovedScenario(t, isolation)
				s.overtake(step)
				for _, wrong := range s.violations() {
					t.Error(wrong)
				}
			})
		}
	}
}

// overtake stops a process at the first hit of a step, has another one finish the run, and lets the
// first go on to its end.
func (s *scenario) overtake(step string) {
	s.t.Helper()
	lease := "EVALRUN_LEASE=900ms"
	stopped := s.command(lease, "EVALRUN_FAILPOINT=stop:"+step+":1")
	if err := stopped.Start(); err != nil {
		s.t.Fatal(err)
	}
	var status syscall.WaitStatus
	for !status.Stopped() {
		if _, err := syscall.Wait4(stopped.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || status.Exited() {
			s.t.Fatalf("the process did not stop at %s: %v, %v", step, status, err)
		}
	}
	// Its other goroutines stopped wherever they were. If that is in a transaction nobody can write
	// before it goes on.
	locked := time.AfterFunc(15*time.Second, func() { _ = stopped.Process.Signal(syscall.SIGCONT) })
	s.finish(lease)
	if !locked.Stop() {
		s.t.Logf("stopped at %s, the process held a lock on the store", step)
	}
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Fatal(err)
	}
	_ = stopped.Wait() // whatever it says: what counts is what it has changed
}

// TestIntentIsNeeded builds evalrun without the row that is committed before a job is started. The
// suite must notice.
func TestIntentIsNeeded(t *testing.T) {
	testenv.NeedLong(t)
	for n := range 5 {
		s := newScenario(t, "failpoint nointent")
		if !s.killed(s.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:engine.sourceStarted.http:%d", n+1))) {
			t.Fatalf("no job was started for the %dth time", n+1)
		}
		s.finish()
		if len(s.violations()) > 0 {
			return
		}
	}
	t.Error("without the intent row a job should have been started twice, and was not: the suite cannot see it")
}

// TestFencingIsNeeded builds evalrun without the check of the fencing token. The suite must notice.
func TestFencingIsNeeded(t *testing.T) {
	testenv.NeedLong(t)
	s := newScenario(t, "failpoint nofence")
	s.overtake("rollout.filesSynced")
	if len(s.violations()) == 0 {
		t.Error("without the fencing check a rollout should have finished twice, and did not: the suite cannot see it")
	}
}
