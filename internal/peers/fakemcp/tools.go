// Package fakemcp has MCP servers that show what an agent can use. There is one for each transport.
// Each has a tool that returns a text which nobody could guess, and one that takes as long as it is
// told. They keep a log of the agent's requests.
//
// [StartHTTP] serves streamable HTTP and SSE on loopback. [StdioMain] is a program that serves
// stdin and stdout; the log is a file there, which [ReadLog] reads. The package knows nothing of
// agents.
package fakemcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The names of the transports. The tool of each is ToolPrefix and the name.
const (
	Stdio = "stdio"
	HTTP  = "http"
	SSE   = "sse"
)

const (
	// ToolPrefix begins the name of the tool that returns the marker.
	ToolPrefix = "probe_"
	// WaitTool is the tool that takes {"ms": 1000} to wait.
	WaitTool = "wait"
)

// Entry is one thing that a server saw. A request is logged twice: when it came, and when it was
// answered.
type Entry struct {
	Time      time.Time `json:"time"`
	Transport string    `json:"transport"`
	// Method is the method of MCP, or one of the Method constants.
	Method string `json:"method"`
	// Tool is the tool that was called.
	Tool string `json:"tool,omitempty"`
	// Params are those of the request, as the server has understood them. They include the _meta of
	// the client, such as a progress token.
	Params json.RawMessage `json:"params,omitempty"`
	// Header is the header of the HTTP request, or of the connection over SSE, without credentials.
	Header http.Header `json:"header,omitempty"`
	// Answered is set in the second entry of a request, with TookMs. Cancelled says that the client
	// had cancelled it by then.
	Answered  bool   `json:"answered"`
	TookMs    int64  `json:"tookMs"`
	Cancelled bool   `json:"cancelled,omitempty"`
	Error     string `json:"error,omitempty"`
}

// The entries that are no requests.
const (
	// MethodStart and MethodEnd mark the beginning and the end of a stdio server.
	MethodStart = "start"
	MethodEnd   = "end"
	// MethodRefused marks an HTTP request without the right token.
	MethodRefused = "refused"
)

// served is one MCP server.
type served struct {
	transport string
	marker    string
	// delay is how long the first answer takes.
	delay time.Duration
	// header is that of the connection, if requests have none of their own.
	header http.Header
	log    func(Entry)
	// done is closed when the server ends, because the SDK waits for the calls that run.
	done <-chan struct{}
}

// waitSchema is an object and not text, because the SDK decodes it.
var (
	noArguments = map[string]any{"type": "object", "properties": map[string]any{}}
	waitSchema  = map[string]any{
		"type": "object", "required": []string{"ms"},
		"properties": map[string]any{"ms": map[string]any{"type": "integer", "minimum": 0, "description": "milliseconds"}},
	}
)

func (s served) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "evalrun-probe-" + s.transport, Version: "1"}, nil)
	// The tools are read-only, because some agents ask a person, or another model, about others.
	harmless := &mcp.ToolAnnotations{ReadOnlyHint: true}
	server.AddTool(&mcp.Tool{Name: ToolPrefix + s.transport,
		Description: "Returns a marker.", InputSchema: noArguments, Annotations: harmless},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text(s.marker), nil })
	server.AddTool(&mcp.Tool{Name: WaitTool, Description: "Waits for a number of milliseconds.",
		InputSchema: waitSchema, Annotations: harmless}, s.wait)
	server.AddReceivingMiddleware(s.record)
	return server
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

// wait is the tool that waits.
func (s served) wait(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var args struct {
		Ms *int64 `json:"ms"`
	}
	if err := json.Unmarshal(req.Params.Arguments, &args); err != nil || args.Ms == nil || *args.Ms < 0 {
		result := text(fmt.Sprintf(`expected {"ms": milliseconds}, got %s`, req.Params.Arguments))
		result.IsError = true
		return result, nil
	}
	if err := s.rest(ctx, time.Duration(*args.Ms)*time.Millisecond); err != nil {
		return nil, err
	}
	return text(fmt.Sprintf("waited %d ms", *args.Ms)), nil
}

// rest waits, unless the request or the server ends first.
func (s served) rest(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.done:
		return errors.New("the server ends")
	}
}

// record logs every request before and after it is handled.
func (s served) record(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		e := Entry{Time: time.Now(), Transport: s.transport, Method: method, Header: s.header}
		if call, ok := req.(*mcp.CallToolRequest); ok && call.Params != nil {
			e.Tool = call.Params.Name
		}
		// If the client sends none, they are a nil pointer of their type, and become null.
		if params, err := json.Marshal(req.GetParams()); err == nil && string(params) != "null" {
			e.Params = params
		}
		if extra := req.GetExtra(); extra != nil && extra.Header != nil {
			e.Header = withoutCredentials(extra.Header)
		}
		s.log(e)
		if method == "initialize" || method == "server/discover" { // the first request, in the two eras of MCP
			if err := s.rest(ctx, s.delay); err != nil {
				return nil, err
			}
		}
		result, err := next(ctx, method, req)
		now := time.Now()
		e.Answered, e.TookMs, e.Time = true, now.Sub(e.Time).Milliseconds(), now
		e.Cancelled = errors.Is(ctx.Err(), context.Canceled)
		if err != nil {
			e.Error = err.Error()
		}
		s.log(e)
		return result, err
	}
}

func withoutCredentials(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{"Authorization", "Cookie"} {
		h.Del(name)
	}
	return h
}
