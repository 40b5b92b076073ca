package engine

import (
	"encoding/json"

	"github.com/evalrun/evalrun/tasks"
)

// filters are a server's tool filters as a hint under _meta; nil if it has none. No agent is known to heed them.
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
