package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// taskLimit is how long anything in these tests may take.
const taskLimit = 30 * time.Second

// taskGateway is a gateway whose clients get tasks, with a store that survives it.
type taskGateway struct {
	t       *testing.T
	dir     string
	options AccessOptions
	limits  TaskOptions
	all     string // the name of the endpoint for all servers; empty for none

	store     store.Store
	gateway   *Gateway
	access    *Access
	tasks     *keeper
	aggregate *aggregate
}

// plainBehind is a server without tasks behind a gateway, and a client of it.
func plainBehind(t *testing.T, o TaskOptions, client mcp.Era) (*plainServer, *taskGateway, *taskClient) {
	t.Helper()
	p, plain := startPlainServer(t)
	g := startTaskGateway(t, o, plain)
	return p, g, g.client(client, "plain")
}

// tasksBehind is the fixture's server of one era behind a gateway, and a client of it.
func tasksBehind(t *testing.T, server taskserver.Era, o TaskOptions, client mcp.Era) (*taskFixture, *taskGateway, *taskClient) {
	t.Helper()
	f, tasks := startTaskFixture(t, taskserver.Options{Era: server})
	g := startTaskGateway(t, o, tasks)
	return f, g, g.client(client, "tasks")
}

const taskToken = "a-token-that-survives"

func startTaskGateway(t *testing.T, o TaskOptions, servers ...Server) *taskGateway {
	t.Helper()
	g := &taskGateway{t: t, dir: t.TempDir(), options: AccessOptions{Servers: servers, Token: taskToken}, limits: o}
	g.start("127.0.0.1:0")
	t.Cleanup(g.stop)
	return g
}

func (g *taskGateway) start(address string) {
	g.t.Helper()
	var err error
	if g.store, err = sqlite.Open(g.dir, store.Options{Now: g.options.Now}); err != nil {
		g.t.Fatal(err)
	}
	g.limits.Store = g.store
	if g.tasks, err = NewTasks(g.limits, g.options.Now); err != nil {
		g.t.Fatal(err)
	}
	g.options.Tasks = g.tasks
	if g.all != "" {
		g.options.Combine = func(endpoints []*Endpoint, tasks Tasks) Combined {
			g.aggregate = newAggregate(g.all, endpoints, tasks)
			return g.aggregate
		}
	}
	if g.gateway, err = Listen(address); err != nil {
		g.t.Fatal(err)
	}
	if g.access, err = g.gateway.Open(g.options); err != nil {
		g.t.Fatal(err)
	}
}

func (g *taskGateway) stop() {
	if g.gateway == nil {
		return
	}
	if err := errors.Join(g.gateway.Close(), g.store.Close()); err != nil {
		g.t.Error(err)
	}
	g.gateway = nil
}

// restart is what clients see of a new process.
func (g *taskGateway) restart(between func()) {
	g.t.Helper()
	address := g.gateway.Addr().String()
	g.stop()
	if between != nil {
		between()
	}
	g.start(address)
}

// active is how many tasks the gateway looks after.
func (g *taskGateway) active() int {
	k := g.tasks
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.active) + len(k.theirs)
}

// taskFixture is the fixture's server behind HTTP, with a log of what it is asked.
type taskFixture struct {
	t   *testing.T
	mu  sync.Mutex
	log strings.Builder
	url string
}

func (f *taskFixture) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log.Write(p)
}

// asked is how often a method was called, of a task or tool if that is named.
func (f *taskFixture) asked(method, tool string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range strings.Lines(f.log.String()) {
		o, _ := jsonobj.ParseObject(json.RawMessage(line))
		if o.Text("method") == method && (tool == "" || o.Text("tool") == tool) {
			n++
		}
	}
	return n
}

// taskIDs are the fixture's own ids of tasks, as far as it was asked for them.
func (f *taskFixture) taskIDs() (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for line := range strings.Lines(f.log.String()) {
		o, _ := jsonobj.ParseObject(json.RawMessage(line))
		if id := o.Text("taskId"); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func startTaskFixture(t *testing.T, o taskserver.Options) (*taskFixture, Server) {
	t.Helper()
	f := &taskFixture{t: t}
	o.Log = f
	if o.Poll == 0 {
		o.Poll = 50 * time.Millisecond
	}
	s, err := taskserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(func() { s.Close(); h.Close() })
	f.url = h.URL
	return f, Server{Name: "tasks", Target: mcp.Target{URL: h.URL}}
}

// overPipes is the fixture's server as a process of ours would be, which dies with its connection.
func overPipes(o taskserver.Options) Server {
	return Server{Name: "tasks", ChildProcess: true, Protocol: mcp.Era(o.Era), Target: mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
		s, err := taskserver.New(o)
		if err != nil {
			return nil, err
		}
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = s.ServeStdio(context.Background(), in, out) // its end is what the test makes it
			_ = out.Close()
		}()
		return &pipes{fromServer, toServer, func() { s.Close(); <-ended }}, nil
	}}}
}

