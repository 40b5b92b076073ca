//go:build !linux

package sandbox

import "os/exec"

func guardInit() {}

func startIsolated(cmd *exec.Cmd) error { return cmd.Start() }
