//go:build !linux

package sandbox

import (
	"os/exec"
	"syscall"
	"time"
)

// Sweep does nothing on this system. macOS does not let one process read the environment of another
// reliably, so only the process group is ended there. Processes that have left their group stay.
func Sweep(...string) (int, error) { return 0, nil }

func sweepAfter(int, time.Time, string) error { return nil }

// awaitExit waits until the process has ended and reaps it. For the id of its group to be taken
// before the group is signalled, the system would have to go through all process ids in that
// moment.
func awaitExit(cmd *exec.Cmd) { _ = cmd.Wait() } // the state is in cmd.ProcessState

// signalGroup sends a signal to a process group, which may be empty.
func signalGroup(pgid int, sig syscall.Signal) { _ = syscall.Kill(-pgid, sig) }
