package rollout

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

const (
	playwright = `{"name":"playwright","command":"npx","args":["-y","x"],"env":[]}`
	research   = `{"type":"sse","name":"research","url":"http://localhost:8931/sse","headers":[]}`
	api        = `{"type":"http","name":"api","url":"http://localhost:9000/mcp","headers":[]}`
)

// The vectors are those of benchflow's tests/test_acp_mcp_servers.py by their names there: what a
// task.toml says, and what an agent must get of it. P6 to P9 are about a file in an agent's own
// format, which is not written here; so is P15, that an agent with such a file gets none over ACP.
func TestServersOfATaskAsAnAgentGetsThem(t *testing.T) {
	for _, v := range []struct {
		name, toml string
		methods    []string
		want       string
		hosted     []string
	}{
		{"P1 stdio_spec_omits_type_and_carries_command", `
			mcp_servers = [{name = "playwright", transport = "stdio", command = "npx", args = ["-y", "x"]}]`,
			nil, "[" + playwright + "]", nil},
		{"P2 sse_spec_carries_url_and_type", `
			mcp_servers = [{name = "research", transport = "sse", url = "http://localhost:8931/sse"}]`,
			nil, "[" + research + "]", nil},
		{"P3 http_spec_carries_url_and_type", `
			mcp_servers = [{name = "api", transport = "streamable-http", url = "http://localhost:9000/mcp"}]`,
			nil, "[" + api + "]", nil},
		{"P4 task_mcp_specs_maps_each_transport", `
			mcp_servers = [
				{name = "playwright", transport = "stdio", command = "npx", args = ["-y", "x"], cwd = "/workspace"},
				{name = "research", transport = "sse", url = "http://localhost:8931/sse"},
				{name = "api", transport = "streamable-http", url = "http://localhost:9000/mcp"}]`,
			nil, `[{"name":"playwright","command":"npx","args":["-y","x"],"env":[],"cwd":"/workspace"},` + research + "," + api + "]", nil},
		{"P5 carries_openhands_tool_filters", `
			mcp_servers = [{name = "atlas", transport = "streamable-http", url = "http://localhost:18765/mcp", headers = {x-run = "smoke"},
				tools = ["search", "fetch"], include_tags = ["safe"], exclude_tags = ["admin"]}]`,
			nil, `[{"type":"http","name":"atlas","url":"http://localhost:18765/mcp","headers":[{"name":"x-run","value":"smoke"}],
				"_meta":{"benchflow":{"mcp_tool_filters":{"tools":["search","fetch"],"include_tags":["safe"],"exclude_tags":["admin"]}}}}]`, nil},
		{"P10 handles_absent_config", ``, nil, `[]`, nil},
		{"P11 session_new_attaches_configured_mcp_servers", `
			mcp_servers = [
				{name = "playwright", transport = "stdio", command = "npx", args = ["-y", "x"]},
				{name = "research", url = "http://localhost:8931/sse"}]`,
			[]string{"session/new"}, "[" + playwright + "," + research + "]", nil},
		{"P12 session_new_defaults_to_no_mcp_servers", `mcp_servers = []`, []string{"session/new"}, `[]`, nil},
		{"P13 session_load_attaches_configured_mcp_servers", `
			mcp_servers = [{name = "playwright", transport = "stdio", command = "npx", args = ["-y", "x"]}]`,
			[]string{"session/load", "session/resume"}, "[" + playwright + "]", nil},
		{"P14 connect_threads_task_mcp_servers_into_connect_acp", `
			mcp_servers = [{name = "playwright", transport = "stdio", command = "npx", args = ["-y", "@playwright/mcp@latest"]}]`,
			nil, `[{"name":"playwright","command":"npx","args":["-y","@playwright/mcp@latest"],"env":[]}]`, nil},
		{"variables and headers keep their order", `
			mcp_servers = [{name = "x", transport = "stdio", command = "c", env = {Z = "1", A = "${A:-2}"}}]`,
			nil, `[{"name":"x","command":"c","args":[],"env":[{"name":"Z","value":"1"},{"name":"A","value":"2"}]}]`, nil},
		{"one filter alone", `
			mcp_servers = [{name = "x", transport = "stdio", command = "c", exclude_tags = ["admin"]}]`,
			nil, `[{"name":"x","command":"c","args":[],"env":[],"_meta":{"benchflow":{"mcp_tool_filters":{"exclude_tags":["admin"]}}}}]`, nil},
		{"a server that evalrun starts is told by its address", `
			mcp_servers = [{name = "own", transport = "http", url = "http://127.0.0.1:8000/mcp", command = "python3", args = ["server.py"], env = {KEY = "k"}}]`,
			nil, `[{"type":"http","name":"own","url":"http://127.0.0.1:8000/mcp","headers":[]}]`, []string{"own"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s := &sandboxSpec{lookup: func(string) (string, bool) { return "", false }}
			s.task = taskWith(t, "[environment]\n"+v.toml)
			s.servers = slices.Clone(s.task.Config.Environment.MCPServers)
			if err := s.resolve(); err != nil {
				t.Fatal(err)
			}
			servers, hosted := agentServers(s.servers, &sandbox.Config{Isolation: sandbox.IsolationBwrap})
			if diff := cmp.Diff(v.hosted, hosted); diff != "" {
				t.Error(diff)
			}
			if v.methods == nil {
				v.methods = []string{"session/new", "session/load", "session/resume"}
			}
			for _, method := range v.methods {
				if diff := cmp.Diff(document(t, []byte(v.want)), document(t, sent(t, method, servers))); diff != "" {
					t.Errorf("%s: %s", method, diff)
				}
			}
		})
	}
	// No agent of the registry is one that reads its servers from a file of its own.
	if _, ok := agent.Registered("openhands"); ok {
		t.Error("openhands reads its MCP servers from ~/.openhands/mcp.json, and must get none over ACP")
	}
}

