package acp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

var (
	stdioServer = MCPServer{Name: "playwright", Transport: TransportStdio, Command: "npx", Args: []string{"-y", "x"}}
	sseServer   = MCPServer{Name: "research", Transport: TransportSSE, URL: "http://localhost:8931/sse"}
	httpServer  = MCPServer{Name: "api", Transport: TransportHTTP, URL: "http://localhost:9000/mcp"}
)

const (
	stdioWire = `{"name":"playwright","command":"npx","args":["-y","x"],"env":[]}`
	sseWire   = `{"type":"sse","name":"research","url":"http://localhost:8931/sse","headers":[]}`
	httpWire  = `{"type":"http","name":"api","url":"http://localhost:9000/mcp","headers":[]}`
)

// Most of these are benchflow's tests of what session/new says of MCP servers. Those about agents
// that are told of them in a file are not here: that is the business of whoever starts the agent.
func TestProjectionOfMCPServers(t *testing.T) {
	withCwd := stdioServer
	withCwd.Cwd = "/workspace"
	for _, v := range []struct {
		name    string
		servers []MCPServer
		want    string
	}{
		{"stdio has no type and carries the command", []MCPServer{stdioServer}, "[" + stdioWire + "]"},
		{"sse carries url and type", []MCPServer{sseServer}, "[" + sseWire + "]"},
		{"http carries url and type", []MCPServer{httpServer}, "[" + httpWire + "]"},
		{"each transport in order, cwd kept", []MCPServer{withCwd, sseServer, httpServer},
			`[{"name":"playwright","command":"npx","args":["-y","x"],"env":[],"cwd":"/workspace"},` + sseWire + "," + httpWire + "]"},
		{"tool filters in _meta, headers as a list", []MCPServer{{Name: "atlas", Transport: TransportHTTP, URL: "http://localhost:18765/mcp",
			Headers: []KeyValue{{"x-run", "smoke"}},
			Meta:    json.RawMessage(`{"benchflow": {"mcp_tool_filters": {"tools": ["search","fetch"],"include_tags":["safe"],"exclude_tags":["admin"]}}}`)}},
			`[{"type":"http","name":"atlas","url":"http://localhost:18765/mcp","headers":[{"name":"x-run","value":"smoke"}],` +
				`"_meta":{"benchflow":{"mcp_tool_filters":{"tools":["search","fetch"],"include_tags":["safe"],"exclude_tags":["admin"]}}}}]`},
		{"none is an empty list", nil, "[]"},
		{"stdio and sse in order", []MCPServer{stdioServer, sseServer}, "[" + stdioWire + "," + sseWire + "]"},
		{"arguments as they are", []MCPServer{{Name: "playwright", Transport: TransportStdio, Command: "npx", Args: []string{"-y", "@playwright/mcp@latest"}}},
			`[{"name":"playwright","command":"npx","args":["-y","@playwright/mcp@latest"],"env":[]}]`},
		{"env in the order given, twice the same name too", []MCPServer{{Name: "x", Transport: TransportStdio, Command: "c",
			Env: []KeyValue{{"TOKEN", "a<b>&c"}, {"A", ""}, {"TOKEN", "2"}}}},
			`[{"name":"x","command":"c","args":[],"env":[{"name":"TOKEN","value":"a<b>&c"},{"name":"A","value":""},{"name":"TOKEN","value":"2"}]}]`},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := SessionParams{Cwd: "/app", MCPServers: v.servers}
			if got, want := sessionRequest(t, "session/new", p), `{"cwd":"/app","mcpServers":`+v.want+"}"; got != want {
				t.Errorf("session/new: got\n%s, want\n%s", got, want)
			}
			// It is the same for the other methods that open a session.
			for _, method := range []string{"session/load", "session/resume"} {
				if got, want := sessionRequest(t, method, p), `{"sessionId":"s","cwd":"/app","mcpServers":`+v.want+"}"; got != want {
					t.Errorf("%s: got\n%s, want\n%s", method, got, want)
				}
			}
		})
	}
}

// sessionRequest returns the params that a call sends.
func sessionRequest(t *testing.T, method string, p SessionParams) string {
	t.Helper()
	c, agent := dial(t, &client{}, Options{})
	result := background(func() (err error) {
		switch method {
		case "session/new":
			_, err = c.NewSession(testContext(t), p)
		case "session/load":
			_, err = c.LoadSession(testContext(t), "s", p)
		case "session/resume":
			_, err = c.ResumeSession(testContext(t), "s", p)
		}
		return err
	})
	m := agent.expect(method)
	agent.answer(m, `{"sessionId":"s"}`)
	if err := testenv.Receive(t, result); err != nil {
		t.Error(err)
	}
	return string(m.Params)
}

// As in benchflow, what is wrong is found before the agent sees it; no value, which may be a
// secret, is shown.
func TestWrongServersAreNotSent(t *testing.T) {
	secret := []KeyValue{{"TOKEN", "hunter2"}}
	for want, s := range map[string]MCPServer{
		`MCP server "a": transport stdio needs a command`:                            {Name: "a", Transport: TransportStdio, Env: secret},
		`MCP server "b": transport http needs a url`:                                 {Name: "b", Transport: TransportHTTP, Headers: secret},
		`MCP server "c": transport "streamable-http" is not one of stdio, http, sse`: {Name: "c", Transport: "streamable-http", URL: "http://hunter2@x"},
		`MCP server "d": transport "" is not one of stdio, http, sse`:                {Name: "d", Command: "hunter2"},
		`cwd "relative" is not an absolute path`:                                     {Name: "e"},
		`unexpected end of JSON input`:                                               {Name: "f", Transport: TransportStdio, Command: "c", Env: secret, Meta: json.RawMessage(`{`)},
	} {
		c, _ := dial(t, &client{}, Options{})
		p := SessionParams{Cwd: "/app", MCPServers: []MCPServer{s}}
		if s.Name == "e" {
			p.Cwd = "relative"
		}
		_, err := c.NewSession(testContext(t), p)
		if err == nil || !strings.HasPrefix(err.Error(), "session/new: ") || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}
