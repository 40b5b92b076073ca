package sandbox

import (
	"context"
	"errors"
	"net"
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

// starts are commands for the thread that starts processes in spaces, and tied are those for the
// one that starts processes which end with evalrun.
var (
	starts = sync.OnceValue(func() chan<- func() {
		return thread(func() {
			// A system without keyrings, or one that forbids them, has none to share.
			_, _ = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0)
		})
	})
	tied = sync.OnceValue(func() chan<- func() { return thread(func() {}) })
)

// thread makes a thread that does what comes through the channel. It is kept for as long as evalrun
// lives: bwrap, and a process that is to get a signal at the death of its parent, end when the thread
// that has started them does.
func thread(first func()) chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		pprof.SetGoroutineLabels(context.Background()) // it does not belong to the goroutine that needs it first
		first()
		for do := range work {
			do()
		}
	}()
	return work
}

// startTied starts a command that is killed when evalrun ends.
func startTied(cmd *exec.Cmd, group *cgroup.Group) error {
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL
	failed := make(chan error)
	tied() <- func() { failed <- group.Start(cmd, (*exec.Cmd).Start) }
	return <-failed
}

// startIsolated starts a command with a session keyring that is not that of evalrun and its user,
// where a token may be, and in a group of processes if it has one.
func startIsolated(cmd *exec.Cmd, group *cgroup.Group) error {
	failed := make(chan error)
	starts() <- func() { failed <- group.Start(cmd, (*exec.Cmd).Start) }
	return <-failed
}

// awaitHangup waits until both directions of a connection are closed, by either side, whatever has
// still to be read. The end of the input alone cannot show that a client has gone while a program
// does not read what it had sent.
func awaitHangup(c *net.UnixConn, _ <-chan struct{}) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Control(func(fd uintptr) { // fails for a closed connection only
		for {
			if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd)}}, -1); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
}
