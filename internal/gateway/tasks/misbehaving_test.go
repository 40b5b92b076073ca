package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Every pair of eras, over HTTP and stdio: results, tools that fail, errors, questions and
// cancelling. The ids of servers never reach a client.
func TestTasksBetweenEras(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for _, upstream := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		for _, downstream := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			for _, stdio := range []bool{false, true} {
				t.Run(fmt.Sprintf("a %s client of a %s server, stdio %v", downstream, upstream, stdio), func(t *testing.T) {
					t.Parallel()
					f, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: upstream})
					if stdio {
						s = gatewaytest.OverPipes(taskserver.Options{Era: upstream, Log: f, Poll: 50 * time.Millisecond})
					}
					g := startTaskGateway(t, Options{}, s)
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
						text, isError, err := c.Result(c.Task(test.tool, test.arguments))
						if !strings.HasPrefix(text, test.text) || isError != test.isError || (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
							t.Errorf("%s: %q, %v, %v", test.tool, text, isError, err)
						}
					}
					id := c.Task("compute", `{"ms":60000}`)
					c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
					c.Until(id, "cancelled")
					gatewaytest.Eventually(t, "the server was not told", func() bool { return f.Asked("tasks/cancel", "") == 1 })
					for _, theirs := range f.TaskIDs() {
						if c.Seen.Has(theirs) {
							t.Errorf("the client has seen the server's id %s", theirs)
						}
					}
				})
			}
		}
	}
}

func TestTaskPages(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	_, _, c := plainBehind(t, Options{}, mcp.Legacy)
	var want []string
	for range 101 {
		want = append(want, c.Task("quick", "{}"))
	}
	var got []string
	params := "{}"
	for pages := 1; ; pages++ {
		page := c.Must(mcp.MethodTasksList, "%s", params)
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
	for _, cursor := range []string{"!", "zz", "1", "", "1-00000000"} {
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksList, `{"cursor":%q}`, cursor)
	}
}

