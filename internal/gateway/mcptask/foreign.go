package mcptask

import (
	"context"
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// FastMCP 2.14 takes a call as a task of 2025-11-25. It answers with an ordinary result that has no
// content and names the task under keys of its own.
const (
	MetaForeignTask    = "modelcontextprotocol.io/task"
	MetaForeignRelated = "modelcontextprotocol.io/related-task"
)

// foreignTask returns the task that such a result names; nil for every other result.
func foreignTask(o jsonobj.Object) json.RawMessage {
	var content []json.RawMessage
	if json.Unmarshal(o.Get("content"), &content) == nil && len(content) > 0 || o.Has("structuredContent") {
		return nil
	}
	return o.Object("_meta").Get(MetaForeignTask)
}

// Names reports whether a result stands for a task, in whatever way it names it. Such a result has
// no content, and must not be taken for a final one.
func Names(result json.RawMessage) bool {
	o, err := jsonobj.ParseObject(result)
	return err == nil && (o.Text("resultType") == "task" || o.Has("task") && !o.Has("content") || foreignTask(o) != nil)
}

// IsLost reports whether a result stands for a task that cannot be followed, because it has no id
// or, where it is named in a way of its own, because the server does not tell of it.
func IsLost(ctx context.Context, c *mcp.Client, result json.RawMessage) bool {
	if !Names(result) {
		return false
	}
	o, _ := jsonobj.ParseObject(result)
	t := HandleIn(result, c, time.Time{})
	if t == nil || foreignTask(o) == nil {
		return t == nil
	}
	answer, err := c.Call(ctx, mcp.Call{Method: mcp.MethodTasksGet, Params: Params(t.ID)})
	var w Wire
	return err != nil || json.Unmarshal(answer, &w) != nil || w.Status == ""
}

// LostError is the error of a call that its server has answered with such a task.
func LostError(server string) *mcp.Error {
	return mcp.Errorf(mcp.CodeInternal,
		"MCP server %q has made a task of the call and does not tell of it: its answer has no content, and names no task that it knows",
		server)
}
