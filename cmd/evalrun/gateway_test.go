package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/mcp"
	"github.com/evalrun/evalrun/rawjson"
)

// gatewayProcess is `evalrun gateway` as a process, which a test kills.
type gatewayProcess struct {
	t    *testing.T
	args []string
	cmd  *exec.Cmd
	// servers are what it has printed.
	servers map[string]struct {
		URL     string
		Headers map[string]string
	}
}

func (g *gatewayProcess) start() {
	g.t.Helper()
	self, err := os.Executable()
	if err != nil {
		g.t.Fatal(err)
	}
	g.cmd = exec.Command(self)
	g.cmd.Args = append([]string{"evalrun", "gateway"}, g.args...)
	g.cmd.Stderr = os.Stderr
	out, err := g.cmd.StdoutPipe()
	if err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		g.t.Fatal(err)
	}
	var printed map[string]json.RawMessage
	if err := json.NewDecoder(out).Decode(&printed); err != nil {
		g.t.Fatal(err)
	}
	if err := json.Unmarshal(printed["mcpServers"], &g.servers); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gatewayProcess) kill() {
	g.t.Helper()
	_ = g.cmd.Process.Kill() // it may be killed already
	_ = g.cmd.Wait()         // it was killed
}

func (g *gatewayProcess) connect(o mcp.ClientOptions) *mcp.Client {
	g.t.Helper()
	s := g.servers["tasks"]
	target := mcp.Target{URL: s.URL, Header: map[string][]string{"Authorization": {s.Headers["Authorization"]}}}
	c, err := mcp.Connect(g.t.Context(), target, o)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Abandon() })
	return c
}

func callGateway(t *testing.T, c *mcp.Client, method, params string) rawjson.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result, err := c.Call(ctx, mcp.Call{Method: method, Params: json.RawMessage(params)})
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	o, err := rawjson.ParseObject(result)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Tasks and sessions survive the gateway when it is killed at once after a client was told of them, again and again.
func TestGatewayThatIsKilled(t *testing.T) {
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		t.Run(string(era), func(t *testing.T) {
			t.Parallel()
			s, err := taskserver.New(taskserver.Options{Era: taskserver.Era(era), Poll: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			server := httptest.NewServer(s)
			defer server.Close()
			defer s.Close()
			dir := t.TempDir()
			config := filepath.Join(dir, "mcp.json")
			if err := os.WriteFile(config, fmt.Appendf(nil, `{"mcpServers":{"tasks":{"type":"http","url":%q}}}`, server.URL), 0o600); err != nil {
				t.Fatal(err)
			}
			g := &gatewayProcess{t: t, args: []string{config, "--store", filepath.Join(dir, "store"), "--listen", freeAddress(t)}}
			g.start()
			t.Cleanup(func() { g.kill() })
			c := g.connect(mcp.ClientOptions{Protocol: era, NoStream: true, Capabilities: json.RawMessage(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)})
			state, servers := c.State(), fmt.Sprint(g.servers)
			ids := map[string]string{}
			for i := range 4 {
				text := fmt.Sprint("task ", i)
				params := fmt.Sprintf(`{"name":"compute","arguments":{"ms":%d,"text":%q}}`, 100*i, text)
				task := func() rawjson.Object { return callGateway(t, c, mcp.MethodToolsCall, params) }
				if era == mcp.Legacy {
					params = strings.TrimSuffix(params, "}") + `,"task":{}}`
					task = func() rawjson.Object { return callGateway(t, c, mcp.MethodToolsCall, params).Object("task") }
				}
				ids[task().Text("taskId")] = text
				g.kill()
				g.start()
				if got := fmt.Sprint(g.servers); got != servers {
					t.Fatalf("clients are to use\n%s\ninstead of\n%s", got, servers)
				}
			}
			again := g.connect(mcp.ClientOptions{Session: &state, NoStream: true, Capabilities: json.RawMessage(`{"extensions":{"io.modelcontextprotocol/tasks":{}}}`)})
			for id, want := range ids {
				var result rawjson.Object
				if era == mcp.Legacy {
					result = callGateway(t, again, mcp.MethodTasksResult, `{"taskId":"`+id+`"}`)
				}
				for deadline := time.Now().Add(30 * time.Second); result == nil && time.Now().Before(deadline); {
					o := callGateway(t, again, mcp.MethodTasksGet, `{"taskId":"`+id+`"}`)
					if result = o.Object("result"); result == nil {
						tick := time.NewTimer(20 * time.Millisecond) // as a client polls
						<-tick.C
					}
				}
				if got := string(result.Get("content")); !strings.Contains(got, want) {
					t.Errorf("%s: %s", want, got)
				}
			}
		})
	}
}

// freeAddress is an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestGatewayRefuses(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "mcp.json")
	if err := os.WriteFile(config, []byte(`{"mcpServers":{"all":{"type":"http","url":"http://127.0.0.1:1/mcp"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	short := filepath.Join(dir, "token")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{t: t, args: []string{config, "--store", filepath.Join(dir, "store")}}
	g.start()
	defer g.kill()
	if info, err := os.Stat(filepath.Join(dir, "store", "gateway.token")); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	for _, test := range []struct {
		args []string
		says string
	}{
		{nil, "another gateway uses the store"},
		{[]string{"--task-ttl", "0s"}, "--task-ttl: expected more than 0"},
		{[]string{"--max-task-ttl", "-1h"}, "--max-task-ttl: expected more than 0"},
		{[]string{"--max-tasks", "0"}, "--max-tasks: expected more than 0"},
		{[]string{"--max-tasks-per-session", "-5"}, "--max-tasks-per-session: expected more than 0"},
		{[]string{"--task-ttl", "3h", "--store", filepath.Join(dir, "a")}, "time to live"},
		{[]string{"--max-task-ttl", "9999h", "--store", filepath.Join(dir, "a")}, "time to live"},
		{[]string{"--max-tasks", "100", "--max-tasks-per-session", "101", "--store", filepath.Join(dir, "a")}, "of a session"},
		{[]string{"--aggregate", "--store", filepath.Join(dir, "a")}, "the name is taken"},
		{[]string{"--token-file", short}, "at least 16 characters"},
	} {
		var out bytes.Buffer
		args := append([]string{"gateway", "--store", filepath.Join(dir, "store"), config}, test.args...)
		if code := execute(t.Context(), args, strings.NewReader(""), &out, &out); code != exitUsage || !strings.Contains(out.String(), test.says) {
			t.Errorf("%q: exit code %d, %s", test.args, code, &out)
		}
	}
}
