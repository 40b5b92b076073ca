// Package cgroup limits the memory, the CPU time and the number of processes of a group, by control
// groups of Linux, version 1 or 2, whichever each controller uses. It does not know what the
// processes do.
package cgroup

import (
	"crypto/sha256"
	"encoding/hex"
)

// Limits are what the processes of a group may use together. 0 is no limit.
type Limits struct {
	// Memory is in bytes, swapped out or not.
	Memory int64
	// CPUs is how many processors they may keep busy, such as 0.5.
	CPUs float64
	// PIDs is how many processes and threads there may be.
	PIDs int
}

// Controller bounds one kind of use. Its value is the system's name for it.
type Controller string

// The controllers.
const (
	Memory Controller = "memory"
	CPU    Controller = "cpu"
	PIDs   Controller = "pids"
)

// wanted are the controllers that limits need.
func (l Limits) wanted() (out []Controller) {
	if l.Memory > 0 {
		out = append(out, Memory)
	}
	if l.CPUs > 0 {
		out = append(out, CPU)
	}
	if l.PIDs > 0 {
		out = append(out, PIDs)
	}
	return out
}

// prefix begins the names of an owner's groups. The owner may be any text.
func prefix(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return "evalrun-" + hex.EncodeToString(sum[:8]) + "-"
}
