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
	"github.com/evalrun/evalrun/internal/testenv"
)

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
	testenv.NeedSlow(t)
	t.Parallel()
	t.Run("ListToolsAsync_AdvertisesCurrentTasksAndAppsExtensions", func(t *testing.T) {
		t.Parallel()
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
			t.Parallel()
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
			t.Parallel()
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
		t.Parallel()
		p, _, c := plainBehind(t, Options{Grace: time.Millisecond}, mcp.Modern)
		id := c.Task("slow", "{}")
		gatewaytest.WaitFor(t, p.Began)
		close(p.Proceed)
		if text, _, err := c.Result(id); text != "local:delta" || err != nil {
			t.Error(text, err)
		}
	})

	t.Run("what is quick is no task", func(t *testing.T) {
		t.Parallel()
		_, _, c := plainBehind(t, Options{Grace: gatewaytest.TaskLimit}, mcp.Modern)
		if o := c.Must(mcp.MethodToolsCall, `{"name":"quick","arguments":{}}`); o.Text("resultType") != "complete" || !o.Has("content") {
			t.Error(string(o.JSON()))
		}
	})

	t.Run("CancelTaskAsync_CancelsAGatewayManagedLocalTask", func(t *testing.T) {
		t.Parallel()
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
		t.Parallel()
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
		t.Parallel()
		_, tasks := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Modern})
		g := startTaskGateway(t, Options{}, tasks)
		id := g.client(mcp.Modern, "tasks").Task("compute", `{"ms":60000}`)
		if rec, err := g.store.MCPTask(t.Context(), g.tasks.access, "", id); err != nil || rec.Tool != "compute" || rec.Status != mcptask.Working {
			t.Error(rec, err)
		}
	})

	t.Run("EnforcesTheConfiguredGlobalLimit", func(t *testing.T) {
		t.Parallel()
		f, _, c := tasksBehind(t, taskserver.Modern, Options{Max: 1}, mcp.Modern)
		c.Task("compute", `{"ms":60000}`)
		c.Refused(mcp.CodeInternal, mcp.MethodToolsCall, `{"name":"compute","arguments":{"ms":60000}}`)
		gatewaytest.Eventually(t, "what was refused goes on at the server", func() bool { return f.Asked("tasks/cancel", "") == 1 })
	})

	t.Run("PreservesTheTypedJsonResult", func(t *testing.T) {
		t.Parallel()
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
		t.Parallel()
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
		t.Parallel()
		_, _, c := plainBehind(t, Options{Max: 1, TTL: 50 * time.Millisecond}, mcp.Legacy)
		first := c.Must(mcp.MethodToolsCall, `{"name":"quick","arguments":{},"task":{}}`).Object("task").Text("taskId")
		gatewaytest.Eventually(t, "the task is not forgotten", func() bool {
			_, err := c.Try(mcp.MethodTasksGet, fmt.Sprintf(`{"taskId":%q}`, first))
			return err != nil
		})
		c.Task("quick", "{}")
	})

	t.Run("RejectsUnboundedOrNonPositiveOptions", refusesOptions)

	t.Run("EnforcesCurrentProtocolAndStatelessHttp", func(t *testing.T) { // for modern clients; legacy ones are served as well
		t.Parallel()
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
		t.Parallel()
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
		ends := map[string]jsonobj.Object{} // in any order: the other may end before the client is told of the one that has
		for len(ends) < 2 {
			if n := gatewaytest.WaitFor(t, c.Notes); n.Text("status") == "completed" {
				id := n.Text("taskId")
				if ends[id] != nil {
					t.Errorf("an end was told again: %s", n.JSON())
				}
				ends[id] = n
			}
		}
		if caughtUp := ends[done]; !caughtUp.Has("result") || !caughtUp.Object("_meta").Has(mcp.MetaSubscriptionID) {
			t.Error(string(caughtUp.JSON()))
		}
		if n := ends[running]; !strings.Contains(string(n.Get("result")), `"y"`) {
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
