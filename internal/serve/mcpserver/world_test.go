package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/serve/servetest"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

// The eval sets of a world are called as their agent is; each has one evaluation, and is scored by
// whether the output contains "yes".
var agents = map[string]string{
	"done":  `echo '{"answer":"yes"}'`,
	"wrong": `echo '{"answer":"no"}'`,
	"fails": `echo 'out of paper' >&2; exit 3`,
	// asks a person, and says what was answered.
	"asks": `cat >in; grep -q '"resume":null' in && echo '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask","title":"Go on?","data":{}}}]}' || cat in`,
	// waits for what somebody delivers.
	"suspends": `cat >in; grep -q '"resume":null' in && echo '{"__interrupt__":[{"id":"j","value":{"processName":"Build","inputArguments":{}}}]}' || echo '{"answer":"yes"}'`,
	// tells a secret in its output and on stderr.
	"tells": `echo "$PLANTED" >&2; echo '{"answer":"'"$PLANTED"'"}'`,
	// waits until the file go is there.
	"waits": `while [ ! -e go ]; do read -t 0.02 x </dev/zero; done; echo '{"answer":"yes"}'`,
}

// planted is the value of ${PLANTED}, which agents have.
const planted = "planted-value-7c1d2e"

// writeConfig writes the configuration of a service with these agents and eval sets.
func writeConfig(t testing.TB, dir string) (path string) {
	t.Helper()
	config := "agents:\n"
	for name, script := range agents {
		write(t, filepath.Join(dir, name, "agent.sh"), script+"\n")
		config += fmt.Sprintf("  - {type: function, name: %s, command: [bash, agent.sh], cwd: %s, env: {PLANTED: \"${PLANTED:-}\"}}\n", name, name)
		write(t, filepath.Join(dir, "sets", name+".json"), fmt.Sprintf(`{"version": "1.0", "id": %[1]q, "name": %[1]q, "agent": %[1]q,
 "evaluators": [{"version": "1.0", "id": "contains", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "C", "targetOutputKey": "*"}}],
 "evaluations": [{"id": "one", "name": "One", "inputs": {}, "evaluationCriterias": {"contains": {"searchText": "yes"}}}]}`, name))
	}
	path = filepath.Join(dir, "serve.yaml")
	write(t, path, config+"jobs:\n  Build: {source: external}\nevalSets: sets\n")
	return path
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// world is a server on loopback, with an executor beside it.
type world struct {
	*testing.T
	dir       string
	service   *service.Service
	variables runner.Variables
	base      string
	// token may do everything.
	token string
	audit *buffer
	// drain ends the server, once.
	drain func()
}

// buffer may be written and read by several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := newIdleWorld(t)
	w.beside(func(ctx context.Context) error {
		return w.service.Runner().Execute(ctx, runner.ExecuteOptions{Options: runner.Options{Variables: w.variables}})
	}, func() {})
	return w
}

// newIdleWorld is newWorld without an executor.
func newIdleWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	cfg, err := service.ReadConfig(writeConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	st, err := runner.Open(filepath.Join(dir, "store"), runner.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	write(t, filepath.Join(dir, "variables"), "PLANTED="+planted)
	variables, err := runner.ReadVariables(nil, []string{filepath.Join(dir, "variables")})
	if err != nil {
		t.Fatal(err)
	}
	secrets := servetest.Watch(t, st.Dir())
	secrets.Plant("the value of a variable", planted)
	w := &world{T: t, dir: dir, service: service.New(st, cfg, service.Options{Variables: variables}), variables: variables, audit: &buffer{}}
	server, err := serve.New(serve.Options{Service: w.service, Audit: serve.NewAudit(secrets.Writer("the audit log", w.audit)),
		Log: slog.New(slog.NewTextHandler(secrets.Writer("the log", t.Output()), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.base = "http://" + ln.Addr().String()
	drain := make(chan struct{})
	w.drain = sync.OnceFunc(func() { close(drain) })
	w.beside(func(context.Context) error { return server.Serve(secrets.Listener(ln), drain) }, w.drain)
	w.token = w.newToken("all", access.Admin)
	return w
}

// beside runs something until the test ends.
func (w *world) beside(f func(context.Context) error, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	w.Cleanup(func() {
		stop()
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
}

func (w *world) newToken(name string, scopes ...access.Scope) string {
	w.Helper()
	token, _, err := access.New(context.Background(), w.service.Store(), name, scopes, time.Time{})
	if err != nil {
		w.Fatal(err)
	}
	return token
}

// target is the server for the bearer of a token. Headers are pairs.
func target(base, token string, headers ...string) mcp.Target {
	h := http.Header{"Authorization": {"Bearer " + token}}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return mcp.Target{URL: base + "/mcp", Header: h}
}

const (
	knowsTasks = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	canBeAsked = `"elicitation":{}`
)

// connect connects a client that knows tasks and can be asked.
func (w *world) connect(t *testing.T, era mcp.Era, token string, headers ...string) *gatewaytest.TaskClient {
	t.Helper()
	return connect(t, target(w.base, token, headers...), era, "{"+knowsTasks+","+canBeAsked+"}")
}

func connect(t *testing.T, to mcp.Target, era mcp.Era, capabilities string) *gatewaytest.TaskClient {
	t.Helper()
	c := gatewaytest.ConnectTaskClientTo(t, to, mcp.ClientOptions{Protocol: era, Capabilities: json.RawMessage(capabilities)})
	c.Content = `{"approved":true,"reason":"yes"}`
	return c
}

// plain connects a client that knows no tasks.
func (w *world) plain(t *testing.T, token string) *gatewaytest.TaskClient {
	t.Helper()
	return connect(t, target(w.base, token), mcp.Modern, `{}`)
}

// tool calls a tool and returns its structured result, which its text says, too.
func tool(c *gatewaytest.TaskClient, name, arguments string) jsonobj.Object {
	c.T.Helper()
	r := c.Must(mcp.MethodToolsCall, `{"name":%q,"arguments":%s}`, name, arguments)
	return document(c.T, r)
}

// document is the structured content of a result.
func document(t *testing.T, r jsonobj.Object) jsonobj.Object {
	t.Helper()
	var content []struct{ Text string }
	if err := json.Unmarshal(r.Get("content"), &content); err != nil || len(content) != 1 || content[0].Text != string(r.Get("structuredContent")) {
		t.Fatalf("the text is not the structured content: %s", r.JSON())
	}
	return r.Object("structuredContent")
}

// refusal calls a tool that says what is wrong in its result.
func refusal(c *gatewaytest.TaskClient, name, arguments string) string {
	c.T.Helper()
	r := c.Must(mcp.MethodToolsCall, `{"name":%q,"arguments":%s}`, name, arguments)
	var content []struct{ Text string }
	if err := json.Unmarshal(r.Get("content"), &content); err != nil || len(content) != 1 || string(r.Get("isError")) != "true" {
		c.T.Fatalf("%s is not refused: %s", name, r.JSON())
	}
	return content[0].Text
}

// release lets the agent "waits" end.
func (w *world) release() { write(w, filepath.Join(w.dir, "waits", "go"), "") }

func holds(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("expected %s in %s", p, text)
		}
	}
}

// eras runs a test for a client of each era.
func eras(t *testing.T, f func(t *testing.T, era mcp.Era)) {
	t.Helper()
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		t.Run(string(era), func(t *testing.T) {
			t.Parallel()
			f(t, era)
		})
	}
}
