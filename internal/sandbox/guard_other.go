//go:build !linux

package sandbox

import (
	"os/exec"

	"github.com/evalrun/evalrun/internal/cgroup"
)

func guardInit() {}

func startIsolated(cmd *exec.Cmd, group *cgroup.Group) error {
	return group.Start(cmd, (*exec.Cmd).Start)
}

// startTied cannot tie a process to evalrun on these systems.
func startTied(cmd *exec.Cmd, group *cgroup.Group) error {
	return group.Start(cmd, (*exec.Cmd).Start)
}
