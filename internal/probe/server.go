package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/peers/fakemcp"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// server is an MCP server of the probe as the agent is told about it, and its log.
type server struct {
	declared acp.MCPServer
	// tool is the name of the tool that returns the marker. call is the directive that makes the
	// model call it.
	tool   string
	marker string
	log    func() ([]fakemcp.Entry, error)
	wait   func(ctx context.Context, until func([]fakemcp.Entry) bool) error
}

// call returns the directive that makes a tool be called, for the scripted model and for an agent
// that carries out directives itself.
func call(tool, args string) string { return fmt.Sprintf("[[CALL %s.%s %s]]", serverName, tool, args) }

const (
	onStdio = acp.TransportStdio
	onHTTP  = acp.TransportHTTP
	onSSE   = acp.TransportSSE
)

// remote returns a transport for a server that outlives the agent; false if the agent supports
// none.
func (a *process) remote() (acp.Transport, bool) {
	for _, t := range []acp.Transport{onHTTP, onSSE} {
		if a.initialized.Capabilities.Accepts(t) {
			return t, true
		}
	}
	return onStdio, false
}

// serve starts a server. Over HTTP and SSE its first answer takes delay.
func (r *rig) serve(t acp.Transport, delay time.Duration) (*server, error) {
	s := &server{tool: fakemcp.ToolPrefix + string(t)}
	if t == onStdio {
		r.stdio(s)
		return s, nil
	}
	h, err := fakemcp.StartHTTP(delay)
	if err != nil {
		return nil, err
	}
	r.servers = append(r.servers, h)
	url := map[acp.Transport]string{onHTTP: h.MCPURL(), onSSE: h.SSEURL()}[t]
	s.declared = acp.MCPServer{Name: serverName, Transport: t, URL: url,
		Headers: []acp.KeyValue{{Name: "Authorization", Value: "Bearer " + h.Token()}}}
	s.marker, s.wait = h.Marker(string(t)), h.Wait
	s.log = func() ([]fakemcp.Entry, error) { return h.Log(), nil }
	return s, nil
}

// stdio makes a server that the agent starts.
func (r *rig) stdio(s *server) {
	const name = "mcp-server.jsonl"
	file := filepath.Join(r.dir, "logs", name)
	s.marker = fakemcp.NewStdioMarker()
	program := r.o.Executable
	if r.o.Isolation == sandbox.IsolationBwrap {
		program = sandbox.InsideExecutable
	}
	s.declared = acp.MCPServer{
		Name: serverName, Transport: onStdio, Command: program,
		Args: append([]string{StdioCommand}, fakemcp.StdioArgs(r.sandbox.Config.Path("/logs/"+name), s.marker)...),
	}
	s.log = func() ([]fakemcp.Entry, error) {
		log, err := fakemcp.ReadLog(file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // the server was not started
		}
		return log, err
	}
	s.wait = func(ctx context.Context, until func([]fakemcp.Entry) bool) error {
		ticker := time.NewTicker(20 * time.Millisecond) // a file does not tell when it grows
		defer ticker.Stop()
		for {
			log, err := s.log()
			if err != nil || until(log) {
				return err
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
}

// deadServer is a server that is not there: its port refuses connections.
func deadServer(t acp.Transport) (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	url := "http://" + l.Addr().String() + "/mcp"
	return &server{declared: acp.MCPServer{Name: serverName, Transport: t, URL: url}}, l.Close()
}

// awaitTools waits until the server has told its tools. An agent that never asks is not waited for
// forever; it is no error.
func (s *server) awaitTools(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, toolsPatience)
	defer cancel()
	err := s.wait(ctx, has("tools/list", "", true))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// has returns a condition that the log has such an entry.
func has(method, tool string, answered bool) func([]fakemcp.Entry) bool {
	return func(log []fakemcp.Entry) bool {
		return slices.ContainsFunc(log, func(e fakemcp.Entry) bool {
			return e.Method == method && e.Tool == tool && e.Answered == answered
		})
	}
}

// offered returns what the client said when it connected: its version of MCP, and who it is. Since
// 2026-07-28 that is in the _meta of each request.
func offered(log []fakemcp.Entry) string {
	for _, e := range log {
		var request struct {
			Version string             `json:"protocolVersion"`
			Client  acp.Implementation `json:"clientInfo"`
			Meta    struct {
				Version string             `json:"io.modelcontextprotocol/protocolVersion"`
				Client  acp.Implementation `json:"io.modelcontextprotocol/clientInfo"`
			} `json:"_meta"`
		}
		if json.Unmarshal(e.Params, &request) != nil || request.Version+request.Meta.Version == "" {
			continue
		}
		version, client := request.Version, request.Client
		if version == "" {
			version, client = request.Meta.Version, request.Meta.Client
		}
		return fmt.Sprintf("MCP %s, as %s %s", version, client.Name, client.Version)
	}
	return ""
}
