package store

import (
	"os"
	"strconv"
)

// Process says which process holds something, so that another one can see that it is gone.
type Process struct {
	PID int
	// StartTime is when the process was started, in whatever unit the system has; with it a pid
	// that came again is told apart.
	StartTime string
	// BootID and PIDNamespace must be one's own, or nothing can be said of the process.
	BootID       string
	PIDNamespace string
}

// ThisProcess describes the calling process.
func ThisProcess() Process {
	pid := os.Getpid()
	start, _ := startTime(pid) // a process can always see itself
	return Process{PID: pid, StartTime: start, BootID: bootID(), PIDNamespace: pidNamespace()}
}

// IsDead reports whether the process is certainly gone. Of one of another boot or PID namespace
// that cannot be said: it may be on another machine that shares the folder, and its lease must run
// out.
func (p Process) IsDead() bool {
	boot, namespace := bootID(), pidNamespace()
	if boot == "" || namespace == "" || p.BootID != boot || p.PIDNamespace != namespace || p.PID <= 0 {
		return false
	}
	start, alive := startTime(p.PID)
	if !alive {
		return true
	}
	return start != "" && p.StartTime != "" && start != p.StartTime
}

func (p Process) String() string { return "process " + strconv.Itoa(p.PID) }
