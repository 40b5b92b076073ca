package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Tool is what the gateway remembers of a tool.
type Tool struct {
	Description string
	// TaskSupport is the support of 2025-11-25: forbidden, optional or required; empty means
	// forbidden.
	TaskSupport string
	// ReadOnly and Idempotent are the hints of its annotations.
	ReadOnly, Idempotent bool
	// hidden says that the filters keep the tool from the client.
	hidden      bool
	inputSchema json.RawMessage
}

// ToolOf reads a tool of a list.
func ToolOf(t jsonobj.Object) Tool {
	hints := t.Object("annotations")
	return Tool{
		Description: t.Text("description"),
		TaskSupport: t.Object("execution").Text("taskSupport"), inputSchema: t.Get("inputSchema"),
		ReadOnly: string(hints.Get("readOnlyHint")) == "true", Idempotent: string(hints.Get("idempotentHint")) == "true",
	}
}

// Schema is the JSON Schema of the arguments.
func (t Tool) Schema() json.RawMessage { return t.inputSchema }

// HasArgument reports whether the tool says that it takes an argument of this name.
func (t Tool) HasArgument(name string) bool {
	schema, _ := jsonobj.ParseObject(t.inputSchema)
	return schema.Object("properties").Has(name)
}

// Takes reports whether arguments fit the tool. They must be an object with every member that the
// tool requires and no other than it names, if it names any.
func (t Tool) Takes(arguments json.RawMessage) bool {
	given, err := jsonobj.ParseObject(arguments)
	if err != nil {
		return false
	}
	schema, _ := jsonobj.ParseObject(t.inputSchema)
	var required []string
	_ = json.Unmarshal(schema.Get("required"), &required) // a schema that requires nothing of the kind
	named := schema.Object("properties")
	return !slices.ContainsFunc(required, func(name string) bool { return !given.Has(name) }) &&
		(len(named) == 0 || !slices.ContainsFunc(given, func(m jsonobj.Member) bool { return !named.Has(m.Key) }))
}

// ToolList is what the gateway remembers of the tools of a server, and which of them the client
// may see.
type ToolList struct {
	server    *Server
	readiness *readiness

	mu    sync.Mutex
	known map[string]Tool
}

// Lookup returns what is known of a tool. ok is false if it was not listed.
func (t *ToolList) Lookup(name string) (tool Tool, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tool, ok = t.known[name]
	return tool, ok
}

// Shown returns the tools that the client may see, by their names, as far as they were listed.
func (t *ToolList) Shown() map[string]Tool {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown := maps.Clone(t.known)
	maps.DeleteFunc(shown, func(_ string, tool Tool) bool { return tool.hidden })
	return shown
}

// note remembers a tool.
func (t *ToolList) note(name string, tool Tool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[string]Tool{}
	}
	t.known[name] = tool
}

// Forget forgets all tools, since the server's list may have changed.
func (t *ToolList) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.known)
}

// answer answers tools/list with the server's tools that the client may see, as the policy shows
// them.
func (t *ToolList) answer(ctx context.Context, l *Upstream, r *mcp.Request) (json.RawMessage, error) {
	result, err := l.Pass(ctx, r, r.Params)
	if err != nil {
		return nil, l.ClientError(err)
	}
	o, err := jsonobj.ParseObject(result)
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInternal, "%s", l.ErrorText(fmt.Errorf("its answer to tools/list is no object")))
	}
	shown, changed := t.Show(l, o.Get("tools"))
	if changed {
		result = o.Set("tools", shown).JSON()
	}
	if o.Text("nextCursor") == "" {
		t.readiness.mark()
	}
	return l.ToClient(r, result), nil
}

// Show remembers the tools of a list, and returns those that the client may see. changed is false
// if that is the list itself.
func (t *ToolList) Show(l *Upstream, list json.RawMessage) (shown json.RawMessage, changed bool) {
	var all []json.RawMessage
	if json.Unmarshal(list, &all) != nil {
		return list, false // the client decides what to do with it
	}
	for _, raw := range all { // a tool may be shown differently depending on the others
		if o, err := jsonobj.ParseObject(raw); err == nil {
			tool := ToolOf(o)
			tool.hidden = !t.server.shows(o)
			t.note(o.Text("name"), tool)
		}
	}
	out := []byte{'['}
	for _, raw := range all {
		o, err := jsonobj.ParseObject(raw)
		if err == nil {
			if !t.server.shows(o) {
				changed = true
				continue
			}
			if seen := l.e.policy.ShowTool(l, slices.Clone(o)); !slices.EqualFunc(seen, o, sameMember) {
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

// tagsOf returns the tags of a tool. MCP has none of its own, and FastMCP puts them into _meta.
func tagsOf(t jsonobj.Object) (tags []string) {
	meta := t.Object("_meta")
	for _, from := range []json.RawMessage{meta.Get("tags"),
		meta.Object("fastmcp").Get("tags"), meta.Object("_fastmcp").Get("tags"), t.Get("tags")} {
		var some []string
		if json.Unmarshal(from, &some) == nil {
			tags = append(tags, some...)
		}
	}
	return tags
}

// MaxPages is how many pages of a list a server may have.
const MaxPages = 100

// Find returns what is known of a tool. It lists tools that have not been listed yet.
func (t *ToolList) Find(ctx context.Context, l *Upstream, name string) Tool {
	if tool, ok := t.Lookup(name); ok {
		return tool
	}
	ctx, cancel := context.WithTimeout(ctx, t.server.CallLimit())
	defer cancel()
	var cursor json.RawMessage
	for range MaxPages {
		params := json.RawMessage("{}")
		if cursor != nil {
			params = jsonobj.Object{{Key: "cursor", Value: cursor}}.JSON()
		}
		result, err := l.Client().Call(ctx, mcp.Call{Method: mcp.MethodToolsList,
			Params: params, Capabilities: l.e.policy.Capabilities(mcp.Modern, mcp.EmptyObject)})
		if err != nil {
			break
		}
		o, _ := jsonobj.ParseObject(result)
		t.Show(l, o.Get("tools"))
		if cursor = o.Get("nextCursor"); jsonobj.IsNull(cursor) {
			break
		}
	}
	tool, _ := t.Lookup(name)
	return tool
}

// takesAll reports whether a call needs no checks.
func (s *Server) takesAll(r *mcp.Request) bool {
	return len(s.Tools)+len(s.IncludeTags)+len(s.ExcludeTags) == 0 && (r.Era == mcp.Legacy || r.Header == nil)
}

// check refuses calls of tools that are not shown, and calls of modern clients whose headers do not
// match their content.
func (t *ToolList) check(ctx context.Context, l *Upstream, r *mcp.Request) error {
	if t.server.takesAll(r) {
		return nil
	}
	byTag := len(t.server.IncludeTags)+len(t.server.ExcludeTags) > 0
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "params: %v", err)
	}
	name := params.Text("name")
	tool, ok := t.Lookup(name)
	if !ok && byTag { // the tags are not known before the tool has been listed
		tool = t.Find(ctx, l, name)
	}
	if tool.hidden || len(t.server.Tools) > 0 && !slices.Contains(t.server.Tools, name) {
		return mcp.Errorf(mcp.CodeInvalidParams, "Unknown tool: %s", name)
	}
	if ok && r.Era == mcp.Modern && r.Header != nil {
		if err := mcp.CheckParamHeaders(r.Header, tool.inputSchema, params.Get("arguments")); err != nil {
			return err
		}
	}
	return nil
}
