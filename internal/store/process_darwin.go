package store

import (
	"errors"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

func startTime(pid int) (start string, alive bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.EIO) // EIO: no such process
	}
	t := info.Proc.P_starttime
	return strconv.FormatInt(t.Sec, 10) + "." + strconv.FormatInt(int64(t.Usec), 10), true
}

var bootID = sync.OnceValue(func() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid") // without it every lease must run out
	return id
})

// pidNamespace is the same for all processes: macOS has only one.
func pidNamespace() string { return "darwin" }
