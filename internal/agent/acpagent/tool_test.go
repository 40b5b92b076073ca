package acpagent

import (
	stdcmp "cmp"
	"encoding/json"
	"testing"

	"github.com/evalrun/evalrun/acp"
)

func TestToolNames(t *testing.T) {
	servers := []acp.MCPServer{{Name: "lab"}, {Name: "lab_two"}, {Name: "my-lab"}}
	for _, tt := range []struct {
		form         string
		call         acp.ToolCall
		name, server string
	}{
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "mcp__lab__add"}, "add", "lab"},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "Add numbers", Name: "mcp__my-lab__add"}, "add", "my-lab"},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "Add numbers", Meta: json.RawMessage(`{"x":1,"claudeCode":{"toolName":"mcp__lab__add"}}`)}, "add", "lab"},
		{"{server}_{tool}", acp.ToolCall{Title: "lab_add"}, "add", "lab"},
		{"{server}_{tool}", acp.ToolCall{Title: "lab_two_add"}, "add", "lab_two"},
		{"mcp_{server}_{tool}", acp.ToolCall{Title: "mcp_lab_add_more"}, "add_more", "lab"},
		{"mcp_{server}_{tool}", acp.ToolCall{Title: "add (lab MCP Server)"}, "add", "lab"},
		{"", acp.ToolCall{Title: "add (my-lab MCP Server)"}, "add", "my-lab"},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "lab.add"}, "add", "lab"},
		{"", acp.ToolCall{Title: "my-lab/add"}, "add", "my-lab"},
		{"", acp.ToolCall{Title: "lab.add two numbers"}, "lab.add two numbers", ""},
		{"{server}_{tool}", acp.ToolCall{Title: "lab_"}, "lab_", ""},
		{"{server}_{tool}", acp.ToolCall{Title: "other_add"}, "other_add", ""},
		{"{tool}", acp.ToolCall{Title: "Read"}, "Read", ""},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "`ls`", Kind: "execute", Meta: json.RawMessage(`{"claudeCode":{"toolName":"Bash"}}`)}, "Bash", ""},
		{"mcp__{server}__{tool}", acp.ToolCall{Title: `{"id":"7"}`, Meta: json.RawMessage(`{"toolName":"mcp__lab__read"}`)}, "read", "lab"},                           // qwen
		{"", acp.ToolCall{Title: "mcp.lab.read", Kind: "execute", RawInput: json.RawMessage(`{"server":"lab","tool":"read","arguments":{"id":"7"}}`)}, "read", "lab"}, // codex
		{"mcp__{server}__{tool}", acp.ToolCall{Title: "mcp__lab__read", Name: "Bash"}, "Bash", ""},                                                                    // what a command looks like is no name
		{"", acp.ToolCall{Kind: "fetch"}, "fetch", ""},
		{"", acp.ToolCall{Title: "Read", Meta: json.RawMessage(`[1]`)}, "Read", ""},
	} {
		told := newToolNames(entry{Settings: &Settings{ToolName: tt.form}}, servers).toolOf(&tt.call, "")
		if name := stdcmp.Or(told.Name, tt.call.Title, tt.call.Kind); name != tt.name || told.Server != tt.server {
			t.Errorf("%s of %+v: got %q of %q", tt.form, tt.call, name, told.Server)
		}
	}
}
