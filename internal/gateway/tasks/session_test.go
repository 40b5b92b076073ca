package tasks

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/gateway/gatewaytest"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// stepwise is a server whose tasks, which are named by their calls, are done when the test says so.
type stepwise struct{ done sync.Map }

func (s *stepwise) answer(method string, params jsonobj.Object) (string, *mcp.Error) {
	id := params.Text("taskId")
	if method == mcp.MethodToolsCall {
		id = params.Object("arguments").Text("id")
	}
	status := "working"
	if _, done := s.done.Load(id); done {
		status = "completed"
	}
	task := fmt.Sprintf(`{"taskId":%q,"status":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":60000,"pollInterval":50}`, id, status)
	switch method {
	case mcp.MethodToolsCall:
		return `{"task":` + task + `}`, nil
	case mcp.MethodTasksResult:
		return string(suspend.TextResult("done", false)), nil
	}
	return task, nil
}

// A client that does nothing but listen goes on with its session, too.
func TestClientThatOnlyListensAfterARestart(t *testing.T) {
	server := &stepwise{}
	s := startScripted(t, server.answer)
	var passed atomic.Int64
	g := startTaskGateway(t, Options{SessionIdle: time.Minute}, s)
	g.restart(func() { g.options.Now = func() time.Time { return time.Now().Add(time.Duration(passed.Load())) } })
	c := g.client(mcp.Legacy, "scripted")
	early, late := c.Task("tool", `{"id":"early"}`), c.Task("tool", `{"id":"late"}`)
	g.restart(func() { server.done.Store("early", true) })
	c.Note(early, "completed")
	server.done.Store("late", true)
	c.Note(late, "completed")
	passed.Store(int64(2 * time.Minute))
	g.tasks.cleanUp()
	if _, err := g.store.MCPSession(t.Context(), g.tasks.access, "scripted", c.State().SessionID); err != nil {
		t.Errorf("a session with an open stream is taken for idle: %v", err)
	}
}

// A session that its client has ended stays ended, also while its tasks are being cancelled.
func TestEndedSessionStaysEnded(t *testing.T) {
	server := &stepwise{}
	cancelling, goOn := make(chan string, 1), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	s := startScripted(t, func(method string, params jsonobj.Object) (string, *mcp.Error) {
		if method == mcp.MethodTasksCancel {
			cancelling <- params.Text("taskId")
			<-goOn
		}
		return server.answer(method, params)
	})
	g := startTaskGateway(t, Options{}, s)
	c := g.client(mcp.Legacy, "scripted")
	c.Task("tool", `{"id":"1"}`)
	session := c.State()
	if err := c.Close(); err != nil { // DELETE
		t.Fatal(err)
	}
	gatewaytest.WaitFor(t, cancelling)
	again := g.clientWith("scripted", mcp.ClientOptions{Session: &session, NoStream: true})
	isGone := func() {
		t.Helper()
		if o, err := again.Try(mcp.MethodToolsList, "{}"); err == nil || !strings.Contains(err.Error(), "session") {
			t.Errorf("%s, %v", o.JSON(), err)
		}
	}
	isGone()
	release()
	gatewaytest.Eventually(t, "the session is still being ended", func() bool { return g.connections("scripted") == 0 })
	isGone()
}

// connections is how many connections a server has, or will have.
func (g *taskGateway) connections(server string) int {
	return g.access.Sessions()[server]
}

// However many requests find a session of an earlier process, it gets one connection to each
// server, which ends with it.
func TestRestoredSessionHasOneConnection(t *testing.T) {
	var begun, ended atomic.Int64
	x := mcp.NewHTTPHandler(scripted((&stepwise{}).answer), mcp.ServerOptions{})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodDelete:
			ended.Add(1)
		case r.Header.Get("Mcp-Session-Id") == "":
			begun.Add(1)
		}
		x.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { x.Close(); h.Close() })
	g := startTaskGateway(t, Options{}, gateway.Server{Name: "scripted", Protocol: mcp.Legacy, Target: mcp.Target{URL: h.URL}})
	g.restart(func() { g.all = "all" })
	for _, endpoint := range []string{"scripted", "all"} {
		c := g.client(mcp.Legacy, endpoint)
		session := c.State()
		if err := c.Detach(); err != nil {
			t.Fatal(err)
		}
		g.restart(nil)
		begun.Store(0)
		ended.Store(0)
		again := g.clientWith(endpoint, mcp.ClientOptions{Session: &session, NoStream: true})
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if _, err := again.Try(mcp.MethodToolsList, "{}"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		gatewaytest.Eventually(t, "a connection is left", func() bool { return g.connections("scripted") == 0 && ended.Load() > 0 })
		if begun.Load() != 1 || ended.Load() != 1 {
			t.Errorf("%s: %d connections were made and %d ended", endpoint, begun.Load(), ended.Load())
		}
	}
}
