package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// gatewayProcess is `evalrun gateway` as a process, which a test kills.
type gatewayProcess struct {
	t    *testing.T
	args []string
	// stderr gets what the process says there; nil is that of the test.
	stderr io.Writer
	cmd    *exec.Cmd
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
	g.cmd.Stderr = cmp.Or[io.Writer](g.stderr, os.Stderr)
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
	g.t.Cleanup(func() { _ = c.Detach() })
	return c
}

func callGateway(t *testing.T, c *mcp.Client, method, params string) jsonobj.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	result, err := c.Call(ctx, mcp.Call{Method: method, Params: json.RawMessage(params)})
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	o, err := jsonobj.ParseObject(result)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Tasks and sessions survive the gateway when it is killed at once after a client was told about
// them, again and again.
func TestGatewayThatIsKilled(t *testing.T) {
	testenv.NeedSlow(t)
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
				task := func() jsonobj.Object { return callGateway(t, c, mcp.MethodToolsCall, params) }
				if era == mcp.Legacy {
					params = strings.TrimSuffix(params, "}") + `,"task":{}}`
					task = func() jsonobj.Object { return callGateway(t, c, mcp.MethodToolsCall, params).Object("task") }
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
				var result jsonobj.Object
				if era == mcp.Legacy {
					result = callGateway(t, again, mcp.MethodTasksResult, `{"taskId":"`+id+`"}`)
				}
				testenv.Eventually(func() bool {
					if result == nil {
						result = callGateway(t, again, mcp.MethodTasksGet, `{"taskId":"`+id+`"}`).Object("result")
					}
					return result != nil
				})
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

// stdioGateway is a gateway whose one server is a process that does not speak MCP, but starts
// others and outlives its stdin.
type stdioGateway struct {
	gatewayProcess
	mark string
}

func newStdioGateway(t *testing.T, name string, args ...string) *stdioGateway {
	g := &stdioGateway{gatewayProcess{t: t}, filepath.Join(t.TempDir(), name)}
	config := filepath.Join(t.TempDir(), name+".json")
	text := fmt.Sprintf(`{"mcpServers":{"s":{"command":"sh","args":["-c","setsid sleep 1000 & cat >/dev/null; sleep 1000"],"env":{"GATEWAY_TEST":%q}}}}`, g.mark)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.args = append([]string{config}, args...)
	t.Cleanup(func() {
		g.kill()
		for _, pid := range g.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the test has failed
		}
	})
	return g
}

// processes are those of the server that are running.
func (g *stdioGateway) processes() []int {
	return slices.Sorted(maps.Keys(testenv.Processes("GATEWAY_TEST=" + g.mark + "\x00")))
}

// use has the gateway start the server, and waits until that has started its own processes.
func (g *stdioGateway) use() {
	g.t.Helper()
	go func() { // ends with the gateway
		if r, err := g.post("s", g.servers["s"].Headers["Authorization"]); err == nil {
			_ = r.Body.Close()
		}
	}()
	if !testenv.Eventually(func() bool { return len(g.processes()) == 3 }) {
		g.t.Fatalf("the server was not started: %v", g.processes())
	}
}

// post sends an initialize request.
func (g *gatewayProcess) post(server, authorization string) (*http.Response, error) {
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.servers[server].URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {authorization}}
	return http.DefaultClient.Do(r)
}

// Given a gateway that was killed, and another one in the same store with a token of its own, when
// the first is started again, then the processes that it had left are gone before it serves
// anybody, and those of the other one are not; and when it is ended it leaves none.
func TestGatewayLeavesNoProcesses(t *testing.T) {
	testenv.NeedSlow(t)
	if runtime.GOOS != "linux" {
		t.Skip("processes that left their group are found on Linux only")
	}
	t.Parallel()
	store, token := filepath.Join(t.TempDir(), "store"), filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("the-token-of-the-other"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, other := newStdioGateway(t, "one", "--store", store), newStdioGateway(t, "other", "--store", store, "--token-file", token)
	for _, g := range []*stdioGateway{g, other} {
		g.start()
		g.use()
	}
	g.kill()
	if len(g.processes()) == 0 {
		t.Fatal("nothing has outlived the gateway")
	}
	g.start()
	if left := g.processes(); len(left) > 0 {
		t.Errorf("left by the gateway that was killed: %v", left)
	}
	if !testenv.Eventually(func() bool { return len(other.processes()) == 3 }) { // one that begins another program is not seen for a moment
		t.Errorf("of the other gateway's processes %v are left", other.processes())
	}
	g.use()
	if err := g.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := g.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left := g.processes(); len(left) > 0 {
		t.Errorf("left by the gateway that was ended: %v", left)
	}
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("these tests were started by nohup, whose programs outlive their terminal")
	}
	if err := other.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := other.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if left := other.processes(); len(left) > 0 {
		t.Errorf("left by the gateway whose terminal was closed: %v", left)
	}
}

// A stdio server sees of the gateway's environment what it needs, and what its configuration
// names.
func TestEnvironmentOfStdioServers(t *testing.T) {
	t.Setenv("EVALRUN_TEST_SECRET", "a secret of the gateway")
	t.Setenv("LC_ALL", "C.UTF-8")
	dump := filepath.Join(t.TempDir(), "env")
	config := filepath.Join(t.TempDir(), "mcp.json")
	text := fmt.Sprintf(`{"mcpServers":{"s":{"command":"sh","args":["-c","env > '%s.new' && mv '%[1]s.new' '%[1]s'"],"env":{"NAMED":"${EVALRUN_TEST_SECRET}"}}}}`, dump)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{t: t, args: []string{config, "--store", filepath.Join(t.TempDir(), "store")}}
	g.start()
	defer g.kill()
	r, err := g.post("s", g.servers["s"].Headers["Authorization"]) // it has ended its stdout when this is answered
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	env, err := os.ReadFile(dump)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"NAMED=a secret of the gateway", "LC_ALL=C.UTF-8", "PATH=" + os.Getenv("PATH")} {
		if !strings.Contains("\n"+string(env), "\n"+line+"\n") {
			t.Errorf("%q is missing in %s", line, env)
		}
	}
	if strings.Contains(string(env), "EVALRUN_TEST_SECRET") {
		t.Errorf("the server sees what is not its own: %s", env)
	}
}

func TestGatewayAuthorization(t *testing.T) {
	config := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(config, []byte(`{"mcpServers":{"a":{"type":"http","url":"http://127.0.0.1:1/mcp"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gatewayProcess{t: t, args: []string{config, "--store", filepath.Join(t.TempDir(), "store"), "--listen", "0.0.0.0:0", "--allow-remote"}}
	g.start()
	defer g.kill()
	if url := g.servers["a"].URL; !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("clients are to use %s", url)
	}
	token := strings.TrimPrefix(g.servers["a"].Headers["Authorization"], "Bearer ")
	for authorization, accepted := range map[string]bool{
		"Bearer " + token: true, "bearer " + token: true, "BEARER " + token: true, token: false, "Basic " + token: false, "Bearer" + token: false, "Bearer ": false, "": false,
	} {
		r, err := g.post("a", authorization)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close() // only the status counts
		if got := r.StatusCode != http.StatusUnauthorized; got != accepted {
			t.Errorf("%q: %s", authorization, r.Status)
		}
	}
}
