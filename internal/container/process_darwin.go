package container

import (
	"fmt"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// bootID distinguishes this start of the machine from every other; empty if that is not known.
func bootID() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid")
	return id
}

// pidSpace distinguishes the process ids of this process from those of others that count anew. A Mac
// has one count.
func pidSpace() string { return "1" }

// zombie is the state of a process that has ended and is not reaped: SZOMB of <sys/proc.h>.
const zombie = 5

// startOf is the time at which a process has started; empty if there is no such process.
func startOf(pid int) string {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil || p.Proc.P_pid != int32(pid) || p.Proc.P_stat == zombie {
		return ""
	}
	return fmt.Sprintf("%d.%06d", p.Proc.P_starttime.Sec, p.Proc.P_starttime.Usec)
}

// machineID is an id that this machine keeps when it starts anew; empty if it has none.
func machineID() string {
	id, _ := unix.Sysctl("kern.uuid")
	return id
}

// changeOf tells of a file what differs after every change of it.
func changeOf(info fs.FileInfo) string {
	is := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // of macOS
	return fmt.Sprint(is.Ino, is.Ctimespec)
}