// taskWith loads a task with a task.toml.
func taskWith(t *testing.T, toml string) *tasks.Task {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"task.toml": toml, "instruction.md": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	task, problems := tasks.Load(dir)
	if err := problems.Err(true); err != nil {
		t.Fatal(err)
	}
	return task
}

// sent are the servers as they are on the wire of a call that opens a session.
func sent(t *testing.T, method string, servers []acp.MCPServer) json.RawMessage {
	t.Helper()
	fromClient, toAgent := io.Pipe()
	fromAgent, toClient := io.Pipe()
	requests := make(chan json.RawMessage, 1)
	go func() {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Params struct {
				MCPServers json.RawMessage `json:"mcpServers"`
			} `json:"params"`
		}
		line, err := bufio.NewReader(fromClient).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &request)
		}
		if err != nil {
			_ = toClient.CloseWithError(err)
			return
		}
		requests <- request.Params.MCPServers
		_, _ = fmt.Fprintf(toClient, `{"jsonrpc":"2.0","id":%s,"result":{"sessionId":"s"}}`+"\n", request.ID) // the test fails without it
	}()
	conn := acp.NewConn(toAgent, fromAgent, deaf{}, acp.Options{})
	params := acp.SessionParams{Cwd: "/app", MCPServers: servers}
	var err error
	switch method {
	case "session/new":
		_, err = conn.NewSession(t.Context(), params)
	case "session/load":
		_, err = conn.LoadSession(t.Context(), "s", params)
	case "session/resume":
		_, err = conn.ResumeSession(t.Context(), "s", params)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Close(), toClient.Close() // of pipes
	conn.Wait()
	return <-requests
}

// deaf is a client that is never called.
type deaf struct{}

func (deaf) Update(acp.Update) {}

func (deaf) RequestPermission(context.Context, acp.PermissionRequest) (acp.PermissionOutcome, error) {
	return acp.PermissionOutcome{}, nil
}

func document(t *testing.T, data []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return v
}
