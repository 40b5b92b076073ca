package gatewaytest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TaskFixture is the fixture's server behind HTTP, with a log of its requests.
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

// Asked is how often a method was called, for a task or tool if that is named.
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

// OverPipes is the fixture's server, which dies with its connection as a process of ours would.
func OverPipes(o taskserver.Options) gateway.Server {
	return gateway.Server{Name: "tasks", ChildProcess: true, Protocol: mcp.Era(o.Era),
		Target: mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
			s, err := taskserver.New(o)
			if err != nil {
				return nil, err
			}
			in, toServer := io.Pipe()
			fromServer, out := io.Pipe()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = s.ServeStdio(context.Background(), in, out) // the test decides how it ends
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
	server  *sdk.Server
	Began   chan string
	Proceed chan struct{}
	Ended   chan error // of calls that were cancelled
}

func StartPlainServer(t *testing.T) (*PlainServer, gateway.Server) {
	t.Helper()
	p := &PlainServer{Began: make(chan string, 100), Proceed: make(chan struct{}), Ended: make(chan error, 100)}
	p.server = sdk.NewServer(&sdk.Implementation{Name: "plain", Version: "1"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	p.server.AddTool(&sdk.Tool{Name: "quick", InputSchema: object},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "quick"}}}, nil
		})
	p.server.AddTool(&sdk.Tool{Name: "slow", InputSchema: object},
		func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			p.Began <- string(r.Params.Arguments)
			select {
			case <-p.Proceed:
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "local:delta"}},
					StructuredContent: json.RawMessage(`{"n":1}`)}, nil
			case <-ctx.Done():
				p.Ended <- ctx.Err()
				return nil, ctx.Err()
			case <-t.Context().Done(): // otherwise the server, which waits for its tools, would not end when nobody told it
				return nil, t.Context().Err()
			}
		})
	p.server.AddTool(&sdk.Tool{Name: "failing", InputSchema: object},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "boom:epsilon"}}, IsError: true}, nil
		})
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return p.server }, nil))
	t.Cleanup(h.Close)
	return p, gateway.Server{Name: "plain", Target: mcp.Target{URL: h.URL}}
}
