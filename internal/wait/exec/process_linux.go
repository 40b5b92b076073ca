package exec

import (
	"fmt"
	"os"
	"strings"
)

// startTime tells a process from a later one with the same pid: its start in clock ticks since
// boot.
func startTime(pid int) (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name, in parentheses, may itself have spaces and parentheses; field 22 is the 20th after
	// it (proc_pid_stat(5)).
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	return fields[19], nil
}

// bootID tells one boot of the machine from another.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it pid and start time must do
	return strings.TrimSpace(string(b))
}
