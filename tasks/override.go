package tasks

import "cmp"

// Overrides change the limits of tasks without changing their files: a machine that is slower or
// smaller than the author's needs other ones. They have the names and meanings of Harbor's.
type Overrides struct {
	// TimeoutMultiplier multiplies every time limit that has no multiplier of its own; 0 is 1.
	TimeoutMultiplier float64 `json:"timeoutMultiplier,omitempty"`
	// AgentTimeoutMultiplier multiplies agent.timeout_sec, VerifierTimeoutMultiplier
	// verifier.timeout_sec, and BuildTimeoutMultiplier environment.build_timeout_sec.
	AgentTimeoutMultiplier    float64 `json:"agentTimeoutMultiplier,omitempty"`
	VerifierTimeoutMultiplier float64 `json:"verifierTimeoutMultiplier,omitempty"`
	BuildTimeoutMultiplier    float64 `json:"buildTimeoutMultiplier,omitempty"`
	// CPUs, MemoryMB and StorageMB replace those of [environment]; 0 leaves them as they are.
	CPUs      float64 `json:"cpus,omitempty"`
	MemoryMB  int     `json:"memoryMb,omitempty"`
	StorageMB int     `json:"storageMb,omitempty"`
}

// Override changes the limits of the task.
func (t *Task) Override(o Overrides) {
	c := &t.Config
	c.Agent.TimeoutSec = o.timeout(c.Agent.TimeoutSec, o.AgentTimeoutMultiplier)
	c.Solution.TimeoutSec = o.timeout(c.Solution.TimeoutSec, o.AgentTimeoutMultiplier)
	o.verifier(&c.Verifier)
	o.environment(&c.Environment)
	for i := range c.Steps {
		step := &c.Steps[i]
		step.Agent.TimeoutSec = o.timeout(step.Agent.TimeoutSec, o.AgentTimeoutMultiplier)
		o.verifier(&step.Verifier)
	}
}

func (o Overrides) timeout(limit Seconds, own float64) Seconds {
	return limit * Seconds(cmp.Or(own, o.TimeoutMultiplier, 1))
}

func (o Overrides) verifier(v *Verifier) {
	v.TimeoutSec = o.timeout(v.TimeoutSec, o.VerifierTimeoutMultiplier)
	for i := range v.Collect {
		v.Collect[i].TimeoutSec = o.timeout(v.Collect[i].TimeoutSec, o.VerifierTimeoutMultiplier)
	}
	if v.Environment != nil {
		o.environment(v.Environment)
	}
}

func (o Overrides) environment(e *Environment) {
	e.BuildTimeoutSec = o.timeout(e.BuildTimeoutSec, o.BuildTimeoutMultiplier)
	for i := range e.SetupCommands {
		e.SetupCommands[i].TimeoutSec = o.timeout(e.SetupCommands[i].TimeoutSec, 0)
	}
	if e.Healthcheck != nil {
		e.Healthcheck.TimeoutSec = o.timeout(e.Healthcheck.TimeoutSec, 0)
	}
	e.CPUs, e.limits.CPUs = cmp.Or(o.CPUs, e.CPUs), cmp.Or(o.CPUs, e.limits.CPUs)
	e.MemoryMB, e.limits.MemoryMB = cmp.Or(o.MemoryMB, e.MemoryMB), cmp.Or(o.MemoryMB, e.limits.MemoryMB)
	e.StorageMB, e.limits.StorageMB = cmp.Or(o.StorageMB, e.StorageMB), cmp.Or(o.StorageMB, e.limits.StorageMB)
}
