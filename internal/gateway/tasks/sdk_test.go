package tasks

import (
	"slices"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/mcp"
)

// tsPoll is how often the SDK's clients ask.
const tsPoll = 20 * time.Millisecond

// The integration tests of MCPGateway for tasks of 2025-11-25, by their names, with the official
// SDK on both sides.
func TestTasksOf2025BetweenSDKs(t *testing.T) {
	t.Parallel()
	server := startTSServer(t)
	clients := startTSPeer(t, "client.mjs")
	start := func(t *testing.T, o Options, endpoint string) (*taskGateway, *tsClient) {
		t.Helper()
		o.Poll, o.Widen = tsPoll, true // the SDK for TypeScript forbids tasks for every tool that says nothing
		g := startTaskGateway(t, o, server.tasks(), server.plain())
		return g, connectTS(t, clients, g, endpoint)
	}

	t.Run("ListToolsAsync_ExportsTaskSupportForUpstreamAndLocalTools", func(t *testing.T) {
		g, c := start(t, Options{}, "tasks")
		local := connectTS(t, clients, g, "plain")
		if got := c.tools(); got["required"] != "required" || got["optional"] != "optional" || got["echo"] != "forbidden" {
			t.Error(got)
		}
		if got := local.tools(); got["slow"] != "optional" {
			t.Error(got)
		}
	})

	t.Run("CallToolAsTaskAsync_ProxiesUpstreamRequiredToolAndSupportsListGetAndResult", func(t *testing.T) {
		_, c := start(t, Options{}, "tasks")
		id := c.task("required", "required:alpha")
		if !c.lists(id) {
			t.Error("it is not in the list")
		}
		if got := c.status(id); got != "working" {
			t.Error(got)
		}
		server.release(t, "required:alpha")
		c.content(c.begin("follow", args{"taskId": id}), "required:alpha", false)
		c.content(c.begin("result", args{"taskId": id}), "required:alpha", false)
		if got := c.status(id); got != "completed" {
			t.Error(got)
		}
		server.once(t, "required:alpha", true)
		if theirs := server.seen(t, "required:alpha").Tasks; slices.Contains(theirs, id) || len(theirs) != 1 {
			t.Errorf("the ids are the server's: %v", theirs)
		}
	})

	t.Run("CallToolAsync_WhenToolRequiresTask", func(t *testing.T) { // gives the final result, as in 4.3, and not the error that it did then
		_, c := start(t, Options{}, "tasks")
		server.release(t, "waited")
		c.content(c.begin("call", args{"name": "required", "text": "waited"}), "waited", false)
		server.once(t, "waited", true)

		// A client of the SDK that knows what the tool needs does not make the call: it is told to
		// use the other method.
		c.tools()
		c.refused(c.begin("call", args{"name": "required", "text": "not sent"}), mcp.CodeInvalidRequest, "requires task-based execution")
		if call := server.seen(t, "not sent"); len(call.Params) > 0 {
			t.Errorf("%+v", call)
		}
	})

	t.Run("TaskStatusNotification_IsForwardedForUpstreamTask", func(t *testing.T) {
		_, c := start(t, Options{}, "tasks")
		id := c.task("required", "told")
		server.release(t, "told")
		if n := c.note(id, "completed"); n.TTL == nil {
			t.Errorf("%+v", n)
		}
		for _, theirs := range server.seen(t, "told").Tasks {
			if n := ended[[]tsTask](t, c.begin("notes", args{"taskId": theirs})); len(n) > 0 {
				t.Errorf("with the server's id: %+v", n)
			}
		}
	})

	t.Run("TaskStatusNotification_CatchesUpWhenUpstreamTaskCompletesBeforeSubscription", func(t *testing.T) {
		_, c := start(t, Options{}, "tasks")
		id := c.task("quick", "done before")
		c.note(id, "completed")
		c.note(c.task("quick", "done after"), "completed") // and so has come what was to come of the first
		if n := ended[[]tsTask](t, c.begin("notes", args{"taskId": id})); len(n) != 1 {
			t.Errorf("%+v", n)
		}
		c.content(c.begin("result", args{"taskId": id}), "done before", false)
		server.once(t, "done before", true)
	})

	t.Run("GetTaskResultAsync_PropagatesUpstreamResultFailures", func(t *testing.T) {
		_, c := start(t, Options{}, "tasks")
		id := c.task("broken", "zeta")
		e := c.refused(c.begin("result", args{"taskId": id}), -32050, "upstream result failure")
		if string(e.Data) != `{"text":"zeta"}` {
			t.Errorf("%s", e.Data)
		}
		if got := c.status(id); got != "failed" {
			t.Error(got)
		}
	})

	t.Run("CallToolAsTaskAsync_CancelsGatewayManagedLocalTask", func(t *testing.T) {
		_, c := start(t, Options{}, "plain")
		id := c.task("slow", "cancelled:local")
		server.until(t, "cancelled:local", "began")
		if got := c.cancel(id); got != "cancelled" {
			t.Error(got)
		}
		if got := c.status(id); got != "cancelled" {
			t.Error(got)
		}
		server.until(t, "cancelled:local", "cancelled")
		c.refused(c.begin("cancel", args{"taskId": id}), mcp.CodeInvalidParams, "cancelled")
		c.note(id, "cancelled")
	})

	t.Run("CallToolAsTaskAsync_CancelsUpstreamProxyTask", func(t *testing.T) {
		_, c := start(t, Options{}, "tasks")
		id := c.task("required", "cancelled:proxy")
		if got := c.cancel(id); got != "cancelled" {
			t.Error(got)
		}
		if got := c.status(id); got != "cancelled" {
			t.Error(got)
		}
		server.until(t, "cancelled:proxy", "cancelled")
		c.refused(c.begin("follow", args{"taskId": id}), mcp.CodeInternal, "was cancelled")
		c.note(id, "cancelled")
	})

	t.Run("CallToolAsTaskAsync_WaitsForGatewayManagedLocalTaskResult", func(t *testing.T) {
		_, c := start(t, Options{}, "plain")
		id := c.task("slow", "local:delta")
		result := c.begin("result", args{"taskId": id})
		server.until(t, "local:delta", "began")
		if got := c.status(id); got != "working" {
			t.Error(got)
		}
		select {
		case a := <-result:
			t.Fatalf("tasks/result has not waited: %+v", a)
		default:
		}
		server.release(t, "local:delta")
		c.content(result, "local:delta", false)
		if got := c.status(id); got != "completed" {
			t.Error(got)
		}
		c.note(id, "completed")
		server.once(t, "local:delta", false)
	})

	t.Run("CallToolAsTaskAsync_StoresFailedResultForGatewayManagedLocalTask", func(t *testing.T) {
		_, c := start(t, Options{}, "plain")
		id := c.task("failing", "boom:epsilon")
		c.content(c.begin("follow", args{"taskId": id}), "boom:epsilon", true)
		if got := c.status(id); got != "completed" {
			t.Error(got)
		}
	})

	t.Run("CompletedUpstreamTaskReleasesIsolatedBindingAndKeepsResult", func(t *testing.T) {
		g, c := start(t, Options{}, "tasks")
		id := c.task("required", "kept")
		server.release(t, "kept")
		c.note(id, "completed")
		if n := g.active(); n != 0 {
			t.Errorf("%d tasks are looked after", n)
		}
		for range 2 {
			c.content(c.begin("result", args{"taskId": id}), "kept", false)
		}
	})

	t.Run("CancelledLocalTaskReleasesIsolatedBinding", func(t *testing.T) {
		g, c := start(t, Options{}, "plain")
		c.cancel(c.task("slow", "dropped"))
		if n := g.active(); n != 0 {
			t.Errorf("%d tasks are looked after", n)
		}
	})

	t.Run("RemoveSessionAsync_CancelsActiveLocalTaskAndReleasesBinding", func(t *testing.T) {
		g, c := start(t, Options{}, "plain")
		id := c.task("slow", "left")
		server.until(t, "left", "began")
		c.end()
		server.until(t, "left", "cancelled")
		gatewaytest.Eventually(t, "the task is still looked after", func() bool { return g.active() == 0 })
		other := connectTS(t, clients, g, "plain")
		other.refused(other.begin("get", args{"taskId": id}), mcp.CodeInvalidParams, "not found")
	})

	t.Run("GetTaskResultAsync_ThrowsImmediatelyWhenTerminalTaskHasNoStoredResult", func(t *testing.T) {
		_, c := start(t, Options{}, "plain")
		id := c.task("slow", "nothing stored")
		c.cancel(id)
		c.refused(c.begin("result", args{"taskId": id}), mcp.CodeInternal, "has no result")
	})

	t.Run("CreateTaskAsync_UsesConfiguredTaskStoreMaximumTaskLimit", func(t *testing.T) {
		g, one := start(t, Options{Max: 3, MaxPerSession: 2}, "tasks")
		two := connectTS(t, clients, g, "tasks")
		one.task("required", "limit:1")
		one.task("required", "limit:2")
		one.refused(one.begin("task", args{"name": "required", "text": "limit:3"}), mcp.CodeInternal, "the session has 2")
		two.task("required", "limit:4")
		two.refused(two.begin("task", args{"name": "required", "text": "limit:5"}), mcp.CodeInternal, "the gateway has 3")
		for _, text := range []string{"limit:3", "limit:5"} {
			if call := server.seen(t, text); len(call.Params) > 0 {
				t.Errorf("a call that was refused was made: %+v", call)
			}
		}
	})
}

