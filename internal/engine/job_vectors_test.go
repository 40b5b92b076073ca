package engine

import (
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
)

// facts/tasks-and-benchflow.md 9.5, J1: what benchflow repeats by the words of an error is repeated here by the categories that an eval set names.
// J2 and J3, how often, are TestRetries below and TestWhatIsNotRetriedIsFaulted; a verifier is never repeated (docs/compatibility.md).
func TestJ1RetryVerdicts(t *testing.T) {
	infrastructure := []string{"start", "setup", "exit", "protocol", "handshake", "agent-error", "idle"}
	for cause, test := range map[string]struct {
		category agent.Category
		want     bool
	}{
		"the agent cannot be started":      {agent.FaultStart, true},
		"the agent closed its stdout":      {agent.FaultExit, true},
		"ACP error -32000":                 {agent.FaultAgentError, true},
		"the agent was idle":               {agent.FaultIdle, true},
		"the sandbox cannot be made":       {agent.FaultSetup, true},
		"the agent timed out":              {agent.FaultTimeout, false},
		"the model answered 401, 429, 503": {agent.FaultModel, false},
		"the verifier left no reward":      {agent.FaultVerifier, false},
		"the task cannot be run here":      {agent.FaultNotRunnable, false},
		"it was suspended too often":       {agent.FaultSuspensions, false},
	} {
		if got := retryable(infrastructure, test.category); got != test.want {
			t.Errorf("J1 %s: repeated %v, want %v", cause, got, test.want)
		}
	}
}
