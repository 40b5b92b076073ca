package rollout

import (
	"testing"

	"github.com/evalrun/evalrun/internal/fault"
)

func TestRetryable(t *testing.T) {
	for _, test := range []struct {
		on       []string
		category fault.Category
		want     bool
	}{
		{nil, fault.Exit, false},
		{[]string{"timeout"}, fault.Exit, false},
		{[]string{"timeout", "exit"}, fault.Exit, true},
		{[]string{"*"}, fault.NoOutput, true},
		{[]string{"*", "suspensions"}, fault.Suspensions, false}, // it would only be suspended again
	} {
		if got := retryable(test.on, test.category); got != test.want {
			t.Errorf("retry.on %v, category %s: %v, expected %v", test.on, test.category, got, test.want)
		}
	}
}

// What benchflow repeats by the words of an error is repeated here by the categories that an eval
// set names. A verifier is never repeated (docs/compatibility.md).
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
