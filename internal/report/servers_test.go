package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
)

// A9: the calls of a server are those of all segments.
func TestCallsOfAServerAreSummed(t *testing.T) {
	before := []agent.ServerVerdict{{Name: "a", Calls: 2, Held: 1}, {Name: "gone", Calls: 1}}
	got := addCalls([]agent.ServerVerdict{{Name: "a", Verdict: agent.VerdictSent, Calls: 3}, {Name: "b", Calls: 4}}, before)
	if diff := cmp.Diff([]agent.ServerVerdict{{Name: "a", Verdict: agent.VerdictSent, Calls: 5, Held: 1}, {Name: "b", Calls: 4}}, got); diff != "" {
		t.Error(diff)
	}
}
