package engine

import (
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
)

// facts/tasks-and-benchflow.md 9.5, J1: what benchflow repeats by the words of an error is repeated here by the categories that an eval set names.
// J2 and J3, how often, are TestRetries below and TestWhatIsNotRetriedIsFaulted; a verifier is never repeated (docs/compatibility.md).
func TestJ1RetryVerdicts(t *testing.T) {
	infrastructure := []string{"start", "setup", "exit", "protocol", "handshake", "agent-error", "idle"}
	for cause, test := range map[string]struct {
		category fault.Category
		want     bool
	}{
		"the agent cannot be started":      {fault.Start, true},
		"the agent closed its stdout":      {fault.Exit, true},
		"ACP error -32000":                 {fault.AgentError, true},
		"the agent was idle":               {fault.Idle, true},
		"the sandbox cannot be made":       {fault.Setup, true},
		"the agent timed out":              {fault.Timeout, false},
		"the model answered 401, 429, 503": {fault.Model, false},
		"the verifier left no reward":      {fault.Verifier, false},
		"the task cannot be run here":      {fault.NotRunnable, false},
		"it was suspended too often":       {fault.Suspensions, false},
	} {
		if got := retryable(infrastructure, test.category); got != test.want {
			t.Errorf("J1 %s: repeated %v, want %v", cause, got, test.want)
		}
	}
}
