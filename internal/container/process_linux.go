package container

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// bootID distinguishes this start of the machine from every other; empty if that is not known.
func bootID() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(boot))
}

// pidSpace distinguishes the process ids of this process from those of others that count anew.
func pidSpace() string {
	space, _ := os.Readlink("/proc/self/ns/pid")
	return strings.Trim(strings.TrimPrefix(space, "pid:"), "[]")
}

// startOf is the time at which a process has started; empty if there is no such process.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// After the program's name, which may hold anything, the fields count from 3; 22 is the start.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 || string(fields[0]) == "Z" {
		return ""
	}
	return string(fields[19])
}

// machineID is an id that this machine keeps when it starts anew; empty if it has none.
func machineID() string {
	id, _ := os.ReadFile("/etc/machine-id")
	return string(bytes.TrimSpace(id))
}

// changeOf tells of a file what differs after every change of it.
func changeOf(info fs.FileInfo) string {
	is := info.Sys().(*syscall.Stat_t) //nolint:forcetypeassert // of Linux
	return fmt.Sprint(is.Ino, is.Ctim)
}
