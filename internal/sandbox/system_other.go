//go:build !linux

package sandbox

import (
	"errors"
	"net"
	"os/exec"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/internal/cgroup"
)

// Available returns the reason why bubblewrap cannot be used here: it is a program for Linux.
func Available() error {
	return errors.New("bubblewrap works on Linux only")
}

func (s *Config) wrap(*exec.Cmd, []string) error { return Available() }

// ImageAvailable returns the reason why a space over the root of an image cannot be made here.
func ImageAvailable() error {
	return errors.New("isolation \"image\" works on Linux only: choose isolation \"process\"")
}

// Open gives the mounted root to evalrun itself, on Linux.
func (r *Root) Open(string) (path string, closeRoot func(), err error) {
	return "", nil, ImageAvailable()
}

func rootMain(string) {}

func guardInit() {}

func startIsolated(cmd *exec.Cmd, group *cgroup.Group) error {
	return group.Start(cmd, (*exec.Cmd).Start)
}

// startTied cannot tie a process to evalrun on these systems.
func startTied(cmd *exec.Cmd, group *cgroup.Group) error {
	return group.Start(cmd, (*exec.Cmd).Start)
}

// awaitHangup waits until the input of a connection has ended. This system reports nothing more.
func awaitHangup(_ *net.UnixConn, input <-chan struct{}) { <-input }

var errNoContainers = errors.New("containers are entered from Linux only")

func (s *Config) enter(*exec.Cmd, bool) error { return errNoContainers }

// Mount needs Linux.
func (r *Root) Mount(string) error { return errNoContainers }

func visit([]string) int { return initFailed }

func hold() int { return initFailed }

func killOthers() {}

func (*Config) processLimit() int { return 0 }

func limitProcesses(int) error { return nil }

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
