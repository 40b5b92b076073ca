package tasks

import (
	"context"
	"encoding/json"
	"errors"
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

	taskserver "github.com/evalrun/evalrun/fixtures/mcp/tasks/server"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Tasks and sessions survive the gateway, with both eras on both sides: the client goes on as if
// nothing had been.
func TestTasksSurviveARestart(t *testing.T) {
	testenv.NeedSlow(t)
	for _, upstream := range []taskserver.Era{taskserver.Legacy, taskserver.Modern} {
		for _, downstream := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			t.Run(string(upstream)+" to "+string(downstream), func(t *testing.T) {
				t.Parallel()
				f, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: upstream})
				g := startTaskGateway(t, Options{}, s)
				c := g.client(downstream, "tasks")
				done := c.Task("compute", `{"ms":10,"text":"before"}`)
				c.Until(done, "completed")
				during, after, asking := c.Task("compute", `{"ms":50,"text":"during"}`), c.Task("compute", `{"ms":1500,"text":"after"}`), c.Task("confirm_delete", `{"filename":"f"}`)
				// A legacy client with a modern server has its task before that has one; what the
				// gateway does not know of it cannot survive.
				gatewaytest.Eventually(t, "the server does not work on all", func() bool {
					n := 0
					open, err := g.store.OpenMCPTasks(t.Context(), g.tasks.access)
					for _, rec := range open {
						if rec.Work != nil {
							n++
						}
					}
					return err == nil && n == len(open)
				})
				c.Until(asking, "input_required")
				g.restart(func() {
					passed := time.NewTimer(200 * time.Millisecond) // the server is done with one of them
					<-passed.C
				})
				for id, want := range map[string]string{done: "before", during: "during", after: "after", asking: "f was deleted"} {
					if text, isError, err := c.Result(id); text != want || isError || err != nil {
						t.Errorf("%s: %q %v %v", want, text, isError, err)
					}
				}
				if text, _, err := c.Result(c.Task("compute", `{"ms":10,"text":"again"}`)); text != "again" || err != nil {
					t.Error(text, err)
				}
				if n := f.Asked("tools/call", "compute"); n != 4 {
					t.Errorf("%d calls", n)
				}
				if downstream == mcp.Legacy {
					c.Note(after, "completed")
				}
			})
		}
	}
}

// A client that waits for the result before the gateway has looked at the task again is asked all
// the same.
func TestQuestionsSurviveARestart(t *testing.T) {
	var look sync.RWMutex // held for what must not be looked at
	g := startTaskGateway(t, Options{}, startHandler(t, &askingTask{look: func() { look.RLock(); defer look.RUnlock() }}, mcp.Modern))
	c := g.client(mcp.Legacy, "scripted")
	id := c.Task("tool", "{}")
	c.Until(id, "input_required")
	g.restart(look.Lock)
	task, _, err := g.tasks.find(t.Context(), c.State().SessionID, id)
	if err != nil {
		t.Fatal(err)
	}
	_, changed := task.record() // what tasks/result waits for
	look.Unlock()
	gatewaytest.WaitFor(t, changed)
	if text, _, err := c.Result(id); text != "done" || err != nil {
		t.Error(text, err)
	}
}

func TestTasksThatDoNotSurviveARestart(t *testing.T) {
	p, plain := gatewaytest.StartPlainServer(t)
	g := startTaskGateway(t, Options{Grace: time.Millisecond}, plain, gatewaytest.OverPipes(taskserver.Options{Era: taskserver.Legacy}))
	local, stdio := g.client(mcp.Legacy, "plain"), g.client(mcp.Legacy, "tasks")
	modern := g.client(mcp.Modern, "plain")
	ids := map[string]*gatewaytest.TaskClient{local.Task("slow", "{}"): local, stdio.Task("compute", `{"ms":60000}`): stdio, modern.Task("slow", "{}"): modern}
	gatewaytest.WaitFor(t, p.Began)
	gatewaytest.WaitFor(t, p.Began)
	g.restart(nil)
	for id, c := range ids {
		if _, _, err := c.Result(id); err == nil || !strings.Contains(err.Error(), "the gateway was started again") {
			t.Error(err)
		}
		if c.Era() == mcp.Legacy {
			c.Note(id, "failed")
		}
	}
	t.Run("without their server", func(t *testing.T) {
		_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Modern})
		g := startTaskGateway(t, Options{}, s, plain)
		id := g.client(mcp.Modern, "tasks").Task("compute", `{"ms":60000}`)
		g.restart(func() { g.options.Servers = g.options.Servers[1:] })
		c := g.client(mcp.Modern, "plain")
		if _, _, err := c.Result(id); err == nil || !strings.Contains(err.Error(), `without the MCP server "tasks"`) {
			t.Error(err)
		}
	})
}

