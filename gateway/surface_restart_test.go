package gateway

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/mcp"
)

// Tasks and sessions survive the gateway, with both eras on both sides: the client goes on as if nothing had been.
func TestTasksSurviveARestart(t *testing.T) {
	for _, upstream := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		for _, downstream := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			t.Run(string(upstream)+" to "+string(downstream), func(t *testing.T) {
				t.Parallel()
				f, s := startTaskFixture(t, taskserver.Options{Era: upstream})
				g := startTaskGateway(t, TaskOptions{}, s)
				c := g.client(downstream, "tasks")
				done := c.task("compute", `{"ms":10,"text":"before"}`)
				c.until(done, "completed")
				during, after, asking := c.task("compute", `{"ms":50,"text":"during"}`), c.task("compute", `{"ms":1500,"text":"after"}`), c.task("confirm_delete", `{"filename":"f"}`)
				// A legacy client with a modern server has its task before that has one; what the gateway does not know of it cannot survive.
				eventually(t, "the server does not work on all", func() bool {
					n := 0
					open, err := g.store.OpenMCPTasks(t.Context(), g.access.tasks.access)
					for _, rec := range open {
						if rec.Work != nil {
							n++
						}
					}
					return err == nil && n == len(open)
				})
				c.until(asking, "input_required")
				g.restart(func() {
					passed := time.NewTimer(200 * time.Millisecond) // the server is done with one of them
					<-passed.C
				})
				for id, want := range map[string]string{done: "before", during: "during", after: "after", asking: "f was deleted"} {
					if text, isError, err := c.result(id); text != want || isError || err != nil {
						t.Errorf("%s: %q %v %v", want, text, isError, err)
					}
				}
				if text, _, err := c.result(c.task("compute", `{"ms":10,"text":"again"}`)); text != "again" || err != nil {
					t.Error(text, err)
				}
				if n := f.asked("tools/call", "compute"); n != 4 {
					t.Errorf("%d calls", n)
				}
				if downstream == mcp.Legacy {
					c.note(after, "completed")
				}
			})
		}
	}
}

func TestTasksThatDoNotSurviveARestart(t *testing.T) {
	p, plain := startPlainServer(t)
	g := startTaskGateway(t, TaskOptions{Grace: time.Millisecond}, plain, overPipes(taskserver.Options{Era: taskserver.Legacy}))
	local, stdio := g.client(mcp.Legacy, "plain"), g.client(mcp.Legacy, "tasks")
	modern := g.client(mcp.Modern, "plain")
	ids := map[string]*taskClient{local.task("slow", "{}"): local, stdio.task("compute", `{"ms":60000}`): stdio, modern.task("slow", "{}"): modern}
	waitFor(t, p.began)
	waitFor(t, p.began)
	g.restart(nil)
	for id, c := range ids {
		if _, _, err := c.result(id); err == nil || !strings.Contains(err.Error(), "the gateway was started again") {
			t.Error(err)
		}
		if c.Era() == mcp.Legacy {
			c.note(id, "failed")
		}
	}
	t.Run("without their server", func(t *testing.T) {
		_, s := startTaskFixture(t, taskserver.Options{Era: taskserver.Modern})
		g := startTaskGateway(t, TaskOptions{}, s, plain)
		id := g.client(mcp.Modern, "tasks").task("compute", `{"ms":60000}`)
		g.restart(func() { g.options.Servers = g.options.Servers[1:] })
		c := g.client(mcp.Modern, "plain")
		if _, _, err := c.result(id); err == nil || !strings.Contains(err.Error(), `without the MCP server "tasks"`) {
			t.Error(err)
		}
	})
}

// A session is that of a token and an endpoint, until it is ended.
func TestSessionsSurviveARestart(t *testing.T) {
	_, one := startPlainServer(t)
	two := one
	two.Name = "two"
	g := startTaskGateway(t, TaskOptions{}, one, two)
	c := g.client(mcp.Legacy, "plain")
	session := c.State()
	if err := c.Abandon(); err != nil {
		t.Fatal(err)
	}
	g.restart(nil)
	again := g.clientWith("plain", mcp.ClientOptions{Session: &session})
	again.must(mcp.MethodToolsCall, `{"name":"quick","arguments":{}}`)
	elsewhere := g.clientWith("two", mcp.ClientOptions{Session: &session})
	if _, err := elsewhere.try(mcp.MethodToolsList, "{}"); err == nil || !strings.Contains(err.Error(), "session") {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	g.restart(nil)
	late := g.clientWith("plain", mcp.ClientOptions{Session: &session})
	if _, err := late.try(mcp.MethodToolsList, "{}"); err == nil || !strings.Contains(err.Error(), "session") {
		t.Error(err)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	p, s := startPlainServer(t)
	g := startTaskGateway(t, TaskOptions{SessionIdle: 100 * time.Millisecond, Cleanup: 20 * time.Millisecond}, s)
	c := g.clientWith("plain", mcp.ClientOptions{Protocol: mcp.Legacy, NoStream: true})
	c.task("slow", "{}")
	waitFor(t, p.began)
	_ = waitFor(t, p.ended) // the session has ended, and its task with it
	eventually(t, "the session is kept", func() bool {
		_, err := g.store.MCPSession(t.Context(), g.access.tasks.access, "plain", c.State().SessionID)
		return err != nil
	})
}

// What is in the store needs no server.
func TestTasksOfAServerThatIsDown(t *testing.T) {
	s, err := taskserver.New(taskserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := httptest.NewServer(s)
	defer h.Close()
	for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		g := startTaskGateway(t, TaskOptions{}, Server{Name: "tasks", Target: mcp.Target{URL: h.URL}})
		c := g.client(era, "tasks")
		done, running := c.task("compute", `{"ms":10,"text":"kept"}`), c.task("compute", `{"ms":60000}`)
		c.until(done, "completed")
		g.restart(func() { g.options.Servers[0].Target.URL = "http://127.0.0.1:1/" })
		if text, _, err := c.result(done); text != "kept" || err != nil {
			t.Error(text, err)
		}
		if got := c.get(running).Text("status"); got != "working" {
			t.Error(got)
		}
		c.must(mcp.MethodTasksCancel, `{"taskId":%q}`, running)
		c.until(running, "cancelled")
	}
}
