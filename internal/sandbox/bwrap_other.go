//go:build !linux

package sandbox

import (
	"errors"
	"os/exec"
)

// Available says why bubblewrap cannot be used here: it is a program for Linux.
func Available() error {
	return errors.New("isolation \"bwrap\" works on Linux only: choose isolation \"process\"")
}

func (s *Config) wrap(*exec.Cmd, []string) error { return Available() }