// A session is that of a token and an endpoint, until it is ended.
func TestSessionsSurviveARestart(t *testing.T) {
	_, one := gatewaytest.StartPlainServer(t)
	two := one
	two.Name = "two"
	g := startTaskGateway(t, Options{}, one, two)
	c := g.client(mcp.Legacy, "plain")
	session := c.State()
	if err := c.Detach(); err != nil {
		t.Fatal(err)
	}
	g.restart(nil)
	again := g.clientWith("plain", mcp.ClientOptions{Session: &session})
	again.Must(mcp.MethodToolsCall, `{"name":"quick","arguments":{}}`)
	elsewhere := g.clientWith("two", mcp.ClientOptions{Session: &session})
	if _, err := elsewhere.Try(mcp.MethodToolsList, "{}"); err == nil || !strings.Contains(err.Error(), "session") {
		t.Error(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	g.restart(nil)
	late := g.clientWith("plain", mcp.ClientOptions{Session: &session})
	if _, err := late.Try(mcp.MethodToolsList, "{}"); err == nil || !strings.Contains(err.Error(), "session") {
		t.Error(err)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	testenv.NeedSlow(t)
	p, s := gatewaytest.StartPlainServer(t)
	g := startTaskGateway(t, Options{SessionIdle: time.Second, Cleanup: 20 * time.Millisecond}, s)
	c := g.clientWith("plain", mcp.ClientOptions{Protocol: mcp.Legacy, NoStream: true})
	c.Task("slow", "{}")
	gatewaytest.WaitFor(t, p.Began)
	_ = gatewaytest.WaitFor(t, p.Ended) // the session has ended, and its task with it
	gatewaytest.Eventually(t, "the session is kept", func() bool {
		_, err := g.store.MCPSession(t.Context(), g.tasks.access, "plain", c.State().SessionID)
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
		g := startTaskGateway(t, Options{}, gateway.Server{Name: "tasks", Target: mcp.Target{URL: h.URL}})
		c := g.client(era, "tasks")
		done, running := c.Task("compute", `{"ms":10,"text":"kept"}`), c.Task("compute", `{"ms":60000}`)
		c.Until(done, "completed")
		g.restart(func() { g.options.Servers[0].Target.URL = "http://127.0.0.1:1/" })
		if text, _, err := c.Result(done); text != "kept" || err != nil {
			t.Error(text, err)
		}
		if got := c.Get(running).Text("status"); got != "working" {
			t.Error(got)
		}
		c.Must(mcp.MethodTasksCancel, `{"taskId":%q}`, running)
		c.Until(running, "cancelled")
	}
}

// fullStore is a store that cannot store how a task ends.
type fullStore struct {
	taskStore
	tried    chan string
	repaired atomic.Bool
}

func (f *fullStore) ChangeMCPTask(ctx context.Context, t store.MCPTask) (store.MCPTask, bool, error) {
	if t.Ended() && !f.repaired.Load() {
		select {
		case f.tried <- t.ID:
		default:
		}
		return t, false, errors.New("database or disk is full")
	}
	return f.taskStore.ChangeMCPTask(ctx, t)
}

// What cannot be stored does not keep the gateway open: the next one goes on with it.
func TestGatewayEndsThoughTheStoreFails(t *testing.T) {
	_, s := gatewaytest.StartTaskFixture(t, taskserver.Options{Era: taskserver.Legacy})
	g := startTaskGateway(t, Options{}, s)
	full := &fullStore{taskStore: g.store, tried: make(chan string, 1)}
	defer full.repaired.Store(true)
	g.tasks.o.Store = full
	c := g.client(mcp.Legacy, "tasks")
	id := c.Task("compute", `{"ms":10,"text":"kept"}`)
	gatewaytest.WaitFor(t, full.tried)
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		g.restart(nil)
	}()
	gatewaytest.WaitFor(t, restarted)
	if text, _, err := c.Result(id); text != "kept" || err != nil {
		t.Error(text, err)
	}
}

// forgetful is a legacy server that loses its sessions. Calls in a session that it does not know
// are told so together.
type forgetful struct {
	lost, began  chan struct{}
	refuse, goOn chan struct{}

	mu       sync.Mutex
	sessions map[string]bool
	last     int
}

func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.sessions)
}

func (f *forgetful) known(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sessions[id]
}

func (f *forgetful) begin() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	id := fmt.Sprint("session", f.last)
	f.sessions[id] = true
	return id
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	var m struct {
		ID     json.RawMessage
		Method string
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := `{}`
	switch {
	case m.Method == mcp.MethodInitialize:
		w.Header().Set("Mcp-Session-Id", f.begin())
		result = `{"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"},"capabilities":{"tools":{}}}`
	case !f.known(r.Header.Get("Mcp-Session-Id")):
		f.lost <- struct{}{}
		<-f.refuse
		w.WriteHeader(http.StatusNotFound)
		return
	case m.Method == mcp.MethodToolsList:
		result = `{"tools":[{"name":"tool","inputSchema":{"type":"object"}}]}`
	case m.Method == mcp.MethodToolsCall:
		f.began <- struct{}{}
		select {
		case <-f.goOn:
		case <-r.Context().Done():
			return
		}
		result = `{"content":[{"type":"text","text":"done"}]}`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result) // to a client that has gone
}

// Of several calls that find their session lost the first begins a new one, for all of them.
func TestCallsThatFindTheirSessionLost(t *testing.T) {
	f := &forgetful{lost: make(chan struct{}, 10), began: make(chan struct{}, 10), refuse: make(chan struct{}), goOn: make(chan struct{}), sessions: map[string]bool{}}
	h := httptest.NewServer(f)
	t.Cleanup(h.Close)
	g := startTaskGateway(t, Options{}, gateway.Server{Name: "forgetful", Protocol: mcp.Legacy, Target: mcp.Target{URL: h.URL}})
	c := g.client(mcp.Legacy, "forgetful")
	c.Must(mcp.MethodToolsList, "{}")
	f.forget()
	ids := []string{c.Task("tool", `{"n":1}`), c.Task("tool", `{"n":2}`)}
	for range ids {
		gatewaytest.WaitFor(t, f.lost)
	}
	close(f.refuse)
	for range ids {
		gatewaytest.WaitFor(t, f.began)
	}
	close(f.goOn)
	for _, id := range ids {
		if text, _, err := c.Result(id); text != "done" || err != nil {
			t.Error(text, err)
		}
	}
	if f.last != 2 {
		t.Errorf("%d sessions", f.last)
	}
}
