package sandbox

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/cgroup"
)

// processLimit is how many processes and threads the init of a space allows, 0 for any number. It
// is the number of the config, if no control group keeps to it and the system counts them for the
// space alone. Since Linux 5.14 it does so for each user in each user namespace, and an ordinary
// user's space is one. A process that makes another namespace in it is still counted in this one.
func (c *Config) processLimit() int {
	if !c.Isolated() || c.Contained() || c.IsRemote() || os.Geteuid() == 0 ||
		cgroup.Missing()[cgroup.PIDs] == nil || !countsInNamespaces() {
		return 0
	}
	return c.Limits.PIDs
}

// countsInNamespaces reports whether this is Linux 5.14 or newer.
func countsInNamespaces() bool {
	var u unix.Utsname
	var major, minor int
	if unix.Uname(&u) != nil {
		return false
	}
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 5 || major == 5 && minor >= 14
}

// limitProcesses sets a limit of processes in this namespace, for this process and all that it
// starts.
func limitProcesses(n int) error {
	if n == 0 {
		return nil
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &old); err != nil {
		return err
	}
	limit := min(uint64(n), old.Max) // the limit can only be lowered
	return unix.Setrlimit(unix.RLIMIT_NPROC, &unix.Rlimit{Cur: limit, Max: limit})
}
