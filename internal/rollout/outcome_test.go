package rollout

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/fault"
)

// An attempt that was killed at the end of its conversation is gone on with, and gives its output. If
// that was refused, the next attempt begins anew, since it would be refused again.
func TestAnAttemptWhoseOutputWasRefusedIsNotGoneOnWith(t *testing.T) {
	w := newWorld(t, completes, nil)
	r := w.claim()
	h := r.held
	w.check(h.load(t.Context()))
	h.entry = agent.Entry{Type: modelagent.Name, Settings: &modelagent.Settings{}}
	first := h.segmentDir()
	w.check(os.MkdirAll(h.workspace(), 0o700))
	w.check(os.MkdirAll(first, 0o700))
	w.check(os.WriteFile(filepath.Join(first, modelagent.FileJournal), []byte(`{"step":"begin"}`+"\n"), 0o600))
	h.claim.Attempt = 2
	if got := h.findAttempt(); got != first {
		t.Errorf("after a crash: got %q, want %q", got, first)
	}
	h.claim.Attempt = 1
	_, err := r.segmentEnd(t.Context(), agent.Outcome{Output: json.RawMessage(`{}`), Fault: fault.New(fault.DiskLimit, "too much")})
	w.check(err)
	h.claim.Attempt = 2
	if got := h.findAttempt(); got != "" {
		t.Errorf("after a refusal: got %q", got)
	}
}

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
