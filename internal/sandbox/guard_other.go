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
