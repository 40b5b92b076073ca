package modelagent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// mcpTools stands for the tools of the rollout's MCP servers.
const mcpTools = "mcp"

// allTools are what a model may be given.
var allTools = []string{bashTool, mcpTools}

// mcpTool is a tool of an MCP server, with the name by which the model calls it.
type mcpTool struct {
	Name        string          `json:"name"`
	Server      string          `json:"server"`
	Tool        string          `json:"tool"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
}

// redact takes secrets of the run out of what a server says of its tool: a provider will read it.
func (t *mcpTool) redact(text func(string) string) {
	t.Description = text(t.Description)
	if schema := text(string(t.Schema)); json.Valid([]byte(schema)) {
		t.Schema = json.RawMessage(schema)
	} else {
		t.Schema = objectSchema(nil)
	}
}

const (
	// listLimit is how long all servers together may take to list their tools, with their start.
	listLimit = 2 * time.Minute
	// fetchLimit is how long it may take to fetch the result of one job.
	fetchLimit = 2 * time.Minute
	// holdLimit is how long a call may stay open whose work would end with us: as long as the segment.
	holdLimit = 10 * 365 * 24 * time.Hour
)

// servers are the MCP servers of a segment, as a loop calls them: one call after another.
type servers struct {
	seg   agent.Segment
	clock *toolserver.Clock
	set   *toolserver.Set
	// clients are the connections to the gateway, by server. serving counts their other ends.
	clients map[string]*mcp.Client
	serving sync.WaitGroup

	mu sync.Mutex
	// callID is the id in the ledger of the call that runs; empty if it is not there. left is what it
	// waits for; nil if it has a result.
	callID string
	left   *wait.Work
	mock   string // the place of the mock that was played for the call; empty if none was
}

// openServers puts the servers of the segment behind the gateway. The sandbox is not started yet.
func (s *segment) openServers() (*servers, *fault.Fault, error) {
	out := &servers{seg: s.seg, clock: s.clock, clients: map[string]*mcp.Client{}}
	if !s.a.settings.has(mcpTools) || len(s.seg.Servers) == 0 {
		return out, nil, nil
	}
	g := s.seg.Gateway
	if g == nil || s.a.opts.Gateway == nil {
		return out, fault.New(fault.NotRunnable,
			"a model reaches MCP servers through the gateway only; leave out --mcp direct"), nil
	}
	for _, server := range s.seg.Servers {
		s.info.MCPServers = append(s.info.MCPServers, record.ServerVerdict{Name: server.Name,
			Transport: string(server.Transport), Verdict: record.VerdictSent})
	}
	hooks := &suspend.Hooks{Ledger: loopLedger{g.Ledger, out}, Check: g.Check, Jobs: g.Jobs, SoftWait: g.SoftWait,
		Hold: holdLimit, Changed: out.changed, Called: out.called, Once: true, Mocks: s.seg.Mocks,
		Person: s.a.settings.Elicitation == elicitSuspend}
	var err error
	out.set, err = toolserver.Open(s.a.opts.Gateway, s.seg, s.clock,
		gateway.AccessOptions{Now: s.a.opts.Now, Policy: hooks.Policy})
	return out, nil, err
}

// loopLedger is the ledger of a loop. A call ends there only when its result is in the conversation,
// and not when the gateway has it.
type loopLedger struct {
	suspend.Ledger
	servers *servers
}

// Begin implements suspend.Ledger.
func (l loopLedger) Begin(ctx context.Context, key suspend.CallKey) (suspend.Entry, error) {
	entry, err := l.Ledger.Begin(ctx, key)
	l.servers.mu.Lock()
	defer l.servers.mu.Unlock()
	l.servers.callID = entry.ID
	return entry, err
}

// Ended implements suspend.Ledger.
func (loopLedger) Ended(context.Context, string) error { return nil }

// ended records that the conversation has the result of a call.
func (s *servers) ended(ctx context.Context, callID string) error {
	if callID == "" || s.seg.Gateway == nil {
		return nil
	}
	return s.seg.Gateway.Ledger.Ended(ctx, callID)
}

// changed is called when the state of work changes that a call has started.
func (s *servers) changed(w wait.Work, state suspend.State) {
	switch state {
	case suspend.Held, suspend.Released:
		s.clock.Hold(state == suspend.Held)
	case suspend.Suspended:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left = &w
	}
}

// called is called after each call of a tool.
func (s *servers) called(r suspend.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mock = r.Mock
}

// connect returns the connection to a server.
func (s *servers) connect(ctx context.Context, name string) (*mcp.Client, error) {
	if c := s.clients[name]; c != nil {
		return c, nil
	}
	c, err := mcp.Connect(ctx, mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
		toServer, fromClient := io.Pipe()
		toClient, fromServer := io.Pipe()
		s.serving.Go(func() {
			err := s.set.Access.ServeStdio(context.Background(), name, toServer, fromServer) // ends with its client
			_ = fromServer.CloseWithError(cmp.Or(err, io.EOF))                               // which learns of it
		})
		return pipe{toClient, fromClient}, nil
	}}, mcp.ClientOptions{Protocol: mcp.Legacy, HandshakeTimeout: listLimit})
	if err == nil {
		s.clients[name] = c
	}
	return c, err
}

// pipe is a connection of two pipes.
type pipe struct {
	io.ReadCloser
	io.WriteCloser
}

// Close implements io.Closer.
func (p pipe) Close() error { return errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close()) }

// list returns the tools of all servers.
func (s *servers) list(ctx context.Context, info *record.Info) ([]mcpTool, *fault.Fault) {
	if s.set == nil {
		return nil, nil
	}
	late, cancel := context.WithTimeout(ctx, listLimit)
	defer cancel()
	var out []mcpTool
	for i, e := range s.set.Access.Endpoints() {
		name := e.Server().Name
		c, err := s.connect(late, name)
		if err == nil {
			out, err = listOf(late, c, name, out)
		}
		switch {
		case ctx.Err() != nil:
			return nil, agent.CauseFault(ctx)
		case err != nil:
			info.MCPServers[i].Verdict, info.MCPServers[i].Reason = record.VerdictUnreachable, err.Error()
			return nil, fault.Newf(fault.MCP, "MCP server %q: its tools cannot be listed: %v", name, err)
		}
	}
	if err := suspend.CheckMocks(s.set.Access, s.seg.Mocks); err != nil {
		return nil, fault.New(fault.MCP, err.Error())
	}
	slices.SortFunc(out, func(a, b mcpTool) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Tool, b.Tool))
	})
	taken := map[string]bool{bashTool: true}
	for i := range out {
		out[i].Name = nameFor(out[i].Server, out[i].Tool, taken)
	}
	return out, nil
}

// listOf adds the tools of a server to a list.
func listOf(ctx context.Context, c *mcp.Client, server string, out []mcpTool) ([]mcpTool, error) {
	params := mcp.EmptyObject
	for range gateway.MaxPages {
		result, err := c.Call(ctx, mcp.Call{Method: mcp.MethodToolsList, Params: params})
		if err != nil {
			return nil, err
		}
		var page struct {
			Tools []struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				InputSchema json.RawMessage `json:"inputSchema"`
			} `json:"tools"`
			NextCursor string `json:"nextCursor"`
		}
		if err := json.Unmarshal(result, &page); err != nil {
			return nil, err
		}
		for _, t := range page.Tools {
			out = append(out, mcpTool{Server: server, Tool: t.Name, Description: t.Description, Schema: objectSchema(t.InputSchema)})
		}
		if page.NextCursor == "" {
			return out, nil
		}
		params = jsonobj.Object{{Key: "cursor", Value: jsonobj.Quote(page.NextCursor)}}.JSON()
	}
	return out, nil
}

// objectSchema returns a schema as providers want it: of an object, with the key properties.
func objectSchema(schema json.RawMessage) json.RawMessage {
	o, err := jsonobj.ParseObject(schema)
	if err != nil {
		o = nil
	}
	if !o.Has("type") {
		o = o.Set("type", json.RawMessage(`"object"`))
	}
	if !o.Has("properties") {
		o = o.Set("properties", mcp.EmptyObject)
	}
	return o.JSON()
}

// unusual matches what names of tools may not have.
var unusual = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)

// mostName is how long the name of a tool may be. Newer models take more.
const mostName = 64

// nameFor returns the name by which a model calls a tool. Names that are too long, or would be those
// of two tools, end with a hash, which is the same in every run.
func nameFor(server, tool string, taken map[string]bool) string {
	name := unusual.ReplaceAllString(server, "_") + "__" + unusual.ReplaceAllString(tool, "_")
	if len(name) > mostName || taken[name] {
		sum := sha256.Sum256([]byte(server + "\x00" + tool))
		name = name[:min(len(name), mostName-9)] + "_" + hex.EncodeToString(sum[:4])
	}
	taken[name] = true
	return name
}

// outcome is what came of a call. left is what it waits for, if it has no result yet; callID is its id
// in the ledger.
type outcome struct {
	result       json.RawMessage
	callID, mock string
	left         *wait.Work
}

// call calls a tool. The error is a fault, or that of ctx.
func (s *servers) call(ctx context.Context, t mcpTool, arguments string) (out outcome, err error) {
	s.mu.Lock()
	s.callID, s.left, s.mock = "", nil, ""
	s.mu.Unlock()
	if s.endpoint(t.Server) == nil {
		return out, fault.Newf(fault.MCP, "MCP server %q is not there any more", t.Server)
	}
	c, err := s.connect(ctx, t.Server)
	if err == nil {
		params := jsonobj.Object{{Key: "name", Value: jsonobj.Quote(t.Tool)},
			{Key: "arguments", Value: json.RawMessage(arguments)}}.JSON()
		out.result, err = c.Call(ctx, mcp.Call{Method: mcp.MethodToolsCall, Params: params})
	}
	s.mu.Lock()
	out.callID, out.left, out.mock = s.callID, s.left, s.mock
	s.mu.Unlock()
	var said *mcp.Error
	switch lost := s.endpoint(t.Server).Stats().Lost; {
	case ctx.Err() != nil:
		return out, context.Cause(ctx)
	case lost != "":
		return out, fault.Newf(fault.MCP, "MCP server %q went away in the middle of a call: %s", t.Server, lost)
	case errors.As(err, &said):
		out.result = suspend.TextResult(said.Error(), true)
	case err != nil:
		return out, fault.Newf(fault.MCP, "MCP server %q cannot be reached: %v", t.Server, err)
	}
	return out, nil
}

// close ends the connections.
func (s *servers) close(info *record.Info) error {
	var errs []error
	for _, c := range s.clients {
		errs = append(errs, c.Close())
	}
	if s.set == nil {
		return errors.Join(errs...)
	}
	for i := range info.MCPServers {
		v := &info.MCPServers[i]
		stats := s.set.Access.Endpoint(v.Name).Stats()
		v.Calls, v.Held = stats.Calls, stats.Held
	}
	errs = append(errs, s.set.Close())
	s.serving.Wait()
	return errors.Join(errs...)
}

// spanName returns the name under which evaluators know a tool: its own, with that of the server if
// two servers have one of that name.
func spanName(all []mcpTool, t mcpTool) string {
	for _, other := range all {
		if other.Tool == t.Tool && other.Server != t.Server {
			return t.Server + "/" + t.Tool
		}
	}
	return t.Tool
}

// textOf returns a result as the model gets it. Images and other data are only named.
func textOf(result json.RawMessage) (text string, failed bool) {
	o, _ := jsonobj.ParseObject(result)
	var blocks []json.RawMessage
	if json.Unmarshal(o.Get("content"), &blocks) == nil {
		for i, raw := range blocks {
			block, _ := jsonobj.ParseObject(raw)
			data := len(block.Text("data")) + len(block.Object("resource").Text("blob"))
			if data == 0 {
				continue
			}
			kind := cmp.Or(block.Text("mimeType"), block.Object("resource").Text("mimeType"), "data")
			blocks[i] = jsonobj.Object{{Key: "type", Value: jsonobj.Quote("text")},
				{Key: "text", Value: jsonobj.Quote(fmt.Sprintf("[%s, %d bytes in base64, not shown]", kind, data))}}.JSON()
		}
		content, err := jsonobj.Marshal(blocks)
		if err == nil {
			result = o.Set("content", content).JSON()
		}
	}
	return toolserver.ResultText(result)
}

// asArguments returns the arguments of a call as an object, or what is wrong with them.
func asArguments(text string) (arguments, wrong string) {
	if strings.TrimSpace(text) == "" {
		return "{}", ""
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &object); err != nil || object == nil {
		return "", fmt.Sprintf("not run: the arguments are no JSON object: %v", cmp.Or(err, errors.New("they are null")))
	}
	return text, ""
}

// endpoint returns a server behind the gateway; nil if there is none of that name.
func (s *servers) endpoint(name string) *gateway.Endpoint {
	if s.set == nil {
		return nil
	}
	return s.set.Access.Endpoint(name)
}
