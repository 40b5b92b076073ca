package rollout

import (
	"fmt"

	"github.com/evalrun/evalrun/internal/cgroup"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// maxPIDs is how many processes and threads a rollout may have, so that one that starts more and
// more takes nothing from the others. No task says how many it needs.
const maxPIDs = 4096

// limits returns what the processes of a task may use together.
func (s *sandboxSpec) limits() cgroup.Limits {
	if s.task == nil {
		return cgroup.Limits{}
	}
	l := s.task.Config.Environment.Limits()
	return cgroup.Limits{Memory: int64(max(0, min(l.MemoryMB, 1<<40))) << 20, CPUs: max(0, l.CPUs), PIDs: maxPIDs}
}

// withoutEffect returns the limits of a task that cannot be enforced on this machine.
func withoutEffect(s *sandboxSpec) []record.LimitWithoutEffect {
	if s.isolation == sandbox.IsolationPodman || s.isolation == sandbox.IsolationDocker {
		return nil // the container engine enforces them
	}
	return unkept(s.task.Config.Environment.Limits(), cgroup.Missing())
}

func unkept(l tasks.Limits, missing map[cgroup.Controller]error) (out []record.LimitWithoutEffect) {
	for _, limit := range []struct {
		key        string
		value      float64
		controller cgroup.Controller
	}{{"environment.cpus", l.CPUs, cgroup.CPU}, {"environment.memory_mb", float64(l.MemoryMB), cgroup.Memory}} {
		if err := missing[limit.controller]; err != nil && limit.value > 0 {
			out = append(out, record.LimitWithoutEffect{Key: limit.key,
				Reason: fmt.Sprintf("%v is not kept here: %v", limit.value, err)})
		}
	}
	return out
}
