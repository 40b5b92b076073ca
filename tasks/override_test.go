package tasks

import "testing"

// T22: the limits of a task can be changed without changing its files. A multiplier of its own goes
// before that of all, as in Harbor.
func TestOverrides(t *testing.T) {
	config := func(o Overrides) Config {
		task := &Task{Config: accepted(t, `
[agent]
timeout_sec = 100
[environment]
cpus = 4
build_timeout_sec = 60
[[environment.setup_commands]]
command = "x"
timeout_sec = 7
[[steps]]
name = "a"
[steps.agent]
timeout_sec = 10
[[steps]]
name = "b"
[steps.verifier]
timeout_sec = 20
[steps.verifier.environment]
memory_mb = 100
`)}
		task.Override(o)
		return task.Config
	}
	c := config(Overrides{TimeoutMultiplier: 2, AgentTimeoutMultiplier: 0.5, CPUs: 0.25, MemoryMB: 300})
	for name, got := range map[string][2]Seconds{
		"agent": {c.Agent.TimeoutSec, 50}, "verifier": {c.Verifier.TimeoutSec, 1200}, "build": {c.Environment.BuildTimeoutSec, 120}, "setup": {c.Environment.SetupCommands[0].TimeoutSec, 14},
		"agent of a step": {c.Steps[0].Agent.TimeoutSec, 5}, "what a step inherits": {c.Steps[0].Verifier.TimeoutSec, 0}, "verifier of a step": {c.Steps[1].Verifier.TimeoutSec, 40},
	} {
		equal(t, name, got[0], got[1])
	}
	equal(t, "limits", c.Environment.Limits(), Limits{CPUs: 0.25, MemoryMB: 300})
	equal(t, "limits of a verifier's environment", c.Steps[1].Verifier.Environment.Limits(), Limits{CPUs: 0.25, MemoryMB: 300})
	equal(t, "nothing", config(Overrides{}).Agent.TimeoutSec, Seconds(100))
}
