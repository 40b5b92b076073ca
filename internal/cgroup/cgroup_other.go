//go:build !linux

package cgroup

import (
	"errors"
	"os/exec"
)

// Group needs Linux.
type Group struct{}

var errLinux = errors.New("limits need Linux")

// Missing gives the reason why no limit can be kept.
func Missing() map[Controller]error {
	return map[Controller]error{Memory: errLinux, CPU: errLinux, PIDs: errLinux}
}

// New needs Linux.
func New(string, Limits) (*Group, error) { return nil, nil }

// Start starts a command.
func (*Group) Start(cmd *exec.Cmd, start func(*exec.Cmd) error) error { return start(cmd) }

// MemoryKills is 0.
func (*Group) MemoryKills() int { return 0 }

// Remove does nothing.
func (*Group) Remove() error { return nil }

// RemoveFolder does nothing.
func RemoveFolder(string) error { return nil }

// Sweep does nothing.
func Sweep(...string) error { return nil }
