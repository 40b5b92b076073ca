package store

import (
	"cmp"
	"os"
	"strconv"
)

// Processes is the interface of a store whose processes see each other, because they run on one
// machine. When one of them is gone, what it has claimed is free at once, and not only when its
// lease ends.
type Processes interface {
	// Process is the process as which this store claims.
	Process() Process
}

// Process says which process holds something, so that another one can see that it is gone.
type Process struct {
	PID int
	// StartTime is when the process was started, in whatever unit the system has. It tells apart a
	// pid that came again.
	StartTime string
	// BootID and PIDNamespace must be one's own, or nothing can be said of the process.
	BootID       string
	PIDNamespace string
}

// Machine is the machine that a process runs on. Jobs that are its own processes can be asked for
// there alone.
type Machine struct {
	Name string
	// BootID is that of the process, so that a container which is made anew, and then has another
	// name, is the same machine. It is empty if somebody has given the name: then only that counts.
	BootID string
}

// MachineVar is the environment variable that names the machine, in the place of its host name.
const MachineVar = "EVALRUN_MACHINE"

// ThisMachine is the machine that the calling process runs on.
func ThisMachine() Machine {
	if name := os.Getenv(MachineVar); name != "" {
		return Machine{Name: name}
	}
	host, _ := os.Hostname() // without one the boot tells it
	return Machine{Name: cmp.Or(host, "localhost"), BootID: bootID()}
}

// ThisProcess describes the calling process.
func ThisProcess() Process {
	pid := os.Getpid()
	start, _ := startTime(pid) // a process can always see itself
	return Process{PID: pid, StartTime: start, BootID: bootID(), PIDNamespace: pidNamespace()}
}

// IsDead reports whether the process is certainly gone. That cannot be said of a process of another
// boot or PID namespace: it may be on another machine that shares the folder, and its lease must
// run out.
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
