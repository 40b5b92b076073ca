package gateway

import (
	"context"
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Policy decides what becomes of calls of tools, and how the work that they may start is shown.
type Policy interface {
	// InitializeResult changes what the client is told of the server. meta are the members of its
	// _meta.
	InitializeResult(era mcp.Era, capabilities, meta jsonobj.Object) (jsonobj.Object, jsonobj.Object)
	// ShowTool changes how a tool is shown.
	ShowTool(l *Upstream, t jsonobj.Object) jsonobj.Object
	// Capabilities changes the client's capabilities, an object, before a server is told of them.
	Capabilities(era mcp.Era, c json.RawMessage) json.RawMessage
	// AsksPerson says that questions of a modern server that a person can answer are not answered
	// here. The policy sees them as results.
	AsksPerson() bool
	// Call handles tools/call.
	Call(ctx context.Context, l *Upstream, r *mcp.Request) (json.RawMessage, error)
	// WantsTasks says that the tasks of a modern server are wanted, so that the modern era is tried
	// first.
	WantsTasks() bool
}

// transparent is the policy of a gateway that only passes on.
type transparent struct{}

func (transparent) InitializeResult(_ mcp.Era, capabilities, meta jsonobj.Object) (jsonobj.Object, jsonobj.Object) {
	return capabilities, meta
}

func (transparent) ShowTool(_ *Upstream, t jsonobj.Object) jsonobj.Object     { return t }
func (transparent) Capabilities(_ mcp.Era, c json.RawMessage) json.RawMessage { return c }
func (transparent) AsksPerson() bool                                          { return false }

func (transparent) Call(ctx context.Context, l *Upstream, r *mcp.Request) (json.RawMessage, error) {
	return l.forward(ctx, r)
}

func (transparent) WantsTasks() bool { return false }
