package crash

import (
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// ticksAtMost is how many ticks may be needed when none is killed any more. Nothing waits between
// them, and jobs take their time.
const ticksAtMost = 5000

// TestTicks has a run be worked on by nothing but ticks, each a process of its own, two at once, which are
// killed while they work and after their answer. All rollouts end, and nothing is done twice.
func TestTicks(t *testing.T) {
	testenv.NeedLong(t)
	for i := range max(kills(t)/30, 1) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			s := newLargeScenario(t, "failpoint", 2)
			s.kills = 16
			if !s.killed(s.command("EVALRUN_FAILPOINT=kill:rollout.claimed:1")) {
				t.Fatal("the process that made the run was not killed")
			}
			random := rand.New(rand.NewPCG(uint64(number(t, "EVALRUN_SEED", int(rand.Uint32()))), uint64(i)))
			for range s.kills / 2 {
				var both sync.WaitGroup
				for range 2 {
					moment := time.Duration(random.IntN(600)) * time.Millisecond
					both.Go(func() {
						tick := s.tick()
						if err := tick.Start(); err != nil {
							t.Error(err)
							return
						}
						timer := time.AfterFunc(moment, func() { _ = tick.Process.Kill() })
						_ = tick.Wait() // killed, or done
						timer.Stop()
					})
				}
				both.Wait()
			}
			ticks, left := 0, true
			for ; left && ticks < ticksAtMost; ticks++ {
				left = s.goesOnAfterTick()
			}
			t.Logf("%d ticks after the last kill", ticks)
			for _, wrong := range s.violations() {
				t.Error(wrong)
			}
		})
	}
}

// tick is a process that does what is due.
func (s *scenario) tick() *exec.Cmd {
	cmd := s.command()
	cmd.Args = []string{s.program, "executor", "--once", "--max-time", "50s", "-q", "--json"}
	return cmd
}

// goesOnAfterTick has a tick do what is due, and reports whether the run goes on without anybody's doing.
func (s *scenario) goesOnAfterTick() bool {
	s.t.Helper()
	out, err := s.tick().Output()
	var left struct {
		Next *time.Time `json:"next"`
	}
	if err == nil {
		err = json.Unmarshal(out, &left)
	}
	if err != nil {
		s.t.Fatalf("a tick: %v\n%s", err, out)
	}
	return left.Next != nil
}
