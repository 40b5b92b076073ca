package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/mcptask"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
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
	t.Parallel()
	t.Run("ListToolsAsync_ExportsTaskSupportForUpstreamAndLocalTools", func(t *testing.T) {
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
		_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
		g := startTaskGateway(t, Options{}, tasks)
		r, err := g.sdkClient(mcp.Version2025_11_25, "tasks").CallTool(t.Context(), &sdk.CallToolParams{Name: "required_compute", Arguments: map[string]any{"ms": 100, "text": "waited"}})
		if got := gatewaytest.SdkText(t, r, err); got != "waited" || r.IsError {
			t.Error(got)
		}
	})

	t.Run("TaskStatusNotification_IsForwardedForUpstreamTask", func(t *testing.T) {
		_, _, c := tasksBehind(t, taskserver.Legacy, Options{}, mcp.Legacy)
		c.Note(c.Task("required_compute", `{"ms":100,"text":"x"}`), "completed")
	})

	t.Run("TaskStatusNotification_CatchesUpWhenUpstreamTaskCompletesBeforeSubscription", func(t *testing.T) {
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
		p, _, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		if got := c.Get(id).Text("status"); got != "working" {
			t.Error(got)
		}
		close(p.GoOn)
		if text, _, err := c.Result(id); text != "local:delta" || err != nil {
			t.Error(text, err)
		}
		if got := c.Get(id).Text("status"); got != "completed" {
			t.Error(got)
		}
		c.Note(id, "completed")
	})

	t.Run("CallToolAsTaskAsync_StoresFailedResultForGatewayManagedLocalTask", func(t *testing.T) {
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
		_, g, c := tasksBehind(t, taskserver.Legacy, Options{}, mcp.Legacy)
		id := c.Task("required_compute", `{"ms":50,"text":"kept"}`)
		c.Until(id, "completed")
		if n := g.active(); n != 0 {
			t.Errorf("%d tasks are looked after", n)
		}
		for range 2 {
			if text, _, err := c.Result(id); text != "kept" || err != nil {
				t.Error(text, err)
			}
		}
	})

	t.Run("CancelledLocalTaskReleasesIsolatedBinding", func(t *testing.T) {
		p, g, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		if n := g.active(); n != 0 {
			t.Errorf("%d tasks are looked after", n)
		}
	})

	t.Run("RemoveSessionAsync_CancelsActiveLocalTaskAndReleasesBinding", func(t *testing.T) {
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
		p, _, c := plainBehind(t, Options{}, mcp.Legacy)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id)
		c.Refused(mcp.CodeInternal, mcp.MethodTasksResult, `{"taskId":%q}`, id)
	})

	t.Run("CreateTaskAsync_UsesConfiguredTaskStoreMaximumTaskLimit", func(t *testing.T) {
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

	// S8
	t.Run("tasks of a session that has ended are not in the way", func(t *testing.T) {
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

	// G6: each session of a stdio server is a process.
	t.Run("sessions of a server have a limit", func(t *testing.T) {
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

	t.Run("Constructor_RejectsUnboundedInvalidTaskStoreOptions", func(t *testing.T) { refusesOptions(t) })
}

func refusesOptions(t *testing.T) {
	t.Helper()
	g := startTaskGateway(t, Options{})
	for i, change := range []func(*Options){
		func(o *Options) { o.TTL = -1 }, func(o *Options) { o.MaxTTL = -time.Second }, func(o *Options) { o.MaxTTL = 365 * 24 * time.Hour },
		func(o *Options) { o.TTL = 3 * time.Hour }, func(o *Options) { o.Poll = -1 }, func(o *Options) { o.Cleanup = -1 },
		func(o *Options) { o.Page = -1 }, func(o *Options) { o.Page = 1_000_000 }, func(o *Options) { o.Max = -1 }, func(o *Options) { o.Max = 1 << 30 },
		func(o *Options) { o.MaxPerSession = -1 }, func(o *Options) { o.MaxPerSession = 20_000 }, func(o *Options) { o.Store = nil },
	} {
		o := Options{Store: g.store}
		change(&o)
		if _, err := New(o, nil); err == nil {
			t.Errorf("options %d were taken", i)
		}
	}
	o, err := (Options{Store: g.store}).complete()
	if err != nil || o.TTL != 30*time.Minute || o.MaxTTL != 2*time.Hour || o.Poll != time.Second || o.Cleanup != time.Minute || o.Page != 100 || o.Max != 10_000 || o.MaxPerSession != 1_000 {
		t.Errorf("%+v, %v", o, err)
	}
}

// The new tests of MCPGateway for the tasks extension of 2026-07-28, by their names.
func TestTasksOf2026(t *testing.T) {
	t.Parallel()
	t.Run("ListToolsAsync_AdvertisesCurrentTasksAndAppsExtensions", func(t *testing.T) {
		_, _, c := plainBehind(t, Options{}, mcp.Modern)
		capabilities := capabilitiesOf(c)
		if !capabilities.Object("extensions").Has(mcp.ExtensionTasks) || capabilities.Has("tasks") {
			t.Error(string(capabilities.JSON()))
		}
		if got := supportOf(c); got["slow"] != "" {
			t.Errorf("taskSupport in the modern era: %v", got)
		}
		kept := offerTasks(mcp.Modern, jsonobj.Object{{Key: "extensions", Value: json.RawMessage(`{"io.modelcontextprotocol/ui":{"a":1}}`)}})
		if got := string(kept.JSON()); got != `{"extensions":{"io.modelcontextprotocol/ui":{"a":1},"io.modelcontextprotocol/tasks":{}}}` {
			t.Error(got)
		}
	})

	for _, era := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		t.Run("CallToolAsync_RetriesAnUpstreamRequiredTaskAndReturnsItsResult/of a "+string(era)+" server", func(t *testing.T) {
			f, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: era})
			g := startTaskGateway(t, Options{}, tasks)
			r, err := g.sdkClient(mcp.Version2026_07_28, "tasks").CallTool(t.Context(), &sdk.CallToolParams{Name: "required_compute", Arguments: map[string]any{"ms": 100, "text": "waited"}})
			if got := gatewaytest.SdkText(t, r, err); got != "waited" {
				t.Error(got)
			}
			if n := f.Asked("tasks/get", ""); n == 0 {
				t.Error("it was no task")
			}
			strict := startTaskGateway(t, Options{Strict: true}, tasks)
			c := strict.clientWith("tasks", mcp.ClientOptions{Protocol: mcp.Modern})
			e := c.Refused(mcp.CodeMissingCapability, mcp.MethodToolsCall, `{"name":"required_compute","arguments":{}}`)
			if got := string(e.Data); got != `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}` {
				t.Error(got)
			}
		})

		t.Run("CallToolAsTaskAsync_CompletesAnUpstreamRequiredToolThroughGatewayOwnedTaskState/of a "+string(era)+" server", func(t *testing.T) {
			f, _, c := tasksBehind(t, era, Options{}, mcp.Modern)
			id := c.Task("required_compute", `{"ms":100,"text":"done","big":9007199254740993}`)
			if text, _, err := c.Result(id); text != "done" || err != nil {
				t.Error(text, err)
			}
			for _, theirs := range f.TaskIDs() {
				if theirs == id {
					t.Error("the id is the server's")
				}
			}
		})
	}

	t.Run("CallToolWithPollingAsync_ReturnsTheCompletedLocalTaskResult", func(t *testing.T) {
		p, _, c := plainBehind(t, Options{Grace: time.Millisecond}, mcp.Modern)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		close(p.GoOn)
		if text, _, err := c.Result(id); text != "local:delta" || err != nil {
			t.Error(text, err)
		}
	})

	t.Run("what is quick is no task", func(t *testing.T) {
		_, _, c := plainBehind(t, Options{Grace: gatewaytest.TaskLimit}, mcp.Modern)
		if o := c.Must(mcp.MethodToolsCall, `{"name":"quick","arguments":{}}`); o.Text("resultType") != "complete" || !o.Has("content") {
			t.Error(string(o.JSON()))
		}
	})

	t.Run("CancelTaskAsync_CancelsAGatewayManagedLocalTask", func(t *testing.T) {
		p, _, c := plainBehind(t, Options{Grace: time.Millisecond}, mcp.Modern)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		for range 2 { // one that has ended is acknowledged, too
			if got := string(c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, id).JSON()); got != `{"resultType":"complete"}` {
				t.Error(got)
			}
		}
		_ = gatewaytest.WaitFor(t, p.Ended) // it is what a cancelled call ends with
		if got := c.Get(id).Text("status"); got != "cancelled" {
			t.Error(got)
		}
	})

	t.Run("CallToolAsTaskAsync_StoresToolFailuresAsCompletedErrorResults", func(t *testing.T) {
		for _, era := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
			_, g, c := tasksBehind(t, era, Options{}, mcp.Modern)
			id := c.Task("failing_job", "{}")
			if text, isError, err := c.Result(id); text != "the job failed" || !isError || err != nil {
				t.Error(text, isError, err)
			}
			if got := c.Get(id).Text("status"); got != "completed" {
				t.Error(got)
			}
			l := g.client(mcp.Legacy, "tasks") // where that is a failed task
			id = l.Task("failing_job", "{}")
			if text, isError, err := l.Result(id); text != "the job failed" || !isError || err != nil {
				t.Error(text, isError, err)
			}
			if got := l.Get(id).Text("status"); got != "failed" {
				t.Error(got)
			}
		}
	})

	t.Run("WithMcpGatewayCatalog_UsesCallerProvidedTaskStore", func(t *testing.T) {
		_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Modern})
		g := startTaskGateway(t, Options{}, tasks)
		id := g.client(mcp.Modern, "tasks").Task("compute", `{"ms":60000}`)
		if rec, err := g.store.MCPTask(t.Context(), g.tasks.access, "", id); err != nil || rec.Tool != "compute" || rec.Status != mcptask.Working {
			t.Error(rec, err)
		}
	})

	t.Run("EnforcesTheConfiguredGlobalLimit", func(t *testing.T) {
		f, _, c := tasksBehind(t, taskserver.Modern, Options{Max: 1}, mcp.Modern)
		c.Task("compute", `{"ms":60000}`)
		c.Refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"compute","arguments":{"ms":60000}}`)
		gatewaytest.Eventually(t, "what was refused goes on at the server", func() bool { return f.Asked("tasks/cancel", "") == 1 })
	})

	t.Run("PreservesTheTypedJsonResult", func(t *testing.T) {
		const arguments = `{"ms":10,"text":"x","big":9007199254740993,"z":{"b":1e400,"a":[1.0,  2]},"é":"\u00e9"}`
		for _, era := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
			_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: era})
			g := startTaskGateway(t, Options{}, tasks)
			for _, client := range []mcp.Era{mcp.Legacy, mcp.Modern} {
				c := g.client(client, "tasks")
				id := c.Task("compute", arguments)
				o := c.Until(id, "completed").Object("result")
				if client == mcp.Legacy {
					o = c.Must(mcp.MethodTasksResult, `{"taskId":%q}`, id)
				}
				if got := string(o.Get("structuredContent")); !strings.Contains(got, `9007199254740993,"z":{"b":1e400,"a":[1.0,`) {
					t.Errorf("%s to %s: %s", era, client, got)
				}
			}
		}
	})

	t.Run("ResolveInputRequests_ReturnsToWorking", func(t *testing.T) {
		_, _, c := tasksBehind(t, taskserver.Modern, Options{}, mcp.Modern)
		id := c.Task("multi_input", "{}")
		open := c.Until(id, "input_required").Object("inputRequests")
		if len(open) != 2 || !open.Has("first") || !open.Has("second") {
			t.Fatal(string(open.JSON()))
		}
		answer := `{"action":"accept","content":{"name":"Ada"}}`
		c.Must(mcp.MethodTasksUpdate, `{"taskId":%q,"inputResponses":{"first":%s,"other":%s}}`, id, answer, answer)
		if open := c.Get(id).Object("inputRequests"); len(open) != 1 || !open.Has("second") {
			t.Error(string(open.JSON()))
		}
		c.Must(mcp.MethodTasksUpdate, `{"taskId":%q,"inputResponses":{"second":%s}}`, id, answer)
		if text, _, err := c.Result(id); !strings.Contains(text, "Ada") || err != nil {
			t.Error(text, err)
		}
	})

	t.Run("ReclaimsExpiredEntriesBeforeApplyingTheLimit", func(t *testing.T) {
		_, _, c := plainBehind(t, Options{Max: 1, TTL: 50 * time.Millisecond}, mcp.Legacy)
		first := c.Must(mcp.MethodToolsCall, `{"name":"quick","arguments":{},"task":{}}`).Object("task").Text("taskId")
		gatewaytest.Eventually(t, "the task is not forgotten", func() bool {
			_, err := c.Try(mcp.MethodTasksGet, fmt.Sprintf(`{"taskId":%q}`, first))
			return err != nil
		})
		c.Task("quick", "{}")
	})

	t.Run("RejectsUnboundedOrNonPositiveOptions", func(t *testing.T) { refusesOptions(t) })

	t.Run("EnforcesCurrentProtocolAndStatelessHttp", func(t *testing.T) { // for modern clients; legacy ones are served as well
		_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{})
		g := startTaskGateway(t, Options{}, tasks)
		c := g.client(mcp.Modern, "tasks")
		if c.State().SessionID != "" {
			t.Error("a modern client got a session")
		}
		id := c.Task("compute", `{"ms":60000}`)
		c.Refused(mcp.CodeMethodNotFound, mcp.MethodTasksList, `{}`)
		c.Refused(mcp.CodeMethodNotFound, mcp.MethodTasksResult, `{"taskId":%q}`, id)
		if got := g.client(mcp.Modern, "tasks").Get(id).Text("taskId"); got != id { // whoever has the token
			t.Error(got)
		}
		g.client(mcp.Legacy, "tasks").Refused(mcp.CodeInvalidParams, mcp.MethodTasksGet, `{"taskId":%q}`, id)
		g.client(mcp.Legacy, "tasks").Refused(mcp.CodeMethodNotFound, mcp.MethodTasksUpdate, `{"taskId":%q,"inputResponses":{}}`, id)
		without := g.clientWith("tasks", mcp.ClientOptions{Protocol: mcp.Modern})
		for _, call := range [][2]string{
			{mcp.MethodTasksGet, `{"taskId":"` + id + `"}`}, {mcp.MethodTasksCancel, `{"taskId":"` + id + `"}`}, {mcp.MethodTasksUpdate, `{"taskId":"` + id + `","inputResponses":{}}`},
			{mcp.MethodListen, `{"notifications":{"taskIds":["` + id + `"]}}`},
		} {
			if e := without.Refused(mcp.CodeMissingCapability, call[0], "%s", call[1]); e.Data == nil {
				t.Errorf("%s: no data", call[0])
			}
		}
	})

	t.Run("subscriptions", func(t *testing.T) {
		_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{})
		g := startTaskGateway(t, Options{}, tasks)
		c := g.client(mcp.Modern, "tasks")
		done, running := c.Task("compute", `{"ms":0,"text":"x"}`), c.Task("compute", `{"ms":400,"text":"y"}`)
		c.Until(done, "completed")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := c.Call(ctx, mcp.Call{
				Method: mcp.MethodListen, Notified: c.Notified,
				Params: json.RawMessage(fmt.Sprintf(`{"notifications":{"taskIds":[%q,%q,"unknown"],"toolsListChanged":true}}`, done, running)),
			})
			ended <- err
		}()
		first := gatewaytest.WaitFor(t, c.Notes)
		if first.Text("method") != mcp.NoteAcknowledged {
			t.Errorf("not acknowledged first: %s", first.JSON())
		}
		if got := string(first.Object("notifications").Get("taskIds")); got != fmt.Sprintf("[%q,%q]", done, running) {
			t.Error(got)
		}
		caughtUp := c.Note(done, "completed")
		if !caughtUp.Has("result") || !caughtUp.Object("_meta").Has(mcp.MetaSubscriptionID) {
			t.Error(string(caughtUp.JSON()))
		}
		if n := c.Note(running, "completed"); !strings.Contains(string(n.Get("result")), `"y"`) {
			t.Error(string(n.JSON()))
		}
		cancel()
		if err := gatewaytest.WaitFor(t, ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		gatewaytest.Eventually(t, "the subscription is kept", func() bool {
			s := g.tasks.subscriptions
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.listeners) == 0
		})
		if len(c.Notes) > 0 {
			t.Errorf("an end was told again: %s", (<-c.Notes).JSON())
		}
	})
}
