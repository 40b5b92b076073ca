//go:build !linux

package image

import "os/exec"

// alone runs a command. There are no namespaces on this system.
func alone(cmd *exec.Cmd) error { return cmd.Run() }
