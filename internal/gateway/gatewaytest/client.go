package gatewaytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TaskClient is a client that knows tasks. It is raw, because the SDK does not know them.
type TaskClient struct {
	*mcp.Client
	T     *testing.T
	Notes chan jsonobj.Object // notifications about tasks
	Seen  *wire
	// Content is the answer of the person who is asked, an object.
	Content string
}

// wire is everything that was sent to a client.
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

// ConnectTaskClient connects a client that knows tasks with an endpoint.
func ConnectTaskClient(t *testing.T, a *gateway.Access, era mcp.Era, server string) *TaskClient {
	t.Helper()
	capabilities := taskCapabilities
	if era == mcp.Legacy {
		capabilities = json.RawMessage(`{"elicitation":{}}`)
	}
	return ConnectTaskClientWith(t, a, server, mcp.ClientOptions{Protocol: era, Capabilities: capabilities})
}

// ConnectTaskClientWith is ConnectTaskClient with options. Each request has a connection of its
// own: a test that restarts the gateway would lose one to a connection whose end the client has not
// noticed yet.
func ConnectTaskClientWith(t *testing.T, a *gateway.Access, server string, o mcp.ClientOptions) *TaskClient {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return ConnectTaskClientTo(t, mcp.Target{URL: a.URLWithToken(server), HTTPClient: client}, o)
}

// ConnectTaskClientTo connects a client that knows tasks with any server.
func ConnectTaskClientTo(t *testing.T, target mcp.Target, o mcp.ClientOptions) *TaskClient {
	t.Helper()
	c := &TaskClient{T: t, Notes: make(chan jsonobj.Object, 1000), Seen: &wire{}, Content: `{"confirm":true,"name":"Ada"}`}
	o.Notified = c.Notified
	if o.Asked == nil {
		o.Asked = c.Accept
	}
	client, err := mcp.Connect(t.Context(), target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Detach() })
	c.Client = client
	return c
}

func (c *TaskClient) Notified(method string, params json.RawMessage) {
	c.Seen.add(params)
	if method == mcp.NoteTaskStatus || method == mcp.NoteTask || method == mcp.NoteAcknowledged {
		o, _ := jsonobj.ParseObject(params)
		c.Notes <- append(jsonobj.Object{{Key: "method", Value: jsonobj.Quote(method)}}, o...)
	}
}

// Accept plays a person who says yes to everything.
func (c *TaskClient) Accept(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, *mcp.Error) {
	c.Seen.add(params)
	return json.RawMessage(`{"action":"accept","content":` + c.Content + `}`), nil
}

func (c *TaskClient) Try(method, params string) (jsonobj.Object, error) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(c.T.Context(), TaskLimit)
	defer cancel()
	result, err := c.Call(ctx, mcp.Call{
		Method: method, Params: json.RawMessage(params), Notified: c.Notified, Asked: c.Accept,
	})
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

// refusal is the error of a server that refuses.
type refusal struct {
	Message string
	Data    json.RawMessage
}

// Refused expects an error with a code.
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

// Until polls a task until it has a status.
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
		for deadline := time.Now().Add(
			TaskLimit); !mcptask.IsTerminal(o.Text("status")) && time.Now().Before(deadline); o = c.Get(id) {
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

// HTTPClient returns a client with connections of its own. Those of http.DefaultClient are cut
// whenever any test closes a server of httptest.
func HTTPClient(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// SdkClient is a client of the SDK, which does not know tasks.
func SdkClient(t *testing.T, a *gateway.Access, version, server string) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "plain client", Version: "1"}, nil)
	s, err := c.Connect(t.Context(),
		&sdk.StreamableClientTransport{Endpoint: a.URLWithToken(server), HTTPClient: HTTPClient(t)},
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
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
