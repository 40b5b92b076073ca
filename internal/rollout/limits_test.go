package rollout

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/cgroup"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/tasks"
)

// A limit that cannot be kept is said, if the task has it.
func TestLimitsWithoutEffect(t *testing.T) {
	missing := map[cgroup.Controller]error{cgroup.Memory: errors.New("nobody counts it"), cgroup.PIDs: errors.New("nor these")}
	want := []record.LimitWithoutEffect{{Key: "environment.memory_mb", Reason: "64 is not kept here: nobody counts it"}}
	if diff := cmp.Diff(want, unkept(tasks.Limits{CPUs: 1, MemoryMB: 64}, missing)); diff != "" {
		t.Error(diff)
	}
	if got := unkept(tasks.Limits{CPUs: 1}, missing); got != nil {
		t.Errorf("a limit that the task does not have: %v", got)
	}
}
