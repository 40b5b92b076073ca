package exec

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// startTime tells a process from a later one with the same pid.
func startTime(pid int) (string, error) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return "", err
	}
	t := info.Proc.P_starttime
	return fmt.Sprintf("%d.%06d", t.Sec, t.Usec), nil
}

// bootID tells one boot of the machine from another.
func bootID() string {
	id, _ := unix.Sysctl("kern.bootsessionuuid") // without it pid and start time must do
	return id
}
