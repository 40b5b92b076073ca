// Package gatewaytest has clients and servers for the tests of the gateway's packages.
package gatewaytest

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

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TaskLimit is how long anything in these tests may take.
const TaskLimit = 30 * time.Second

// TaskFixture is the fixture's server behind HTTP, with a log of what it is asked.
type TaskFixture struct {
	t   *testing.T
	Mu  sync.Mutex
	Log strings.Builder
	url string
}

func (f *TaskFixture) Write(p []byte) (int, error) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.Log.Write(p)
}

// Asked is how often a method was called, of a task or tool if that is named.
func (f *TaskFixture) Asked(method, tool string) (n int) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for line := range strings.Lines(f.Log.String()) {
		o, _ := jsonobj.ParseObject(json.RawMessage(line))
		if o.Text("method") == method && (tool == "" || o.Text("tool") == tool) {
			n++
		}
	}
	return n
}

// TaskIDs are the fixture's own ids of tasks, as far as it was asked for them.
func (f *TaskFixture) TaskIDs() (ids []string) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for line := range strings.Lines(f.Log.String()) {
		o, _ := jsonobj.ParseObject(json.RawMessage(line))
		if id := o.Text("taskId"); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func StartTaskFixture(t *testing.T, o taskserver.Options) (*TaskFixture, gateway.Server) {
	t.Helper()
	f := &TaskFixture{t: t}
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
	return f, gateway.Server{Name: "tasks", Target: mcp.Target{URL: h.URL}}
}

// OverPipes is the fixture's server as a process of ours would be, which dies with its connection.
func OverPipes(o taskserver.Options) gateway.Server {
	return gateway.Server{Name: "tasks", ChildProcess: true, Protocol: mcp.Era(o.Era), Target: mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
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

// PlainServer is a server of the SDK that knows nothing of tasks. Its tools wait for the test.
type PlainServer struct {
	server *sdk.Server
	Began  chan string
	GoOn   chan struct{}
	Ended  chan error // of calls that were cancelled
}

func StartPlainServer(t *testing.T) (*PlainServer, gateway.Server) {
	t.Helper()
	p := &PlainServer{Began: make(chan string, 100), GoOn: make(chan struct{}), Ended: make(chan error, 100)}
	p.server = sdk.NewServer(&sdk.Implementation{Name: "plain", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	p.server.AddTool(&sdk.Tool{Name: "quick", InputSchema: object}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "quick"}}}, nil
	})
	p.server.AddTool(&sdk.Tool{Name: "slow", InputSchema: object}, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		p.Began <- string(r.Params.Arguments)
		select {
		case <-p.GoOn:
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "local:delta"}}, StructuredContent: json.RawMessage(`{"n":1}`)}, nil
		case <-ctx.Done():
			p.Ended <- ctx.Err()
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
	return p, gateway.Server{Name: "plain", Target: mcp.Target{URL: h.URL}}
}

// TaskClient is a client that knows tasks. The SDK does not, so it is raw.
type TaskClient struct {
	*mcp.Client
	T     *testing.T
	Notes chan jsonobj.Object // notifications about tasks
	Seen  *wire
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

func (w *wire) Has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.text.String(), text)
}

var taskCapabilities = json.RawMessage(`{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`)

func (c *TaskClient) Notified(method string, params json.RawMessage) {
	c.Seen.add(params)
	if method == mcp.NoteTaskStatus || method == mcp.NoteTask || method == mcp.NoteAcknowledged {
		o, _ := jsonobj.ParseObject(params)
		c.Notes <- append(jsonobj.Object{{Key: "method", Value: jsonobj.Quote(method)}}, o...)
	}
}

// Accept is a person who says yes to everything.
func (c *TaskClient) Accept(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	c.Seen.add(params)
	return json.RawMessage(`{"action":"accept","content":{"confirm":true,"name":"Ada"}}`), nil
}

func (c *TaskClient) Try(method, params string) (jsonobj.Object, error) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), TaskLimit)
	defer cancel()
	result, err := c.Call(ctx, mcp.Call{Method: method, Params: json.RawMessage(params), Notified: c.Notified, Asked: c.Accept})
	var said *mcp.Error
	if errors.As(err, &said) {
		c.Seen.add(said.JSON())
	}
	c.Seen.add(result)
	if err != nil {
		return nil, err
	}
	return jsonobj.ParseObject(result)
}

func (c *TaskClient) Must(method, params string, args ...any) jsonobj.Object {
	c.T.Helper()
	o, err := c.Try(method, fmt.Sprintf(params, args...))
	if err != nil {
		c.T.Fatalf("%s %s: %v", method, fmt.Sprintf(params, args...), err)
	}
	return o
}

// refusal is what a server says when it refuses.
type refusal struct {
	Message string
	Data    json.RawMessage
}

// Refused expects an error of a code.
func (c *TaskClient) Refused(code int64, method, params string, args ...any) refusal {
	c.T.Helper()
	o, err := c.Try(method, fmt.Sprintf(params, args...))
	var said *mcp.Error
	if !errors.As(err, &said) || said.Code != code {
		c.T.Fatalf("%s: expected error %d, got %s, %v", method, code, o.JSON(), err)
	}
	return refusal{said.Message, said.Data()}
}

