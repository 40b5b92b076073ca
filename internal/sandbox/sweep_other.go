//go:build !linux

package sandbox

import (
	"os/exec"
	"syscall"
	"time"
)

// Sweep does nothing on this system: macOS does not let one process read the environment of another
// reliably, so only the process group is ended there, and what has left its group stays.
func Sweep(...string) (int, error) { return 0, nil }

func sweepAfter(int, time.Time, string) error { return nil }

// awaitExit waits until the process has ended. It is reaped then; that its group's id is given away
// before the group is signalled would take a whole round of process ids in that moment.
func awaitExit(cmd *exec.Cmd) { _ = cmd.Wait() } // the state is in cmd.ProcessState

// signalGroup sends a signal to a process group. There may be nobody left in it.
func signalGroup(pgid int, sig syscall.Signal) { _ = syscall.Kill(-pgid, sig) }
