package sandbox

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/cgroup"
)

// guardInit protects the memory and the files of the init from processes in the space, which have
// the same user.
func guardInit() {
	if os.Getpid() == 1 || os.Getppid() == 1 { // in a container it is a child of the first process
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // this cannot fail
	}
}

// starts are commands for the thread that starts processes in spaces.
var starts = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		// The thread is kept for as long as evalrun lives: bwrap ends when the thread that has
		// started it does.
		runtime.LockOSThread()
		pprof.SetGoroutineLabels(context.Background()) // it does not belong to the goroutine that needs it first
		// A system without keyrings, or one that forbids them, has none to share.
		_, _ = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
		for do := range work {
			do()
		}
	}()
	return work
})

// startIsolated starts a command with a session keyring that is not that of evalrun and its user,
// where a token may be, and in a group of processes if it has one.
func startIsolated(cmd *exec.Cmd, group *cgroup.Group) error {
	failed := make(chan error)
	starts() <- func() { failed <- group.Start(cmd, (*exec.Cmd).Start) }
	return <-failed
}
