package tasks

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// withoutTasks is a legacy server without tasks, whose tools say that in each way there is; the SDK
// for TypeScript has them say forbidden.
type withoutTasks struct{ scripted }

func (withoutTasks) Serve(_ context.Context, r *mcp.Request) (json.RawMessage, error) {
	switch r.Method {
	case mcp.MethodInitialize:
		return json.RawMessage(`{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},"capabilities":{"tools":{}}}`), nil
	case mcp.MethodToolsList:
		return json.RawMessage(`{"tools":[{"name":"silent","inputSchema":{"type":"object"}},{"name":"empty","inputSchema":{"type":"object"},"execution":{}},
			{"name":"forbidden","inputSchema":{"type":"object"},"execution":{"taskSupport":"forbidden"}}]}`), nil
	}
	params, _ := jsonobj.ParseObject(r.Params)
	if params.Has("task") {
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "called as a task")
	}
	return jsonobj.Object{{Key: "content", Value: json.RawMessage(`[{"type":"text","text":` + string(params.Get("name")) + `}]`)}}.JSON(), nil
}

// The checklist for the task facade, row by row.
func TestTaskSurfaceChecklist(t *testing.T) {
	t.Parallel()
	f, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
	p, plain := gatewaytest.StartPlainServer(t)
	g := startTaskGateway(t, Options{}, tasks, plain)
	proxied, local := g.client(mcp.Legacy, "tasks"), g.client(mcp.Legacy, "plain")

	t.Run("advertise task capabilities", func(t *testing.T) {
		for _, c := range []*gatewaytest.TaskClient{proxied, local} {
			offered := capabilitiesOf(c).Object("tasks")
			if !offered.Has("list") || !offered.Has("cancel") || !offered.Object("requests").Object("tools").Has("call") {
				t.Error(string(offered.JSON()))
			}
		}
	})

	t.Run("every exported tool has execution.taskSupport", func(t *testing.T) {
		for _, c := range []*gatewaytest.TaskClient{proxied, local} {
			for name, support := range supportOf(c) {
				if support == "" || c == local && support != "optional" {
					t.Errorf("%s: %q", name, support)
				}
			}
		}
	})

	t.Run("whatever tools of a server without tasks say of that", func(t *testing.T) {
		x := mcp.NewHTTPHandler(withoutTasks{}, mcp.ServerOptions{})
		h := httptest.NewServer(x)
		t.Cleanup(func() { x.Close(); h.Close() })
		server := gateway.Server{Name: "without", Protocol: mcp.Legacy, Target: mcp.Target{URL: h.URL}}
		for _, widen := range []bool{false, true} { // G26: what is forbidden stays so, unless that was chosen
			c := startTaskGateway(t, Options{Widen: widen}, server).client(mcp.Legacy, "without")
			tools := supportOf(c)
			if len(tools) != 3 {
				t.Error(tools)
			}
			for name, support := range tools {
				if name == "forbidden" && !widen {
					_, err := c.Try(mcp.MethodToolsCall, `{"name":"forbidden","arguments":{},"task":{"ttl":60000}}`)
					if support != "forbidden" || err == nil || !strings.Contains(err.Error(), "cannot be called as a task") {
						t.Errorf("%s: %v", support, err)
					}
					continue
				}
				if text, _, err := c.Result(c.Task(name, "{}")); support != "optional" || text != name || err != nil {
					t.Errorf("%s: %s, %q, %v", name, support, text, err)
				}
			}
		}
	})

	t.Run("required upstream tools are never downgraded", func(t *testing.T) {
		proxied.Must(mcp.MethodToolsCall, `{"name":"required_compute","arguments":{"ms":10,"text":"plain"}}`)
		f.Mu.Lock()
		defer f.Mu.Unlock()
		for line := range strings.Lines(f.Log.String()) {
			if strings.Contains(line, `"tool":"required_compute"`) && !strings.Contains(line, `"task":{`) {
				t.Errorf("called without a task: %s", line)
			}
		}
	})

	t.Run("tools/call with a task is a real task, proxied and not executed again", func(t *testing.T) {
		before := f.Asked("tools/call", "compute")
		id := proxied.Task("compute", `{"ms":50,"text":"once"}`)
		if text, _, err := proxied.Result(id); text != "once" || err != nil {
			t.Error(text, err)
		}
		if n := f.Asked("tools/call", "compute") - before; n != 1 {
			t.Errorf("%d calls", n)
		}
		if f.Asked("tasks/get", "") == 0 {
			t.Error("the server's task was not used")
		}
	})

	t.Run("a task store that is bounded, and ends with the gateway", func(t *testing.T) {
		g := startTaskGateway(t, Options{Cleanup: 10 * time.Millisecond}, plain)
		c := g.client(mcp.Legacy, "plain")
		id := c.Must(mcp.MethodToolsCall, `{"name":"quick","arguments":{},"task":{"ttl":100}}`).Object("task").Text("taskId")
		gatewaytest.Eventually(t, "it is not cleaned up", func() bool {
			_, err := g.store.MCPTask(t.Context(), g.tasks.access, c.State().SessionID, id)
			return err != nil
		})
		k := g.tasks
		g.stop()
		if k.ctx.Err() == nil {
			t.Error("the cleanup goes on")
		}
	})

	t.Run("the end of a session cancels what runs before it is waited for", func(t *testing.T) {
		c := g.client(mcp.Legacy, "plain")
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		waiting := make(chan error, 1)
		go func() {
			_, err := c.Try(mcp.MethodTasksResult, `{"taskId":"`+id+`"}`)
			waiting <- err
		}()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if gatewaytest.WaitFor(t, waiting) == nil {
			t.Error("tasks/result has got a result")
		}
		_ = gatewaytest.WaitFor(t, p.Ended) // it is what a cancelled call ends with
	})

	t.Run("notifications/tasks/status with the gateway's task id", func(t *testing.T) {
		id := proxied.Task("compute", `{"ms":0,"text":"x"}`)
		if n := proxied.Note(id, "completed"); n.Text("method") != mcp.NoteTaskStatus || n.Get("ttl") == nil {
			t.Error(string(n.JSON()))
		}
	})

	t.Run("tasks/list, get, result and cancel work, and errors propagate", func(t *testing.T) {
		id := proxied.Task("protocol_error_job", "{}")
		failed := proxied.Refused(mcp.CodeInternal, mcp.MethodTasksResult, `{"taskId":%q}`, id)
		if failed.Message != "the job broke down" {
			t.Error(failed)
		}
		if got := proxied.Get(id).Text("status"); got != "failed" {
			t.Error(got)
		}
		proxied.Refused(mcp.CodeInvalidParams, mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		if list := string(proxied.Must(mcp.MethodTasksList, "{}").JSON()); !strings.Contains(list, id) {
			t.Error(list)
		}
	})

	t.Run("tasks of others", func(t *testing.T) {
		id := proxied.Task("compute", `{"ms":0}`)
		for _, other := range []*gatewaytest.TaskClient{g.client(mcp.Legacy, "tasks"), g.client(mcp.Modern, "tasks")} {
			other.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":%q}`, id)
			other.Refused(mcp.CodeInvalidParams, mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		}
	})
}
