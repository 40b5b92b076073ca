package store

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// startTime is field 22 of /proc/<pid>/stat (proc(5)): clock ticks after boot. A zombie counts as
// gone: it does nothing any more.
func startTime(pid int) (start string, alive bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		// /proc may hide the processes of others (hidepid); the kernel still knows them.
		return "", !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	// The command name is in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", true
	}
	return fields[19], fields[0] != "Z" && fields[0] != "X"
}

var bootID = sync.OnceValue(func() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it every lease must run out
	return strings.TrimSpace(string(data))
})

var pidNamespace = sync.OnceValue(func() string {
	ns, _ := os.Readlink("/proc/self/ns/pid") // the same
	return ns
})
