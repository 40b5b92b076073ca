package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/schemas"
)

// The calls of a server are those of all segments.
func TestCallsOfAServerAreSummed(t *testing.T) {
	before := []schemas.MCPServer{{Name: "a", Calls: 2, Held: 1}, {Name: "gone", Calls: 1}}
	got := servers([]agent.ServerVerdict{{Name: "a", Verdict: agent.VerdictSent, Calls: 3}, {Name: "b", Calls: 4}}, before)
	if diff := cmp.Diff([]schemas.MCPServer{{Name: "a", Verdict: "sent", Calls: 5, Held: 1}, {Name: "b", Calls: 4}}, got); diff != "" {
		t.Error(diff)
	}
}