// Servers that misbehave.
func TestTasksOfServersThatMisbehave(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for _, era := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		serve := func(t *testing.T, o taskserver.Options) *gatewaytest.TaskClient {
			o.Era = era
			_, s := gatewaytest.StartTaskFixture(t, o)
			return startTaskGateway(t, Options{}, s).client(mcp.Era(era), "tasks")
		}

		t.Run(string(era)+"/one id for two tasks", func(t *testing.T) {
			t.Parallel()
			_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: era, SameTaskID: true})
			g := startTaskGateway(t, Options{}, s)
			c := g.client(mcp.Era(era), "tasks")
			first := c.Task("compute", `{"ms":2000,"text":"first"}`)
			running := g.tasks.index.byID(first)
			c.Refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"compute","arguments":{"ms":2000,"text":"second"},"task":{}}`)
			if _, _, err := c.Result(first); err == nil || !strings.Contains(err.Error(), "one task id") {
				t.Error(err)
			}
			gatewaytest.WaitFor(t, running.gone) // it is cancelled at its server, and the id is free
			if text, _, err := c.Result(c.Task("compute", `{"ms":10,"text":"third"}`)); text != "third" {
				t.Error(text, err)
			}
		})

		t.Run(string(era)+"/a TTL that is a lie", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{TTLLie: true})
			if _, _, err := c.Result(c.Task("compute", `{"ms":20000}`)); err == nil || !strings.Contains(err.Error(), "has forgotten the task") {
				t.Error(err)
			}
			if text, _, err := c.Result(c.Task("compute", `{"ms":100,"text":"in time"}`)); text != "in time" || err != nil {
				t.Error(text, err)
			}
		})

		t.Run(string(era)+"/the status before the result", func(t *testing.T) {
			t.Parallel()
			c := serve(t, taskserver.Options{TerminalBeforeResult: true})
			id := c.Task("compute", `{"ms":50,"text":"late"}`)
			if text, _, err := c.Result(id); text != "late" || err != nil {
				t.Error(text, err)
			}
			if text, isError, err := c.Result(c.Task("failing_job", `{}`)); text != "the job failed" || !isError || err != nil {
				t.Error(text, isError, err)
			}
		})

		t.Run(string(era)+"/a server that dies", func(t *testing.T) {
			t.Parallel()
			s := gatewaytest.OverPipes(taskserver.Options{Era: era, Poll: 50 * time.Millisecond})
			start := s.Target.Start
			var process io.ReadWriteCloser
			s.Target.Start = func(ctx context.Context) (_ io.ReadWriteCloser, err error) {
				process, err = start(ctx)
				return process, err
			}
			g := startTaskGateway(t, Options{}, s)
			c := g.client(mcp.Era(era), "tasks")
			id := c.Task("compute", `{"ms":60000}`)
			if err := process.Close(); err != nil {
				t.Error(err)
			}
			if _, _, err := c.Result(id); err == nil || !strings.Contains(err.Error(), "connection") {
				t.Error(err)
			}
			if text, _, err := c.Result(c.Task("compute", `{"ms":10,"text":"again"}`)); text != "again" || err != nil {
				t.Error(text, err)
			}
		})
	}

	t.Run("a server that refuses calls without a task by a result", func(t *testing.T) {
		_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy, RequiredIsToolError: true})
		g := startTaskGateway(t, Options{}, s)
		c := g.clientWith("tasks", mcp.ClientOptions{Protocol: mcp.Legacy, Capabilities: json.RawMessage(`{}`)})
		o := c.Must(mcp.MethodToolsCall, `{"name":"required_compute","arguments":{"ms":10,"text":"x"}}`)
		if o.Has("isError") && string(o.Get("isError")) != "false" || !o.Has("content") || o.Object("_meta").Has(mcp.MetaRelatedTask) {
			t.Error(string(o.JSON()))
		}
	})

	t.Run("a status that there is not", func(t *testing.T) {
		server := startScripted(t, func(method string, params jsonobj.Object) (string, *mcp.Error) {
			if method == mcp.MethodToolsCall {
				return `{"task":` + wireTaskOf("their1", "dancing") + `}`, nil
			}
			return wireTaskOf(params.Text("taskId"), "dancing"), nil
		})
		c := startTaskGateway(t, Options{}, server).client(mcp.Legacy, "scripted")
		if _, _, err := c.Result(c.Task("tool", `{}`)); err == nil || !strings.Contains(err.Error(), `the task is "dancing"`) {
			t.Error(err)
		}
		if text := textForAgent(t, server, "tool"); !strings.Contains(text, `the task is "dancing"`) {
			t.Error(text)
		}
	})

	t.Run("a task that is asked for where there can be none", func(t *testing.T) {
		_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		c := startTaskGateway(t, Options{}, s).client(mcp.Legacy, "tasks")
		c.Refused(mcp.CodeMethodNotFound, mcp.MethodToolsCall, `{"name":"echo","arguments":{},"task":{}}`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":{"ttl":-1}}`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":3}`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":3}`)
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{}`)
	})

	t.Run("a time to live that is too long", func(t *testing.T) {
		_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		c := startTaskGateway(t, Options{}, s).client(mcp.Legacy, "tasks")
		o := c.Must(mcp.MethodToolsCall, `{"name":"compute","arguments":{},"task":{"ttl":1e300}}`).Object("task")
		if got := string(o.Get("ttl")); got != "7200000" {
			t.Error(got)
		}
	})

	t.Run("the time to live ends a task that runs", func(t *testing.T) {
		p, s := gatewaytest.StartPlainServer(t)
		g := startTaskGateway(t, Options{Cleanup: 20 * time.Millisecond}, s)
		c := g.client(mcp.Legacy, "plain")
		id := c.Must(mcp.MethodToolsCall, `{"name":"slow","arguments":{},"task":{"ttl":100}}`).Object("task").Text("taskId")
		gatewaytest.WaitFor(t, p.Began)
		_ = gatewaytest.WaitFor(t, p.Ended) // it is what a cancelled call ends with
		c.Note(id, "cancelled")
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":%q}`, id)
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
	t.Parallel()
	_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
	g := startTaskGateway(t, Options{}, s)
	g.tasks.o.Store = forgetting{g.store, g.access.Endpoint("tasks").Tools().Forget}
	c := g.client(mcp.Legacy, "tasks")
	if text, _, err := c.Result(c.Task("required_compute", `{"ms":10,"text":"x"}`)); text != "x" || err != nil {
		t.Error(text, err)
	}
}
