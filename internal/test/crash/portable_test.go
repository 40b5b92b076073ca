package crash

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// TestMachinesAreLost kills a process at its N-th durable step, and then removes all files of the runs
// but the store itself, as if the machine were gone: what was suspended goes on with what the store has,
// and everything else begins its segment again. No answer and no file that a suspension had is lost.
func TestMachinesAreLost(t *testing.T) {
	testenv.NeedSlow(t)
	const inStore = "EVALRUN_PORTABLE=1"
	n := 4
	if os.Getenv(testenv.Long) != "" {
		n = kills(t)
	}
	const steps = 100 // of about 120, by which all has ended
	for i := range n {
		step := 1 + (2*i+1)*steps/(2*n)
		t.Run(fmt.Sprintf("step %d", step), func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, "failpoint")
			s.kills = 1
			for range 2 { // two machines are lost
				if !s.killed(s.command(inStore, fmt.Sprintf("EVALRUN_FAILPOINT=kill:any:%d", step))) {
					t.Logf("there was no step %d this time", step)
				}
				of := filepath.Join(s.dir, ".evalrun")
				if err := errors.Join(os.RemoveAll(filepath.Join(of, "work")), os.RemoveAll(filepath.Join(of, "runs"))); err != nil {
					t.Fatal(err)
				}
			}
			s.finish(inStore)
			for _, wrong := range s.violations() {
				t.Error(wrong)
			}
		})
	}
}