// The checklist for the task facade, row by row, with the official SDK on both sides.
func TestTaskSurfaceChecklistBetweenSDKs(t *testing.T) {
	t.Parallel()
	server := startTSServer(t)
	clients := startTSPeer(t, "client.mjs")
	g := startTaskGateway(t, Options{Poll: tsPoll, Widen: true}, server.tasks(), server.plain())
	connect := func(t *testing.T, endpoint string) *tsClient {
		t.Helper()
		return connectTS(t, clients, g, endpoint)
	}

	t.Run("advertise task capabilities", func(t *testing.T) {
		for _, endpoint := range []string{"tasks", "plain"} {
			if got := string(connect(t, endpoint).capabilities.Get("tasks")); got != `{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}` {
				t.Errorf("%s: %s", endpoint, got)
			}
		}
	})

	t.Run("every exported tool has execution.taskSupport", func(t *testing.T) {
		for _, endpoint := range []string{"tasks", "plain"} {
			for name, support := range connect(t, endpoint).tools() {
				if support == "" || endpoint == "plain" && support != "optional" {
					t.Errorf("%s: %q", name, support)
				}
			}
		}
	})

	t.Run("required upstream tools are never downgraded", func(t *testing.T) {
		c := connect(t, "tasks") // it does not list the tools, and so does not know
		server.release(t, "plain call")
		c.content(c.begin("call", args{"name": "required", "text": "plain call"}), "plain call", false)
		server.once(t, "plain call", true)
	})

	t.Run("tools/call with a task is a real task, proxied and not executed again", func(t *testing.T) {
		c := connect(t, "tasks")
		id := c.task("optional", "once")
		server.release(t, "once")
		c.content(c.begin("follow", args{"taskId": id}), "once", false)
		server.once(t, "once", true)
		if call := server.seen(t, "once"); len(call.Tasks) != 1 || call.Tasks[0] == id {
			t.Errorf("%s of %v", id, call.Tasks)
		}
	})

	t.Run("a task store that is bounded", func(t *testing.T) {
		short := startTaskGateway(t, Options{Poll: tsPoll, Widen: true, MaxTTL: 50 * time.Millisecond}, server.plain())
		c := connectTS(t, clients, short, "plain")
		id := c.task("slow", "forgotten") // for 60 s, if it were for the client
		gatewaytest.Eventually(t, "the task is not forgotten", func() bool { return gatewaytest.WaitFor(t, c.begin("get", args{"taskId": id})).Error != nil })
		c.refused(c.begin("get", args{"taskId": id}), mcp.CodeInvalidParams, "not found")
	})

	t.Run("the end of a session cancels what runs before it is waited for", func(t *testing.T) {
		c := connect(t, "plain")
		result := c.begin("result", args{"taskId": c.task("slow", "ended")})
		server.until(t, "ended", "began")
		c.end()
		if a := gatewaytest.WaitFor(t, result); a.Error == nil {
			t.Errorf("tasks/result has got a result: %s", a.Result)
		}
		server.until(t, "ended", "cancelled")
	})

	t.Run("notifications/tasks/status with the gateway's task id", func(t *testing.T) {
		c := connect(t, "tasks")
		if n := c.note(c.task("quick", "noted"), "completed"); n.TTL == nil || slices.Contains(server.seen(t, "noted").Tasks, n.TaskID) {
			t.Errorf("%+v", n)
		}
	})

	t.Run("tasks/list, get, result and cancel work, and errors propagate", func(t *testing.T) {
		c := connect(t, "tasks")
		id := c.task("failing", "failed")
		c.content(c.begin("result", args{"taskId": id}), "failed", true)
		if got := c.status(id); got != "failed" {
			t.Error(got)
		}
		c.refused(c.begin("follow", args{"taskId": id}), mcp.CodeInternal, "failed") // what the SDK makes of that status
		c.refused(c.begin("cancel", args{"taskId": id}), mcp.CodeInvalidParams, "it is failed")
		c.refused(c.begin("result", args{"taskId": "unknown"}), mcp.CodeInvalidParams, "not found")
		if !c.lists(id) {
			t.Error("it is not in the list")
		}
	})

	t.Run("what a task wants to know is asked while its result is waited for", func(t *testing.T) {
		c := connect(t, "tasks")
		c.content(c.begin("follow", args{"taskId": c.task("asking", "who?")}), "accept: Ada", false)
	})

	t.Run("tasks of others", func(t *testing.T) {
		id, other := connect(t, "tasks").task("required", "mine"), connect(t, "tasks")
		for _, do := range []string{"get", "result", "cancel"} {
			other.refused(other.begin(do, args{"taskId": id}), mcp.CodeInvalidParams, "not found")
		}
		if other.lists(id) {
			t.Error("it is in their list")
		}
	})
}