type pipes struct {
	io.ReadCloser
	io.WriteCloser
	end func()
}

func (p *pipes) Close() error {
	err := errors.Join(p.WriteCloser.Close(), p.ReadCloser.Close())
	p.end()
	return err
}

// plainServer is a server of the SDK that knows nothing of tasks. Its tools wait for the test.
type plainServer struct {
	server *sdk.Server
	began  chan string
	goOn   chan struct{}
	ended  chan error // of calls that were cancelled
}

func startPlainServer(t *testing.T) (*plainServer, Server) {
	t.Helper()
	p := &plainServer{began: make(chan string, 100), goOn: make(chan struct{}), ended: make(chan error, 100)}
	p.server = sdk.NewServer(&sdk.Implementation{Name: "plain", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	p.server.AddTool(&sdk.Tool{Name: "quick", InputSchema: object}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "quick"}}}, nil
	})
	p.server.AddTool(&sdk.Tool{Name: "slow", InputSchema: object}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		p.began <- string(r.Params.Arguments)
		select {
		case <-p.goOn:
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "local:delta"}}, StructuredContent: json.RawMessage(`{"n":1}`)}, nil
		case <-ctx.Done():
			p.ended <- ctx.Err()
			return nil, ctx.Err()
		case <-t.Context().Done(): // or the server, which waits for its tools, would not end when it was not told
			return nil, t.Context().Err()
		}
	})
	p.server.AddTool(&sdk.Tool{Name: "failing", InputSchema: object}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "boom:epsilon"}}, IsError: true}, nil
	})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return p.server }, nil))
	t.Cleanup(h.Close)
	return p, Server{Name: "plain", Target: mcp.Target{URL: h.URL}}
}

// taskClient is a client that knows tasks. The SDK does not, so it is raw.
type taskClient struct {
	*mcp.Client
	t     *testing.T
	notes chan jsonobj.Object // notifications about tasks
	seen  *wire
}

// wire is everything that a client was sent.
type wire struct {
	mu   sync.Mutex
	text strings.Builder
}

func (w *wire) add(parts ...json.RawMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range parts {
		w.text.Write(p)
		w.text.WriteByte('\n')
	}
}

func (w *wire) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.text.String(), text)
}

