//go:build !linux

package sandbox

import (
	"errors"
	"os/exec"
)

// Available returns the reason why bubblewrap cannot be used here: it is a program for Linux.
func Available() error {
	return errors.New("bubblewrap works on Linux only")
}

func (s *Config) wrap(*exec.Cmd, []string) error { return Available() }

// ImageAvailable returns the reason why a space over the root of an image cannot be made here.
func ImageAvailable() error {
	return errors.New("isolation \"image\" works on Linux only: choose isolation \"process\"")
}

// Open gives the mounted root to evalrun itself, on Linux.
func (r *Root) Open(string) (path string, closeRoot func(), err error) {
	return "", nil, ImageAvailable()
}

func rootMain(string) {}