// Task calls a tool as a task and returns its id.
func (c *TaskClient) Task(tool, arguments string) string {
	c.T.Helper()
	var task jsonobj.Object
	if c.Era() == mcp.Legacy {
		task = c.Must(mcp.MethodToolsCall, `{"name":%q,"arguments":%s,"task":{"ttl":60000}}`, tool, arguments).Object("task")
	} else {
		task = c.Must(mcp.MethodToolsCall, `{"name":%q,"arguments":%s}`, tool, arguments)
		if task.Text("resultType") != "task" {
			c.T.Fatalf("no task: %s", task.JSON())
		}
	}
	if task.Text("taskId") == "" || task.Text("status") != "working" {
		c.T.Fatalf("no task that works: %s", task.JSON())
	}
	return task.Text("taskId")
}

func (c *TaskClient) Get(id string) jsonobj.Object {
	c.T.Helper()
	return c.Must(mcp.MethodTasksGet, `{"taskId":%q}`, id)
}

// Until asks for a task until it has a status.
func (c *TaskClient) Until(id, status string) jsonobj.Object {
	c.T.Helper()
	deadline := time.Now().Add(TaskLimit)
	for {
		o := c.Get(id)
		switch got := o.Text("status"); {
		case got == status:
			return o
		case mcptask.IsTerminal(got) || time.Now().After(deadline):
			c.T.Fatalf("expected %s, got %s", status, o.JSON())
		}
		tick := time.NewTimer(20 * time.Millisecond) // as a client polls
		<-tick.C
	}
}

// Result is the payload of a task in the way of the client's era: its text, or the error.
func (c *TaskClient) Result(id string) (text string, isError bool, err error) {
	c.T.Helper()
	var o jsonobj.Object
	if c.Era() == mcp.Legacy {
		if o, err = c.Try(mcp.MethodTasksResult, fmt.Sprintf(`{"taskId":%q}`, id)); err != nil {
			return "", false, err
		}
		if related := o.Object("_meta").Object(mcp.MetaRelatedTask).Text("taskId"); related != id {
			c.T.Errorf("the result names the task %q: %s", related, o.JSON())
		}
	} else {
		o = c.Get(id)
		for deadline := time.Now().Add(TaskLimit); !mcptask.IsTerminal(o.Text("status")) && time.Now().Before(deadline); o = c.Get(id) {
			if keys := o.Object("inputRequests"); len(keys) > 0 {
				var answers jsonobj.Object
				for _, k := range keys {
					answer, _ := c.Accept(c.T.Context(), "", k.Value)
					answers = answers.Set(k.Key, answer)
				}
				c.Must(mcp.MethodTasksUpdate, `{"taskId":%q,"inputResponses":%s}`, id, answers.JSON())
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
		c.T.Fatalf("no content: %s", o.JSON())
	}
	return content[0].Text, string(o.Get("isError")) == "true", nil
}

// Note waits for a notification about a task with a status.
func (c *TaskClient) Note(id, status string) jsonobj.Object {
	c.T.Helper()
	limit := time.NewTimer(TaskLimit)
	defer limit.Stop()
	for {
		select {
		case n := <-c.Notes:
			if n.Text("taskId") == id && n.Text("status") == status {
				return n
			}
		case <-limit.C:
			c.T.Fatalf("no notification that %s is %s", id, status)
		}
	}
}

// WaitFor waits for something that a test's peer tells.
func WaitFor[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	limit := time.NewTimer(TaskLimit)
	defer limit.Stop()
	select {
	case v = <-c:
	case <-limit.C:
		t.Fatal("nothing came")
	}
	return v
}

// Eventually waits until something is so that nobody tells of.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(TaskLimit); !is(); {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		tick := time.NewTimer(5 * time.Millisecond)
		<-tick.C
	}
}

func SdkText(t *testing.T, r *sdk.CallToolResult, err error) string {
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

// ConnectTaskClient connects a client that knows tasks with an endpoint.
func ConnectTaskClient(t *testing.T, a *gateway.Access, era mcp.Era, server string) *TaskClient {
	t.Helper()
	capabilities := taskCapabilities
	if era == mcp.Legacy {
		capabilities = json.RawMessage(`{"elicitation":{}}`)
	}
	return ConnectTaskClientWith(t, a, server, mcp.ClientOptions{Protocol: era, Capabilities: capabilities})
}

// ConnectTaskClientWith is connectTaskClient with options.
func ConnectTaskClientWith(t *testing.T, a *gateway.Access, server string, o mcp.ClientOptions) *TaskClient {
	t.Helper()
	c := &TaskClient{T: t, Notes: make(chan jsonobj.Object, 1000), Seen: &wire{}}
	o.Notified = c.Notified
	if o.Asked == nil {
		o.Asked = c.Accept
	}
	client, err := mcp.Connect(t.Context(), mcp.Target{URL: a.URLWithToken(server)}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Detach() })
	c.Client = client
	return c
}

// SdkClient is a client of the SDK, which does not know tasks.
func SdkClient(t *testing.T, a *gateway.Access, version, server string) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "plain client", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: a.URLWithToken(server)}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