var taskCapabilities = json.RawMessage(`{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)

func (g *taskGateway) client(era mcp.Era, server string) *taskClient {
	g.t.Helper()
	capabilities := taskCapabilities
	if era == mcp.Legacy {
		capabilities = json.RawMessage(`{"elicitation":{}}`)
	}
	return g.clientWith(server, mcp.ClientOptions{Protocol: era, Capabilities: capabilities})
}

func (g *taskGateway) clientWith(server string, o mcp.ClientOptions) *taskClient {
	g.t.Helper()
	c := &taskClient{t: g.t, notes: make(chan jsonobj.Object, 1000), seen: &wire{}}
	o.Notified = c.notified
	if o.Asked == nil {
		o.Asked = c.accept
	}
	client, err := mcp.Connect(g.t.Context(), mcp.Target{URL: g.access.URLWithToken(server)}, o)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = client.Detach() })
	c.Client = client
	return c
}

func (c *taskClient) notified(method string, params json.RawMessage) {
	c.seen.add(params)
	if method == mcp.NoteTaskStatus || method == mcp.NoteTask || method == mcp.NoteAcknowledged {
		o, _ := jsonobj.ParseObject(params)
		c.notes <- append(jsonobj.Object{{Key: "method", Value: jsonobj.Quote(method)}}, o...)
	}
}

// accept is a person who says yes to everything.
func (c *taskClient) accept(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	c.seen.add(params)
	return json.RawMessage(`{"action":"accept","content":{"confirm":true,"name":"Ada"}}`), nil
}

func (c *taskClient) try(method, params string) (jsonobj.Object, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), taskLimit)
	defer cancel()
	result, err := c.Call(ctx, mcp.Call{Method: method, Params: json.RawMessage(params), Notified: c.notified, Asked: c.accept})
	var said *mcp.Error
	if errors.As(err, &said) {
		c.seen.add(said.JSON())
	}
	c.seen.add(result)
	if err != nil {
		return nil, err
	}
	return jsonobj.ParseObject(result)
}

func (c *taskClient) must(method, params string, args ...any) jsonobj.Object {
	c.t.Helper()
	o, err := c.try(method, fmt.Sprintf(params, args...))
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, fmt.Sprintf(params, args...), err)
	}
	return o
}

// refusal is what a server says when it refuses.
type refusal struct {
	Message string
	Data    json.RawMessage
}

// refused expects an error of a code.
func (c *taskClient) refused(code int64, method, params string, args ...any) refusal {
	c.t.Helper()
	o, err := c.try(method, fmt.Sprintf(params, args...))
	var said *mcp.Error
	if !errors.As(err, &said) || said.Code != code {
		c.t.Fatalf("%s: expected error %d, got %s, %v", method, code, o.JSON(), err)
	}
	return refusal{said.Message, said.Data()}
}

// task calls a tool as a task and returns its id.
func (c *taskClient) task(tool, arguments string) string {
	c.t.Helper()
	var task jsonobj.Object
	if c.Era() == mcp.Legacy {
		task = c.must(mcp.MethodToolsCall, `{"name":%q,"arguments":%s,"task":{"ttl":60000}}`, tool, arguments).Object("task")
	} else {
		task = c.must(mcp.MethodToolsCall, `{"name":%q,"arguments":%s}`, tool, arguments)
		if task.Text("resultType") != "task" {
			c.t.Fatalf("no task: %s", task.JSON())
		}
	}
	if task.Text("taskId") == "" || task.Text("status") != "working" {
		c.t.Fatalf("no task that works: %s", task.JSON())
	}
	return task.Text("taskId")
}

func (c *taskClient) get(id string) jsonobj.Object {
	c.t.Helper()
	return c.must(mcp.MethodTasksGet, `{"taskId":%q}`, id)
}

// until asks for a task until it has a status.
func (c *taskClient) until(id, status string) jsonobj.Object {
	c.t.Helper()
	deadline := time.Now().Add(taskLimit)
	for {
		o := c.get(id)
		switch got := o.Text("status"); {
		case got == status:
			return o
		case IsTerminal(got) || time.Now().After(deadline):
			c.t.Fatalf("expected %s, got %s", status, o.JSON())
		}
		tick := time.NewTimer(20 * time.Millisecond) // as a client polls
		<-tick.C
	}
}

// result is the payload of a task in the way of the client's era: its text, or the error.
func (c *taskClient) result(id string) (text string, isError bool, err error) {
	c.t.Helper()
	var o jsonobj.Object
	if c.Era() == mcp.Legacy {
		if o, err = c.try(mcp.MethodTasksResult, fmt.Sprintf(`{"taskId":%q}`, id)); err != nil {
			return "", false, err
		}
		if related := o.Object("_meta").Object(mcp.MetaRelatedTask).Text("taskId"); related != id {
			c.t.Errorf("the result names the task %q: %s", related, o.JSON())
		}
	} else {
		o = c.get(id)
		for deadline := time.Now().Add(taskLimit); !IsTerminal(o.Text("status")) && time.Now().Before(deadline); o = c.get(id) {
			if keys := o.Object("inputRequests"); len(keys) > 0 {
				var answers jsonobj.Object
				for _, k := range keys {
					answer, _ := c.accept(c.t.Context(), "", k.Value)
					answers = answers.Set(k.Key, answer)
				}
				c.must(mcp.MethodTasksUpdate, `{"taskId":%q,"inputResponses":%s}`, id, answers.JSON())
			}
			tick := time.NewTimer(20 * time.Millisecond) // as a client polls
			<-tick.C
		}
		if e := o.Get("error"); e != nil {
			return "", false, mcp.ParseError(e)
		}
		o = o.Object("result")
	}
	var content []struct{ Text string }
	if json.Unmarshal(o.Get("content"), &content) != nil || len(content) == 0 {
		c.t.Fatalf("no content: %s", o.JSON())
	}
	return content[0].Text, string(o.Get("isError")) == "true", nil
}

// note waits for a notification about a task with a status.
func (c *taskClient) note(id, status string) jsonobj.Object {
	c.t.Helper()
	limit := time.NewTimer(taskLimit)
	defer limit.Stop()
	for {
		select {
		case n := <-c.notes:
			if n.Text("taskId") == id && n.Text("status") == status {
				return n
			}
		case <-limit.C:
			c.t.Fatalf("no notification that %s is %s", id, status)
		}
	}
}

// waitFor waits for something that a test's peer tells.
func waitFor[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	limit := time.NewTimer(taskLimit)
	defer limit.Stop()
	select {
	case v = <-c:
	case <-limit.C:
		t.Fatal("nothing came")
	}
	return v
}

// eventually waits until something is so that nobody tells of.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(taskLimit); !is(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		tick := time.NewTimer(5 * time.Millisecond)
		<-tick.C
	}
}

// sdkClient is a client of the SDK, which does not know tasks.
func (g *taskGateway) sdkClient(version, server string) *sdk.ClientSession {
	g.t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "plain client", Version: "1"}, nil)
	s, err := c.Connect(g.t.Context(), &sdk.StreamableClientTransport{Endpoint: g.access.URLWithToken(server)}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = s.Close() })
	return s
}

func sdkText(t *testing.T, r *sdk.CallToolResult, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text, ok := r.Content[0].(*sdk.TextContent)
	if !ok {
		t.Fatalf("%v", r.Content)
	}
	return text.Text
}
