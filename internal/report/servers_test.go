package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/schemas"
)

// The calls of a server are those of all segments.
func TestCallsOfAServerAreSummed(t *testing.T) {
	before := []schemas.MCPServer{{Name: "a", Calls: 2, Held: 1}, {Name: "gone", Calls: 1}}
	got := servers([]record.ServerVerdict{{Name: "a", Verdict: record.VerdictSent, Calls: 3}, {Name: "b", Calls: 4}}, before)
	if diff := cmp.Diff([]schemas.MCPServer{{Name: "a", Verdict: "sent", Calls: 5, Held: 1}, {Name: "b", Calls: 4}}, got); diff != "" {
		t.Error(diff)
	}
}

// A21: what an agent has kept from its model stands beside what came of it.
func TestToolsThatWereNotOfferedAreTold(t *testing.T) {
	got := servers([]record.ServerVerdict{
		{Name: "a", Verdict: record.VerdictHidden, Reason: "the agent has its tools"}, {Name: "b", Verdict: record.VerdictSent, NotOffered: []string{"x", "y"}}, {Name: "c", Verdict: record.VerdictSent},
	}, nil)
	want := []string{`MCP server "a": the agent has its tools`, `MCP server "b": the agent's model was not offered: x, y`}
	if diff := cmp.Diff(want, notOffered(got)); diff != "" {
		t.Error(diff)
	}
}
