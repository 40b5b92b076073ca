package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/mcp"
	"github.com/evalrun/evalrun/rawjson"
	"github.com/evalrun/evalrun/store"
)

// scripted is a legacy server with one tool, which says what a test wants.
type scripted func(method string, params rawjson.Object) (string, *mcp.Error)

func startScripted(t *testing.T, s scripted) Server {
	t.Helper()
	x := mcp.NewHTTPHandler(s, mcp.ServerOptions{})
	h := httptest.NewServer(x)
	t.Cleanup(func() { x.Close(); h.Close() })
	return Server{Name: "scripted", Protocol: mcp.Legacy, Target: mcp.Target{URL: h.URL}}
}

func (s scripted) Serve(_ context.Context, r *mcp.Request) (json.RawMessage, error) {
	switch r.Method {
	case mcp.MethodInitialize:
		return json.RawMessage(`{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},"capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}}`), nil
	case mcp.MethodToolsList:
		return json.RawMessage(`{"tools":[{"name":"tool","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}]}`), nil
	}
	params, _ := rawjson.ParseObject(r.Params)
	result, err := s(r.Method, params)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(result), nil
}

func (s scripted) Notified(*mcp.Session, string, json.RawMessage) {}
func (s scripted) Closed(*mcp.Session)                            {}

// Every pair of eras, over HTTP and stdio: results, tools that fail, errors, questions and cancelling. The ids of servers never reach a client.
func TestTasksBetweenEras(t *testing.T) {
	for _, upstream := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		for _, downstream := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			for _, stdio := range []bool{false, true} {
				t.Run(fmt.Sprintf("a %s client of a %s server, stdio %v", downstream, upstream, stdio), func(t *testing.T) {
					t.Parallel()
					f, s := startTaskFixture(t, taskserver.Options{Era: upstream})
					if stdio {
						s = overPipes(taskserver.Options{Era: upstream, Log: f, Poll: 50 * time.Millisecond})
					}
					g := startTaskGateway(t, TaskOptions{}, s)
					c := g.client(downstream, "tasks")
					for _, test := range []struct {
						tool, arguments, text, err string
						isError                    bool
					}{
						{tool: "compute", arguments: `{"ms":60,"text":"done"}`, text: "done"},
						{tool: "failing_job", arguments: `{}`, text: "the job failed", isError: true},
						{tool: "protocol_error_job", arguments: `{}`, err: "the job broke down"},
						{tool: "confirm_delete", arguments: `{"filename":"f"}`, text: "f was deleted"},
						{tool: "multi_input", arguments: `{}`, text: `first {"action":"accept"`},
					} {
						text, isError, err := c.result(c.task(test.tool, test.arguments))
						if !strings.HasPrefix(text, test.text) || isError != test.isError || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
							t.Errorf("%s: %q, %v, %v", test.tool, text, isError, err)
						}
					}
					id := c.task("compute", `{"ms":60000}`)
					c.must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
					c.until(id, "cancelled")
					eventually(t, "the server was not told", func() bool { return f.asked("tasks/cancel", "") == 1 })
					for _, theirs := range f.taskIDs() {
						if c.seen.has(theirs) {
							t.Errorf("the client has seen the server's id %s", theirs)
						}
					}
				})
			}
		}
	}
}

func TestTaskPages(t *testing.T) {
	_, _, c := plainBehind(t, TaskOptions{}, mcp.Legacy)
	var want []string
	for range 101 {
		want = append(want, c.task("quick", "{}"))
	}
	var got []string
	params := "{}"
	for pages := 1; ; pages++ {
		page := c.must(mcp.MethodTasksList, "%s", params)
		var tasks []struct{ TaskID string }
		if err := json.Unmarshal(page.Get("tasks"), &tasks); err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			got = append(got, task.TaskID)
		}
		if !page.Has("nextCursor") {
			if pages != 2 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		params = fmt.Sprintf(`{"cursor":%s}`, page.Get("nextCursor"))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%d tasks, expected %d in order", len(got), len(want))
	}
	c.refused(mcp.CodeInvalidParams, mcp.MethodTasksList, `{"cursor":"!"}`)
}

