package tasks

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

// fastMCP2 is a legacy server that names its tasks as FastMCP 2.14 does. Of those of "untold" and
// "untold_required" it tells nothing.
type fastMCP2 struct {
	mu    sync.Mutex
	calls []string // the names of the tools, with " as a task" behind some
	asked int      // for a task
}

func (s *fastMCP2) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case mcp.MethodInitialize:
		return scripted(nil).Serve(ctx, r)
	case mcp.MethodToolsList:
		var tools []string
		for name, support := range map[string]string{"opt": "optional", "req": "required", "untold": "optional", "untold_required": "required", "nameless": "required"} {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"execution":{"taskSupport":%q}}`, name, support))
		}
		return json.RawMessage(`{"tools":[` + strings.Join(tools, ",") + `]}`), nil
	case mcp.MethodToolsCall:
		name := params.Text("name")
		if !params.Has("task") {
			s.calls = append(s.calls, name)
			return suspend.TextResult("plainly "+name, false), nil
		}
		s.calls = append(s.calls, name+" as a task")
		if name == "nameless" {
			return json.RawMessage(`{"task":{"taskId":5}}`), nil
		}
		return json.RawMessage(fmt.Sprintf(`{"_meta":{"modelcontextprotocol.io/task":{"taskId":%q,"status":"working"}},"content":[],"isError":false}`, "their-"+name)), nil
	case mcp.MethodTasksGet:
		id := params.Text("taskId")
		if strings.HasPrefix(id, "their-untold") {
			return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Method not found: tasks/get")
		}
		if s.asked++; s.asked < 3 {
			return json.RawMessage(wireTaskOf(id, mcptask.Working)), nil
		}
		return json.RawMessage(wireTaskOf(id, mcptask.Completed)), nil
	case mcp.MethodTasksResult:
		return mcp.WithMeta(suspend.TextResult("the job's result", false), mcptask.MetaForeignRelated, mcptask.Params(params.Text("taskId"))), nil
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Method not found: %s", r.Method)
}
func (s *fastMCP2) Notified(*mcp.Session, string, json.RawMessage) {}
func (s *fastMCP2) Closed(*mcp.Session)                            {}

func (s *fastMCP2) made() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.calls, ", ")
}

// A task that is named in a way of its own is followed. If it cannot be, an optional one is
// called again without a task, and a required one fails.
func TestTasksThatAreNamedInAnotherWay(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for _, v := range []struct{ tool, text, refused, calls string }{
		{"opt", "the job's result", "", "opt as a task"},
		{"req", "the job's result", "", "req as a task"},
		{"untold", "plainly untold", "", "untold as a task, untold"},
		{"untold_required", "", "does not tell of it", "untold_required as a task"},
		{"nameless", "", "does not tell of it", "nameless as a task"},
	} {
		check := func(t *testing.T, s *fastMCP2, text string, err error) {
			t.Helper()
			if text != v.text || (err == nil) != (v.refused == "") || err != nil && !strings.Contains(err.Error(), v.refused) {
				t.Errorf("got %q, %v", text, err)
			}
			if got := s.made(); got != v.calls {
				t.Errorf("calls: %s", got)
			}
		}
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			t.Run(v.tool+" as a task/"+string(era), func(t *testing.T) {
				t.Parallel()
				s := &fastMCP2{}
				c := startTaskGateway(t, Options{Poll: 10 * time.Millisecond}, startHandler(t, s, mcp.Legacy)).client(era, "scripted")
				made, err := c.Try(mcp.MethodToolsCall, fmt.Sprintf(`{"name":%q,"arguments":{},"task":{"ttl":60000}}`, v.tool))
				text := ""
				switch {
				case err != nil:
				case made.Has("content"): // a modern client gets no task that is none
					text = contentOf(t, made)
				case era == mcp.Legacy:
					text, _, err = c.Result(made.Object("task").Text("taskId"))
				default:
					text, _, err = c.Result(made.Text("taskId"))
				}
				check(t, s, text, err)
				if c.Seen.Has("their-") {
					t.Error("the client has seen an id of the server")
				}
			})
		}
		t.Run(v.tool+" by an agent", func(t *testing.T) {
			t.Parallel()
			s := &fastMCP2{}
			text := textForAgent(t, startHandler(t, s, mcp.Legacy), v.tool)
			if said, isError := strings.CutPrefix(text, "error: "); isError {
				check(t, s, "", fmt.Errorf("%s", said))
			} else {
				check(t, s, text, nil)
			}
		})
	}
	t.Run("req plainly", func(t *testing.T) {
		t.Parallel()
		s := &fastMCP2{}
		c := startTaskGateway(t, Options{Poll: 10 * time.Millisecond}, startHandler(t, s, mcp.Legacy)).client(mcp.Legacy, "scripted")
		if o := c.Must(mcp.MethodToolsCall, `{"name":"req","arguments":{}}`); contentOf(t, o) != "the job's result" || o.Has("_meta") {
			t.Error(string(o.JSON()))
		}
	})
}

func contentOf(t *testing.T, result jsonobj.Object) string {
	t.Helper()
	var content []struct{ Text string }
	if json.Unmarshal(result.Get("content"), &content) != nil || len(content) == 0 {
		t.Fatalf("no content: %s", result.JSON())
	}
	return content[0].Text
}

// fastMCP4 is a server of both eras that has tasks in the modern one only, as FastMCP 4 does. Its
// list says in the legacy era that they are required.
type fastMCP4 struct {
	askingTask
	listed bool // in the legacy era
}

func (s *fastMCP4) Serve(ctx context.Context, r *mcp.Request) (json.RawMessage, error) {
	if r.Era == mcp.Modern {
		return s.askingTask.Serve(ctx, r)
	}
	switch r.Method {
	case mcp.MethodInitialize:
		return json.RawMessage(`{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},"capabilities":{"tools":{}}}`), nil
	case mcp.MethodToolsList:
		support := ""
		if s.listed {
			support = `,"execution":{"taskSupport":"required"}`
		}
		return json.RawMessage(`{"tools":[{"name":"tool","inputSchema":{"type":"object"}` + support + `}]}`), nil
	case mcp.MethodToolsCall:
		return nil, taskwire.Undeclared()
	}
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "Method not found: %s", r.Method)
}

// Legacy clients can use a server that has tasks in the modern era only.
func TestServersWithTasksInTheModernEraOnly(t *testing.T) {
	t.Parallel()
	for _, listed := range []bool{true, false} {
		t.Run(fmt.Sprintf("listed as required %v", listed), func(t *testing.T) {
			t.Parallel()
			s := &fastMCP4{listed: listed}
			c := startTaskGateway(t, Options{Poll: 10 * time.Millisecond}, startHandler(t, s, "")).client(mcp.Legacy, "scripted")
			if o := c.Must(mcp.MethodToolsCall, `{"name":"tool","arguments":{}}`); contentOf(t, o) != "done" {
				t.Error(string(o.JSON()))
			}
			s.done.Store(false)
			if text, _, err := c.Result(c.Task("tool", `{}`)); text != "done" || err != nil {
				t.Error(text, err)
			}
			if !c.Seen.Has(`"message":"?"`) {
				t.Error("the client was not asked")
			}
		})
	}
	t.Run("a server that has none in either", func(t *testing.T) {
		t.Parallel()
		s := &fastMCP4{}
		server := startHandler(t, s, mcp.Legacy)
		startTaskGateway(t, Options{}, server).client(mcp.Legacy, "scripted").Refused(mcp.CodeMissingCapability, mcp.MethodToolsCall, `{"name":"tool","arguments":{}}`)
	})
}

// noLedger records nothing.
type noLedger struct{}

func (noLedger) Begin(context.Context, suspend.CallKey) (suspend.Entry, error) {
	return suspend.Entry{ID: rand.Text(), New: true}, nil
}
func (noLedger) Started(context.Context, *wait.Work) error        { return nil }
func (noLedger) Work(context.Context, string) (*wait.Work, error) { return nil, nil }
func (noLedger) Ended(context.Context, string) error              { return nil }

// textForAgent calls a tool for a client that cannot wait, and gives the text of its result, or
// "error: " and the error.
func textForAgent(t *testing.T, s gateway.Server, tool string) string {
	t.Helper()
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	calls := &suspend.Hooks{Ledger: noLedger{}, SoftWait: time.Second}
	access, err := g.Open(gateway.AccessOptions{Servers: []gateway.Server{s}, Policy: calls.Policy})
	if err != nil {
		t.Fatal(err)
	}
	c := gatewaytest.ConnectTaskClientWith(t, access, s.Name, mcp.ClientOptions{Protocol: mcp.Legacy})
	result, err := c.Try(mcp.MethodToolsCall, fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool))
	if err != nil {
		return "error: " + err.Error()
	}
	return contentOf(t, result)
}
