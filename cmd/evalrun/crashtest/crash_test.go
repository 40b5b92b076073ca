package crashtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
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

// TestKilledAtEachStep kills one process at its N-th durable step, for every N or for as many as there is time for, spread evenly.
func TestKilledAtEachStep(t *testing.T) {
	if testing.Short() {
		t.Skip("kills real processes")
	}
	steps := countSteps(t)
	n := min(kills(t), steps)
	t.Logf("%d durable steps, %d kills", steps, n)
	for i := range n {
		step := 1 + i*steps/n
		t.Run(fmt.Sprintf("step %d", step), func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, "failpoint")
			if !s.killed(s.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:any:%d", step))) {
				t.Logf("there was no step %d this time", step)
			}
			s.finish()
			for _, wrong := range s.violations() {
				t.Error(wrong)
			}
		})
	}
}

// countSteps counts the durable steps of an undisturbed run, by halving: the process is killed if there are at least so many.
func countSteps(t *testing.T) int {
	low, high := 1, 2048
	for low < high {
		middle := (low + high + 1) / 2
		s := newScenario(t, "failpoint")
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
	if testing.Short() {
		t.Skip("kills real processes")
	}
	const perRun = 4
	for i := range max(kills(t)/perRun, 1) {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, "failpoint")
			for range perRun {
				cmd := s.command()
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				// A moment of the process's life, not a wait for something: it is killed whatever it is doing then.
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
}

// TestStopped stops a process at a step until its lease has run out and another one has finished the run. When it goes on it must not
// change anything any more.
//
// The whole process is stopped, so its other goroutines stop wherever they are. If one of them is between its last look at the clock and the
// arrival of its request at a service that cannot deduplicate, the job is started twice, and no client can prevent that. So such jobs are there only
// where they are stopped just before that look.
func TestStopped(t *testing.T) {
	for _, step := range []string{"runner.agentEnded", "runner.filesSynced", "runner.segmentCommitted", "runner.evaluated", "trigger.starting"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			var without []string
			if step != "trigger.starting" {
				without = []string{"Searchable"}
			}
			s := newScenario(t, "failpoint", without...)
			s.overtake(step)
			for _, wrong := range s.violations() {
				t.Error(wrong)
			}
		})
	}
}

// overtake stops a process at the first hit of a step, has another one finish the run, and lets the first go on to its end.
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
	s.finish(lease)
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		s.t.Fatal(err)
	}
	_ = stopped.Wait() // whatever it says: what counts is what it has changed
}

// TestIntentIsNeeded builds evalrun without the row that is committed before a job is started. The suite must notice.
func TestIntentIsNeeded(t *testing.T) {
	for n := range 5 {
		s := newScenario(t, "failpoint nointent")
		if !s.killed(s.command(fmt.Sprintf("EVALRUN_FAILPOINT=kill:runner.sourceStarted.http:%d", n+1))) {
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
	s := newScenario(t, "failpoint nofence")
	s.overtake("runner.filesSynced")
	if len(s.violations()) == 0 {
		t.Error("without the fencing check a rollout should have finished twice, and did not: the suite cannot see it")
	}
}