// Servers that misbehave.
func TestTasksOfServersThatMisbehave(t *testing.T) {
	for _, era := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		serve := func(t *testing.T, o taskserver.Options) *taskClient {
			o.Era = era
			_, s := startTaskFixture(t, o)
			return startTaskGateway(t, TaskOptions{}, s).client(mcp.Era(era), "tasks")
		}

		t.Run(string(era)+"/one id for two tasks", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{SameTaskID: true})
			first := c.task("compute", `{"ms":2000,"text":"first"}`)
			c.refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"compute","arguments":{"ms":10,"text":"second"},"task":{}}`)
			if _, _, err := c.result(first); err == nil || !strings.Contains(err.Error(), "one task id") {
				t.Error(err)
			}
			if text, _, err := c.result(c.task("compute", `{"ms":10,"text":"third"}`)); text != "third" { // after them the id is free
				t.Error(text, err)
			}
		})

		t.Run(string(era)+"/a TTL that is a lie", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{TTLLie: true})
			if _, _, err := c.result(c.task("compute", `{"ms":20000}`)); err == nil || !strings.Contains(err.Error(), "has forgotten the task") {
				t.Error(err)
			}
			if text, _, err := c.result(c.task("compute", `{"ms":100,"text":"in time"}`)); text != "in time" || err != nil {
				t.Error(text, err)
			}
		})

		t.Run(string(era)+"/the status before the result", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{TerminalBeforeResult: true})
			id := c.task("compute", `{"ms":50,"text":"late"}`)
			if text, _, err := c.result(id); text != "late" || err != nil {
				t.Error(text, err)
			}
			if text, isError, err := c.result(c.task("failing_job", `{}`)); text != "the job failed" || !isError || err != nil {
				t.Error(text, isError, err)
			}
		})

		t.Run(string(era)+"/a server that dies", func(t *testing.T) {
			t.Parallel()
			s := overPipes(taskserver.Options{Era: era, Poll: 50 * time.Millisecond})
			start := s.Target.Start
			var process io.ReadWriteCloser
			s.Target.Start = func(ctx context.Context) (_ io.ReadWriteCloser, err error) {
				process, err = start(ctx)
				return process, err
			}
			g := startTaskGateway(t, TaskOptions{}, s)
			c := g.client(mcp.Era(era), "tasks")
			id := c.task("compute", `{"ms":60000}`)
			if err := process.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err := c.result(id); err == nil || !strings.Contains(err.Error(), "connection") {
				t.Error(err)
			}
			if text, _, err := c.result(c.task("compute", `{"ms":10,"text":"again"}`)); text != "again" || err != nil {
				t.Error(text, err)
			}
		})
	}

	t.Run("a server that refuses calls without a task by a result", func(t *testing.T) {
		_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy, RequiredIsToolError: true})
		g := startTaskGateway(t, TaskOptions{}, s)
		c := g.clientWith("tasks", mcp.ClientOptions{Protocol: mcp.Legacy, Capabilities: json.RawMessage(`{}`)})
		o := c.must(mcp.MethodToolsCall, `{"name":"required_compute","arguments":{"ms":10,"text":"x"}}`)
		if o.Has("isError") && string(o.Get("isError")) != "false" || !o.Has("content") || o.Object("_meta").Has(mcp.MetaRelatedTask) {
			t.Error(string(o.JSON()))
		}
	})

	t.Run("a task that is asked for where there can be none", func(t *testing.T) {
		_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		c := startTaskGateway(t, TaskOptions{}, s).client(mcp.Legacy, "tasks")
		c.refused(mcp.CodeMethodNotFound, mcp.MethodToolsCall, `{"name":"echo","arguments":{},"task":{}}`)
		c.refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":{"ttl":-1}}`)
		c.refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":3}`)
		c.refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":3}`)
		c.refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{}`)
	})

	t.Run("a time to live that is too long", func(t *testing.T) {
		_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		c := startTaskGateway(t, TaskOptions{}, s).client(mcp.Legacy, "tasks")
		o := c.must(mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":{"ttl":1e300}}`).Object("task")
		if got := string(o.Get("ttl")); got != "7200000" {
			t.Error(got)
		}
	})

	t.Run("the time to live ends a task that runs", func(t *testing.T) {
		p, s := startPlainServer(t)
		g := startTaskGateway(t, TaskOptions{Cleanup: 20 * time.Millisecond}, s)
		c := g.client(mcp.Legacy, "plain")
		id := c.must(mcp.MethodToolsCall, `{"name":"slow","arguments":{},"task":{"ttl":100}}`).Object("task").Text("taskId")
		waitFor(t, p.began)
		_ = waitFor(t, p.ended) // it is what a cancelled call ends with
		c.note(id, "cancelled")
		c.refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":%q}`, id)
	})
}

type taskStore = store.MCPTasks

// forgetting is a store that takes so long that the list of tools changes meanwhile.
type forgetting struct {
	taskStore
	forget func()
}

func (f forgetting) AddMCPTask(ctx context.Context, t store.MCPTask, limits store.MCPTaskLimits) (store.MCPTask, error) {
	f.forget()
	return f.taskStore.AddMCPTask(ctx, t, limits)
}

func TestRequiredToolIsCalledAsATaskThoughTheListChanges(t *testing.T) {
	_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
	g := startTaskGateway(t, TaskOptions{}, s)
	g.access.tasks.o.Store = forgetting{g.store, g.access.Endpoint("tasks").forgetTools}
	c := g.client(mcp.Legacy, "tasks")
	if text, _, err := c.result(c.task("required_compute", `{"ms":10,"text":"x"}`)); text != "x" || err != nil {
		t.Error(text, err)
	}
}
