package acpagent

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
)

// An agent whose servers give it no tools is not prompted.
func TestAnAgentWithoutToolsIsNotPrompted(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	r := newRollout(t)
	r.bounds.tools = 3 * time.Second // enough for the tools of the other server on a busy machine
	over := make(chan struct{})
	fast, slow := recordServer(t, "fast", "read"), recordServer(t, "slow", "read")
	inner := slow.URL
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if bytes.Contains(body, []byte(`"tools/list"`)) {
			<-over
		}
		out, err := http.NewRequestWithContext(req.Context(), req.Method, inner, bytes.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		out.Header = req.Header
		resp, err := http.DefaultClient.Do(out)
		if err != nil {
			return // the gateway has gone
		}
		defer func() { _ = resp.Body.Close() }()
		for k, v := range resp.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	t.Cleanup(func() { close(over); web.Close() })
	slow.URL = web.URL
	r.setenv("ACP_AGENT_FAULT", "tools-later") // as real agents it opens its session before it has the tools
	r.behindGateway(fast, slow)
	out := r.prompt("[[SAY hello]]")
	mustFault(t, out, fault.MCP, `MCP server "slow": its tools did not come within 3s (handshakeTimeout)`)
	if s := out.Info.MCPServers; s[0].Verdict != record.VerdictSent || s[1].Verdict != record.VerdictNoTools || s[1].Reason == "" {
		t.Errorf("got %+v", s)
	}
	if r.events(0, record.EventPrompt) != nil {
		t.Error("it was prompted")
	}
}

// What is wrong with the program of a stdio server is said, and what it printed is kept.
func TestWhatIsWrongWithAServersProgram(t *testing.T) {
	file := func(r *rollout) string {
		path := filepath.Join(r.dir, "server.py")
		if err := os.WriteFile(path, []byte("exit 1\n"), 0o600); err != nil {
			r.t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		server func(r *rollout) acp.MCPServer
		direct bool
		bwrap  bool
		want   []string
		kept   bool // what it printed
	}{
		"it ends": {server: func(*rollout) acp.MCPServer {
			return acp.MCPServer{Command: "sh", Args: []string{"-c", "echo RECORDS_TOKEN is not set >&2; exit 3"}}
		}, want: []string{`MCP server "records" cannot be reached`, "RECORDS_TOKEN is not set", "exit status 3"}, kept: true},
		"it is missing": {server: func(*rollout) acp.MCPServer { return acp.MCPServer{Command: "no-such-server"} },
			want: []string{`MCP server "records": its program "no-such-server" cannot be started: there is none of that name in PATH`}},
		"it is missing, directly": {direct: true, server: func(*rollout) acp.MCPServer { return acp.MCPServer{Command: "/no/such/server"} },
			want: []string{`MCP server "records": its program "/no/such/server" cannot be started: /no/such/server does not exist`}},
		"it is no program": {server: func(r *rollout) acp.MCPServer { return acp.MCPServer{Command: file(r)} },
			want: []string{"server.py is not executable"}},
		"it cannot be seen": {bwrap: true, server: func(r *rollout) acp.MCPServer {
			path := file(r)
			if err := os.Chmod(path, 0o700); err != nil {
				r.t.Fatal(err)
			}
			return acp.MCPServer{Command: path}
		}, want: []string{`server.py is not visible where the agent lives: name its folder in the agent's "visible"`}},
		"its file cannot be seen": {bwrap: true, server: func(r *rollout) acp.MCPServer { return acp.MCPServer{Command: "sh", Args: []string{file(r)}} },
			want: []string{`server.py, an argument of MCP server "records", is a file of this machine that is not visible where the agent lives`}, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t)
			if c.bwrap {
				r.inBwrap()
			}
			server := c.server(r)
			server.Name, server.Transport = "records", acp.TransportStdio
			r.behindGateway(server)
			seg := r.segment("[[SAY hello]]")
			if c.direct {
				seg.Gateway = nil
			}
			out := r.run(seg)
			for _, want := range c.want {
				mustFault(t, out, fault.MCP, want)
			}
			if v := out.Info.MCPServers[0]; v.Verdict != record.VerdictUnreachable || r.events(0, record.EventPrompt) != nil {
				t.Errorf("got %+v", v)
			}
			if log, _ := os.ReadFile(filepath.Join(seg.Dir, FileSetup)); c.kept != (strings.TrimSpace(string(log)) != "") {
				t.Errorf("%s: %q", FileSetup, log)
			}
		})
	}
}
