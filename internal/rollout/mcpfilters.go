package rollout

import (
	"encoding/json"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// agentServers turns the task's MCP servers into parameters of session/new. Transports have other
// names there, lists keep their order, and tool filters are a hint under _meta, as in benchflow.
// hosted names the servers that start in the agent's sandbox.
func agentServers(servers []tasks.MCPServer, cfg *sandbox.Config) (out []acp.MCPServer, hosted []string) {
	for _, s := range servers {
		p := acp.MCPServer{Name: s.Name, Meta: filters(s)}
		switch s.Transport {
		case tasks.TransportStdio:
			p.Transport, p.Command, p.Args, p.Env = acp.TransportStdio, s.Command, s.Args, keyValues(s.Env)
			if s.Cwd != "" {
				p.Cwd = cfg.Path(s.Cwd)
			}
		case tasks.TransportSSE:
			p.Transport, p.URL, p.Headers = acp.TransportSSE, s.URL, keyValues(s.Headers)
		default:
			p.Transport, p.URL, p.Headers = acp.TransportHTTP, s.URL, keyValues(s.Headers)
		}
		if s.Started() {
			hosted = append(hosted, s.Name)
		}
		out = append(out, p)
	}
	return out, hosted
}

func keyValues(in []tasks.KeyValue) []acp.KeyValue {
	var out []acp.KeyValue
	for _, kv := range in {
		out = append(out, acp.KeyValue(kv))
	}
	return out
}

// filters returns a server's tool filters as a hint under _meta; nil if it has none. No known agent
// heeds the hint.
func filters(s tasks.MCPServer) json.RawMessage {
	var f struct {
		Tools       []string `json:"tools,omitempty"`
		IncludeTags []string `json:"include_tags,omitempty"`
		ExcludeTags []string `json:"exclude_tags,omitempty"`
	}
	f.Tools, f.IncludeTags, f.ExcludeTags = s.Tools, s.IncludeTags, s.ExcludeTags
	if f.Tools == nil && f.IncludeTags == nil && f.ExcludeTags == nil {
		return nil
	}
	meta, err := json.Marshal(map[string]any{"benchflow": map[string]any{"mcp_tool_filters": f}})
	if err != nil {
		return nil // strings always marshal
	}
	return meta
}
