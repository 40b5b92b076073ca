package acpagent

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// tool is the tool of a call as the agent reports it.
type tool struct {
	// Server is the MCP server that the tool belongs to; empty for the agent's own tools.
	Server string
	// Name is empty if the agent does not name the tool. A title counts only if it has the form of
	// a server's tool; byTitle then says so.
	Name    string
	byTitle bool
	// Input holds the arguments; nil if the agent does not tell them.
	Input json.RawMessage
}

// naming says where an agent names its own tools, and how it tells their arguments. docs/acp.md has
// the measurements.
type naming struct {
	// inID: the name stands before "__" in the id of the call.
	inID bool
	// firstTitle: the first title of a call is the name, and later ones describe what it does.
	firstTitle bool
	// added lists the members that the agent adds to the arguments.
	added []string
	// titled maps the tools whose only argument is told as the title to the argument's name.
	titled map[string]string
}

// namings has the agents of the registry that do not simply send the name.
var namings = map[string]naming{
	"codex":    {added: []string{"cwd"}},
	"gemini":   {inID: true, titled: map[string]string{"run_shell_command": "command"}},
	"opencode": {firstTitle: true, added: []string{"cwd"}},
}

// toolNames finds the tools of an agent's calls.
type toolNames struct {
	naming
	// form is the pattern by which the agent names a server's tool: see [Settings.ToolName].
	form    string
	servers []string
}

func newToolNames(e entry, servers []acp.MCPServer) toolNames {
	n := toolNames{naming: namings[cmp.Or(e.Extends, e.Name)], form: e.ToolName}
	for _, s := range servers {
		n.servers = append(n.servers, s.Name)
	}
	return n
}

// toolOf returns the tool of a call. firstTitle is the title with which the call was announced.
func (n toolNames) toolOf(call *acp.ToolCall, firstTitle string) tool {
	t := tool{Input: call.RawInput}
	if jsonobj.IsNull(t.Input) {
		t.Input = nil
	}
	own := cmp.Or(call.Name, metaToolName(call.Meta))
	if own == "" && n.inID {
		own, _, _ = strings.Cut(call.ID, "__")
	}
	if own == "" && n.firstTitle {
		own = firstTitle
	}
	if own == "" {
		// Codex wraps the calls of MCP tools.
		if w, err := jsonobj.ParseObject(t.Input); err == nil && w.Has("arguments") && w.Text("tool") != "" &&
			slices.Contains(n.servers, w.Text("server")) {
			return tool{Server: w.Text("server"), Name: w.Text("tool"), Input: w.Get("arguments")}
		}
		// The model may have written the title, so it does not override a name.
		t.Name, t.Server = n.serverTool(call.Title)
		t.byTitle = t.Server != ""
		return t
	}
	if t.Name, t.Server = n.serverTool(own); t.Server != "" {
		return t
	}
	t.Name = own
	if argument := n.titled[own]; argument != "" && t.Input == nil && call.Title != "" {
		t.Input = jsonobj.Object{{Key: argument, Value: jsonobj.Quote(call.Title)}}.JSON()
	}
	if input, err := jsonobj.ParseObject(t.Input); err == nil && len(n.added) > 0 {
		t.Input = input.Delete(n.added...).JSON()
	}
	return t
}

// serverTool finds the server to which the tool of a name belongs. If several servers match, it is
// the one with the longest name.
func (n toolNames) serverTool(full string) (name, server string) {
	for _, declared := range n.servers {
		if len(declared) > len(server) {
			if tool, ok := toolIn(full, declared, n.form); ok {
				name, server = tool, declared
			}
		}
	}
	return name, server
}

// toolIn returns the tool's own part of a name, if the name has the form that an agent uses for
// tools of a server.
func toolIn(name, server, form string) (tool string, ok bool) {
	forms := []string{
		form,                                                        // the form of the entry
		"{tool} ({server} MCP Server)",                              // the titles of gemini and qwen
		"mcp.{server}.{tool}", "{server}.{tool}", "{server}/{tool}", // those of codex and others
		// These are the forms of claude and kimi, of copilot, and of Zed's codex-acp.
		"mcp__{server}__{tool}", "{server}-{tool}", "Tool: {server}/{tool}",
	}
	for _, f := range forms {
		before, after, has := strings.Cut(strings.ReplaceAll(f, "{server}", server), "{tool}")
		if !has || !strings.Contains(f, "{server}") || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) ||
			len(name) <= len(before)+len(after) {
			continue
		}
		if tool = name[len(before) : len(name)-len(after)]; !strings.ContainsAny(tool, " \t\n") {
			return tool, true
		}
	}
	return "", false
}

// metaToolName returns the name that some agents put into _meta: qwen as toolName, claude in an
// object of its own.
func metaToolName(meta json.RawMessage) string {
	var m map[string]json.RawMessage
	if json.Unmarshal(meta, &m) != nil {
		return ""
	}
	var name string
	if json.Unmarshal(m["toolName"], &name) == nil && name != "" {
		return name
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		var vendor struct {
			ToolName string `json:"toolName"`
		}
		if json.Unmarshal(m[key], &vendor) == nil && vendor.ToolName != "" {
			return vendor.ToolName
		}
	}
	return ""
}
