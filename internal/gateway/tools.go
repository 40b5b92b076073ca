package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Tool is what the gateway remembers of a tool.
type Tool struct {
	// TaskSupport is that of 2025-11-25: forbidden, optional or required; empty means forbidden.
	TaskSupport string
	// ReadOnly and idempotent are the hints of its annotations.
	ReadOnly, Idempotent bool
	// hidden says that the filters keep it from the client.
	hidden      bool
	inputSchema json.RawMessage
}

func ToolOf(t jsonobj.Object) Tool {
	hints := t.Object("annotations")
	return Tool{
		TaskSupport: t.Object("execution").Text("taskSupport"), inputSchema: t.Get("inputSchema"),
		ReadOnly: string(hints.Get("readOnlyHint")) == "true", Idempotent: string(hints.Get("idempotentHint")) == "true",
	}
}

// listTools answers tools/list: the server's tools that the client may see, as the policy shows them.
func (l *Upstream) listTools(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	result, err := l.Pass(ctx, r, r.Params)
	if err != nil {
		return nil, l.ClientError(err)
	}
	o, err := jsonobj.ParseObject(result)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInternal, "%s", l.ErrorText(fmt.Errorf("its answer to tools/list is no object")))
	}
	shown, changed := l.ShowTools(o.Get("tools"))
	if changed {
		result = o.Set("tools", shown).JSON()
	}
	if o.Text("nextCursor") == "" {
		l.e.MarkReady()
	}
	return l.ToClient(r, result), nil
}

// ShowTools remembers the tools of a list, and gives those that the client may see. changed is false if that is the list itself.
func (l *Upstream) ShowTools(list json.RawMessage) (shown json.RawMessage, changed bool) {
	var all []json.RawMessage
	if json.Unmarshal(list, &all) != nil {
		return list, false // the client will say what it thinks of it
	}
	out := []byte{'['}
	for _, raw := range all {
		t, err := jsonobj.ParseObject(raw)
		if err == nil {
			name := t.Text("name")
			known := ToolOf(t)
			known.hidden = !l.e.server.shows(t)
			l.e.mu.Lock()
			l.e.tools[name] = known
			l.e.mu.Unlock()
			if known.hidden {
				changed = true
				continue
			}
			if seen := l.e.policy.ShowTool(l, slices.Clone(t)); !slices.EqualFunc(seen, t, sameMember) {
				raw, changed = seen.JSON(), true
			}
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, raw...)
	}
	return append(out, ']'), changed
}

func sameMember(a, b jsonobj.Member) bool { return a.Key == b.Key && bytes.Equal(a.Value, b.Value) }

// shows reports whether the filters let a tool through.
func (f *Filter) shows(t jsonobj.Object) bool {
	if len(f.Tools) > 0 && !slices.Contains(f.Tools, t.Text("name")) {
		return false
	}
	if len(f.IncludeTags) == 0 && len(f.ExcludeTags) == 0 {
		return true
	}
	tags := tagsOf(t)
	has := func(tag string) bool { return slices.Contains(tags, tag) }
	return (len(f.IncludeTags) == 0 || slices.ContainsFunc(f.IncludeTags, has)) && !slices.ContainsFunc(f.ExcludeTags, has)
}

// tagsOf are the tags of a tool: MCP has none of its own, and FastMCP puts them into _meta.
func tagsOf(t jsonobj.Object) (tags []string) {
	meta := t.Object("_meta")
	for _, from := range []json.RawMessage{meta.Get("tags"), meta.Object("fastmcp").Get("tags"), meta.Object("_fastmcp").Get("tags"), t.Get("tags")} {
		var some []string
		if json.Unmarshal(from, &some) == nil {
			tags = append(tags, some...)
		}
	}
	return tags
}

// MaxPages is how many pages of a list a server may have.
const MaxPages = 100

// LookupTool is what is known of a tool. What has not been listed yet is listed now.
func (l *Upstream) LookupTool(ctx context.Context, name string) Tool {
	if t, ok := l.e.LookupTool(name); ok {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, l.e.server.CallLimit())
	defer cancel()
	var cursor json.RawMessage
	for range MaxPages {
		params := json.RawMessage("{}")
		if cursor != nil {
			params = jsonobj.Object{{Key: "cursor", Value: cursor}}.JSON()
		}
		result, err := l.Client().Call(ctx, mcp.Call{Method: mcp.MethodToolsList, Params: params, Capabilities: l.e.policy.Capabilities(mcp.Modern, mcp.EmptyObject)})
		if err != nil {
			break
		}
		o, _ := jsonobj.ParseObject(result)
		l.ShowTools(o.Get("tools"))
		if cursor = o.Get("nextCursor"); jsonobj.IsNull(cursor) {
			break
		}
	}
	t, _ := l.e.LookupTool(name)
	return t
}

func (e *Endpoint) LookupTool(name string) (Tool, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.tools[name]
	return t, ok
}

func (e *Endpoint) ForgetTools() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.tools)
}

// takesAll reports whether there is nothing to check about a call.
func (s *Server) takesAll(r *mcp.Request) bool {
	return len(s.Tools)+len(s.IncludeTags)+len(s.ExcludeTags) == 0 && (r.Era == mcp.Legacy || r.Header == nil)
}

// checkTool refuses calls of tools that are not shown, and of modern clients whose headers do not fit what they send.
func (l *Upstream) checkTool(ctx context.Context, r *mcp.Request) error {
	server := &l.e.server
	if server.takesAll(r) {
		return nil
	}
	byTag := len(server.IncludeTags)+len(server.ExcludeTags) > 0
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	name := params.Text("name")
	t, ok := l.e.LookupTool(name)
	if !ok && byTag { // its tags are not known before it has been listed
		t = l.LookupTool(ctx, name)
	}
	if t.hidden || len(server.Tools) > 0 && !slices.Contains(server.Tools, name) {
		return mcp.Errorf(mcp.CodeInvalidParams, "Unknown tool: %s", name)
	}
	if ok && r.Era == mcp.Modern && r.Header != nil {
		if err := mcp.CheckParamHeaders(r.Header, t.inputSchema, params.Get("arguments")); err != nil {
			return err
		}
	}
	return nil
}
