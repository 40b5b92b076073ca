package tasks

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// supportOf is the taskSupport of the tools that a client is shown.
func supportOf(c *gatewaytest.TaskClient) map[string]string {
	c.T.Helper()
	var tools []struct {
		Name      string
		Execution struct{ TaskSupport string }
	}
	if err := json.Unmarshal(c.Must(mcp.MethodToolsList, "{}").Get("tools"), &tools); err != nil {
		c.T.Fatal(err)
	}
	out := map[string]string{}
	for _, t := range tools {
		out[t.Name] = t.Execution.TaskSupport
	}
	return out
}

func capabilitiesOf(c *gatewaytest.TaskClient) jsonobj.Object {
	hello, _ := jsonobj.ParseObject(c.InitializeResult())
	return hello.Object("capabilities")
}

// The integration tests of MCPGateway for tasks of 2025-11-25, by their names.
func TestTasksOf2025(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	t.Run("ListToolsAsync_ExportsTaskSupportForUpstreamAndLocalTools", func(t *testing.T) {
		t.Parallel()
		_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		_, plain := gatewaytest.StartPlainServer(t)
		g := startTaskGateway(t, Options{}, tasks, plain)
		c := g.client(mcp.Legacy, "tasks")
		if got := supportOf(c); got["required_compute"] != "required" || got["compute"] != "optional" || got["echo"] != "forbidden" {
			t.Error(got)
		}
		if got := string(capabilitiesOf(c).Get("tasks")); got != `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}` {
			t.Error(got)
		}
		c = g.client(mcp.Legacy, "plain")
		if got := supportOf(c); got["slow"] != "optional" {
			t.Error(got)
		}
		if !capabilitiesOf(c).Has("tasks") {
			t.Error("not offered")
		}
	})

	t.Run("CallToolAsTaskAsync_ProxiesUpstreamRequiredToolAndSupportsListGetAndResult", func(t *testing.T) {
		t.Parallel()
		f, _, c := tasksBehind(t, taskserver.Legacy, Options{}, mcp.Legacy)
		id := c.Task("required_compute", `{"ms":100,"text":"required:alpha"}`)
		if list := string(c.Must(mcp.MethodTasksList, "{}").Get("tasks")); !strings.Contains(list, id) {
			t.Error(list)
		}
		if got := c.Get(id).Text("taskId"); got != id {
			t.Error(got)
		}
		if text, isError, err := c.Result(id); text != "required:alpha" || isError || err != nil {
			t.Error(text, isError, err)
		}
		c.Until(id, "completed")
		if n := f.Asked("tools/call", "required_compute"); n != 1 {
			t.Errorf("%d calls", n)
		}
	})

	t.Run("CallToolAsync_WhenToolRequiresTask", func(t *testing.T) { // gives the final result, as in 4.3, and not the error that it did then
		t.Parallel()
		_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		g := startTaskGateway(t, Options{}, tasks)
		r, err := g.sdkClient(mcp.Version2025_11_25, "tasks").CallTool(t.Context(), &sdk.CallToolParams{Name: "required_compute", Arguments: map[string]any{"ms": 100, "text": "waited"}})
		if got := gatewaytest.SdkText(t, r, err); got != "waited" || r.IsError {
			t.Error(got)
		}
	})

	t.Run("TaskStatusNotification_IsForwardedForUpstreamTask", func(t *testing.T) {
		t.Parallel()
		_, _, c := tasksBehind(t, taskserver.Legacy, Options{}, mcp.Legacy)
		c.Note(c.Task("required_compute", `{"ms":100,"text":"x"}`), "completed")
	})

	t.Run("TaskStatusNotification_CatchesUpWhenUpstreamTaskCompletesBeforeSubscription", func(t *testing.T) {
		t.Parallel()
		_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy, StatusBeforeCreate: true})
		g := startTaskGateway(t, Options{}, tasks)
		c := g.client(mcp.Legacy, "tasks")
		id := c.Task("compute", `{"ms":0,"text":"x"}`) // done before the gateway has its id
		c.Note(id, "completed")
		other := c.Task("compute", `{"ms":300,"text":"x"}`)
		ends := 0
		for n := range c.Notes {
			if n.Text("taskId") == id && mcptask.IsTerminal(n.Text("status")) {
				ends++
			}
			if n.Text("taskId") == other && mcptask.IsTerminal(n.Text("status")) {
				break
			}
		}
		if ends != 0 {
			t.Errorf("the end was told %d times more", ends)
		}
	})

	t.Run("GetTaskResultAsync_PropagatesUpstreamResultFailures", func(t *testing.T) {
		t.Parallel()
		upstream := startScripted(t, func(method string, params jsonobj.Object) (string, *mcp.Error) {
			switch method {
			case mcp.MethodToolsCall:
				return `{"task":{"taskId":"1","status":"working","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null}}`, nil
			case mcp.MethodTasksGet:
				return `{"taskId":"1","status":"completed","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":null,"pollInterval":50}`, nil
			case mcp.MethodTasksResult:
				return "", mcp.ParseError(json.RawMessage(`{"code":-32042,"message":"upstream result failure","data":{"n":9007199254740993}}`))
			}
			return "{}", nil
		})
		g := startTaskGateway(t, Options{}, upstream)
		c := g.client(mcp.Legacy, "scripted")
		id := c.Task("tool", "{}")
		failed := c.Refused(-32042, mcp.MethodTasksResult, `{"taskId":%q}`, id)
		if failed.Message != "upstream result failure" || string(failed.Data) != `{"n":9007199254740993}` {
			t.Error(failed)
		}
		c.Until(id, "failed")
	})

	t.Run("CallToolAsTaskAsync_CancelsGatewayManagedLocalTask", func(t *testing.T) {
		t.Parallel()
		p, _, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		if got := c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id).Text("status"); got != "cancelled" {
			t.Error(got)
		}
		if got := c.Get(id).Text("status"); got != "cancelled" {
			t.Error(got)
		}
		_ = gatewaytest.WaitFor(t, p.Ended) // it is what a cancelled call ends with
		c.Refused(mcp.CodeInvalidParams, mcp.MethodTasksCancel, `{"taskId":%q}`, id)
	})

	t.Run("CallToolAsTaskAsync_CancelsUpstreamProxyTask", func(t *testing.T) {
		t.Parallel()
		f, _, c := tasksBehind(t, taskserver.Legacy, Options{}, mcp.Legacy)
		id := c.Task("required_compute", `{"ms":60000,"text":"x"}`)
		if got := c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id).Text("status"); got != "cancelled" {
			t.Error(got)
		}
		if got := c.Get(id).Text("status"); got != "cancelled" {
			t.Error(got)
		}
		gatewaytest.Eventually(t, "the server was not told", func() bool { return f.Asked("tasks/cancel", "") == 1 })
	})

	t.Run("CallToolAsTaskAsync_WaitsForGatewayManagedLocalTaskResult", func(t *testing.T) {
		t.Parallel()
		p, _, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		if got := c.Get(id).Text("status"); got != "working" {
			t.Error(got)
		}
		close(p.Proceed)
		if text, _, err := c.Result(id); text != "local:delta" || err != nil {
			t.Error(text, err)
		}
		if got := c.Get(id).Text("status"); got != "completed" {
			t.Error(got)
		}
		c.Note(id, "completed")
	})

	t.Run("CallToolAsTaskAsync_StoresFailedResultForGatewayManagedLocalTask", func(t *testing.T) {
		t.Parallel()
		_, _, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("failing", "{}")
		if text, isError, err := c.Result(id); text != "boom:epsilon" || !isError || err != nil {
			t.Error(text, isError, err)
		}
		if got := c.Get(id).Text("status"); got != "completed" {
			t.Error(got)
		}
	})

	t.Run("CompletedUpstreamTaskReleasesIsolatedBindingAndKeepsResult", func(t *testing.T) {
		t.Parallel()
		_, g, c := tasksBehind(t, taskserver.Legacy, Options{}, mcp.Legacy)
		id := c.Task("required_compute", `{"ms":50,"text":"kept"}`)
		c.Until(id, "completed")
		gatewaytest.Eventually(t, "the task is still looked after", func() bool { return g.active() == 0 })
		for range 2 {
			if text, _, err := c.Result(id); text != "kept" || err != nil {
				t.Error(text, err)
			}
		}
	})

	t.Run("CancelledLocalTaskReleasesIsolatedBinding", func(t *testing.T) {
		t.Parallel()
		p, g, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		if n := g.active(); n != 0 {
			t.Errorf("%d tasks are looked after", n)
		}
	})

	t.Run("RemoveSessionAsync_CancelsActiveLocalTaskAndReleasesBinding", func(t *testing.T) {
		t.Parallel()
		p, g, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		if err := c.Close(); err != nil { // DELETE
			t.Fatal(err)
		}
		_ = gatewaytest.WaitFor(t, p.Ended) // it is what a cancelled call ends with
		gatewaytest.Eventually(t, "the task is still looked after", func() bool { return g.active() == 0 })
		other := g.client(mcp.Legacy, "plain")
		other.Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":%q}`, id)
	})

	t.Run("GetTaskResultAsync_ThrowsImmediatelyWhenTerminalTaskHasNoStoredResult", func(t *testing.T) {
		t.Parallel()
		p, _, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		c.Refused(mcp.CodeInternal, mcp.MethodTasksResult, `{"taskId":%q}`, id)
	})

	t.Run("CreateTaskAsync_UsesConfiguredTaskStoreMaximumTaskLimit", func(t *testing.T) {
		t.Parallel()
		p, plain := gatewaytest.StartPlainServer(t)
		g := startTaskGateway(t, Options{Max: 3, MaxPerSession: 2}, plain)
		one, two := g.client(mcp.Legacy, "plain"), g.client(mcp.Legacy, "plain")
		one.Task("slow", "{}")
		one.Task("slow", "{}")
		e := one.Refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"slow","arguments":{},"task":{}}`)
		if !strings.Contains(e.Message, "the session has 2") {
			t.Error(e)
		}
		two.Task("slow", "{}")
		e = two.Refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"slow","arguments":{},"task":{}}`)
		if !strings.Contains(e.Message, "the gateway has 3") {
			t.Error(e)
		}
		for range 3 {
			gatewaytest.WaitFor(t, p.Began)
		}
		select {
		case <-p.Began:
			t.Error("a call that was refused was made")
		default:
		}
	})

	t.Run("tasks of a session that has ended are not in the way", func(t *testing.T) {
		t.Parallel()
		_, g, c := plainBehind(t, Options{Max: 2}, mcp.Legacy)
		for range 2 {
			c.Until(c.Task("quick", "{}"), mcptask.Completed)
		}
		other := g.client(mcp.Legacy, "plain")
		other.Refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"quick","arguments":{},"task":{}}`)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		gatewaytest.Eventually(t, "the limit still holds", func() bool {
			_, err := other.Try(mcp.MethodToolsCall, `{"name":"quick","arguments":{},"task":{}}`)
			return err == nil
		})
	})

	// Each session of a stdio server is a process.
	t.Run("sessions of a server have a limit", func(t *testing.T) {
		t.Parallel()
		server := gatewaytest.OverPipes(taskserver.Options{Era: taskserver.Legacy})
		server.MaxSessions = 2
		g := startTaskGateway(t, Options{}, server)
		c := g.client(mcp.Legacy, "tasks")
		g.client(mcp.Legacy, "tasks")
		third := func() error {
			client, err := mcp.Connect(t.Context(), mcp.Target{URL: g.access.URLWithToken("tasks")}, mcp.ClientOptions{Protocol: mcp.Legacy})
			if err == nil {
				t.Cleanup(func() { _ = client.Detach() })
			}
			return err
		}
		if err := third(); err == nil || !strings.Contains(err.Error(), `MCP server "tasks" has 2 sessions, which is the limit`) {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		gatewaytest.Eventually(t, "the limit still holds", func() bool { return third() == nil })
	})

	t.Run("Constructor_RejectsUnboundedInvalidTaskStoreOptions", refusesOptions)
}
