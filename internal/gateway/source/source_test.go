package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/waittest"
	"github.com/evalrun/evalrun/tasks"
)

// server is an MCP server of 2025-11-25 with one session, which answers each method with what it is
// given here, or with an error that says that it does not know the task.
type server struct {
	url     string
	mu      sync.Mutex
	answers map[string]string
	asked   []string
}

func startServer(t *testing.T, answers map[string]string) *server {
	t.Helper()
	s := &server{answers: answers}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.url = h.URL
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	o, _ := jsonobj.ParseObject(body)
	method := o.Text("method")
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPost {
		s.asked = append(s.asked, strings.TrimSpace(method+" "+o.Object("params").Text("taskId")))
	}
	switch answer, ok := s.answers[method]; {
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case o.Get("id") == nil:
		w.WriteHeader(http.StatusAccepted)
	case r.Header.Get("Authorization") != "Bearer secret":
		w.WriteHeader(http.StatusUnauthorized)
	default:
		w.Header().Set("Content-Type", "application/json")
		if method == mcp.MethodInitialize {
			w.Header().Set("Mcp-Session-Id", "session")
			answer, ok = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`, true
		}
		reply := `"error":{"code":-32602,"message":"no such task"}`
		if ok {
			reply = `"result":` + answer
		}
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, o.Get("id"), reply)
	}
}

var now = time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)

// newSource is a source for which the record of call "c1" holds work.
func newSource(work *wait.Work) wait.Source { return newSourceOver(http.DefaultClient, work) }

func newSourceOver(client *http.Client, work *wait.Work) wait.Source {
	return newSourceAt(func() time.Time { return now }, client, work)
}

func newSourceAt(clock func() time.Time, client *http.Client, work *wait.Work) wait.Source {
	return New(Options{
		Work: func(_ context.Context, rolloutID, callID string) (*wait.Work, error) {
			if rolloutID != "r1" || callID != "c1" {
				return nil, errors.New("it was asked for another call")
			}
			raw, err := json.Marshal(work) // each time it is read anew
			if err != nil {
				return nil, err
			}
			return wait.DecodeWork(raw)
		},
		Lookup: func(name string) (string, bool) { return "secret", name == "TOKEN" },
		Client: client, Now: clock,
	})
}

func declared(url string) tasks.MCPServer {
	return tasks.MCPServer{Name: "s", Transport: tasks.TransportHTTP, URL: url, Headers: []tasks.KeyValue{{Name: "Authorization", Value: "Bearer ${TOKEN}"}}}
}

func jobOf(t *testing.T, s tasks.MCPServer, person bool) wait.Job {
	t.Helper()
	watch, err := Watch("c1", s, person)
	if err != nil {
		t.Fatal(err)
	}
	return wait.Job{RolloutID: "r1", Spec: wait.Spec{Type: wait.TypeMCPTask, Watch: watch}}
}

func taskWork() *wait.Work {
	session := mcp.SessionState{Era: mcp.Legacy, Version: "2025-11-25", SessionID: "session"}
	return &wait.Work{CallID: "c1", Server: "s", Tool: "run", Task: &wait.MCPTask{ID: "t1", Era: mcp.Legacy, Status: "working", Session: session}}
}

// What the source says of a task follows from what its server says.
func TestCheckOfATask(t *testing.T) {
	status := func(s string) string { return `{"taskId":"t1","status":"` + s + `","pollInterval":5000}` }
	for name, c := range map[string]struct {
		answers map[string]string
		person  bool
		done    bool
		payload string
		fault   string
	}{
		"works": {answers: map[string]string{"tasks/get": status("working")}},
		"ended": {
			answers: map[string]string{"tasks/get": status("completed"), "tasks/result": `{"content":[{"type":"text","text":"42"}]}`},
			done:    true, payload: `{"evalrun.dev/outcome":{"result":{"content":[{"type":"text","text":"42"}]}}}`,
		},
		"asks a person": {answers: map[string]string{"tasks/get": status("input_required")}, person: true, done: true, payload: `{"evalrun.dev/input":{}}`},
		"unknown":       {answers: map[string]string{}, done: true, fault: "does not know the task any more"},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, c.answers)
			got, err := newSource(taskWork()).Check(t.Context(), jobOf(t, declared(s.url), c.person))
			if err != nil {
				t.Fatal(err)
			}
			if got.Done != c.done || string(got.Payload) != c.payload {
				t.Errorf("got %t %s, want %t %s", got.Done, got.Payload, c.done, c.payload)
			}
			if (got.Fault != nil) != (c.fault != "") || got.Fault != nil && !strings.Contains(got.Fault.Message, c.fault) {
				t.Errorf("got the fault %v, want %q", got.Fault, c.fault)
			}
			if !c.done && (got.After < 5*time.Second || got.After > 7*time.Second) {
				t.Errorf("it is asked again after %v", got.After)
			}
			if !strings.Contains(strings.Join(s.asked, "\n"), "tasks/get t1") {
				t.Errorf("it was asked %q", s.asked)
			}
		})
	}
}

// A job of MCP Mesh is asked for, and cancelled, with the tools that its server has for that.
// Y4: a task that has ended without its result is given a minute, by this machine's clock, however wrong
// that of its server is.
func TestAResultThatComesLate(t *testing.T) {
	for name, updated := range map[string]time.Time{"slow": now.Add(-time.Hour), "fast": now.Add(time.Hour)} {
		t.Run("the server's clock is "+name, func(t *testing.T) {
			ended := `{"taskId":"t1","status":"completed","lastUpdatedAt":"` + updated.Format(time.RFC3339)
			s := startServer(t, map[string]string{"tasks/get": ended + `"}`})
			work, clock := taskWork(), now
			work.Task.Era, work.Task.Session = mcp.Modern, mcp.SessionState{Era: mcp.Modern, Version: "2026-07-28"}
			source := newSourceAt(func() time.Time { return clock }, http.DefaultClient, work)
			check := func(after time.Duration, want string) {
				t.Helper()
				clock = now.Add(after)
				j := jobOf(t, declared(s.url), false)
				j.TriggerID = "t"
				got, err := source.Check(t.Context(), j)
				if err != nil || got.Done != (want != "") || !strings.Contains(string(got.Payload), want) {
					t.Errorf("after %v: %+v %s, %v", after, got, got.Payload, err)
				}
			}
			check(0, "")
			check(59*time.Second, "")
			check(time.Minute, "its server gives nothing of it")
			check(time.Hour, "") // the wait of another one
			s.mu.Lock()
			s.answers["tasks/get"] = ended + `","result":{"content":[]}}`
			s.mu.Unlock()
			check(time.Hour+time.Second, `"content":[]`)
		})
	}
}

func TestCheckOfAMeshJob(t *testing.T) {
	work := &wait.Work{CallID: "c1", Server: "s", Tool: "run", MeshJob: &wait.MeshJob{ID: "j1"}}
	row := func(row string) map[string]string {
		return map[string]string{"tools/list": `{"tools":[]}`, "tools/call": `{"content":[],` + row + `}`}
	}
	for name, c := range map[string]struct {
		answer, payload string
		category        fault.Category
		failed          string
	}{
		"works": {answer: `"structuredContent":{"status":"working"}`},
		"ended": {answer: `"structuredContent":{"status":"completed","result":{"a":1}}`,
			payload: `{"evalrun.dev/outcome":{"result":{"content":[{"type":"text","text":"{\"a\":1}"}],"structuredContent":{"a":1}}}}`},
		"asks":    {answer: `"structuredContent":{"status":"input_required","progress_message":"may I?"}`, failed: "may I?"},
		"unknown": {answer: `"isError":true,"structuredContent":{"error":"job not found: j1"}`, category: fault.JobLost},
	} {
		s := startServer(t, row(c.answer))
		got, err := newSource(work).Check(t.Context(), jobOf(t, declared(s.url), false))
		if (err != nil) != (c.failed != "") || err != nil && !strings.Contains(err.Error(), c.failed) || string(got.Payload) != c.payload {
			t.Errorf("%s: %s, %v", name, got.Payload, err)
		}
		if (got.Fault != nil) != (c.category != "") || got.Fault != nil && got.Fault.Category != c.category || got.Done != (c.payload != "" || c.category != "") {
			t.Errorf("%s: %+v, %v", name, got, got.Fault)
		}
	}
	s := startServer(t, row(`"structuredContent":{"ok":true}`))
	if err := newSource(work).Cancel(t.Context(), jobOf(t, declared(s.url), false)); err != nil || !strings.Contains(strings.Join(s.asked, "\n"), "tools/call") {
		t.Errorf("%v, %q", err, s.asked)
	}
}

// A trigger of an earlier version holds the whole work. The record of the call counts all the same.
func TestATriggerOfAnEarlierVersionIsRead(t *testing.T) {
	s := startServer(t, map[string]string{"tasks/get": `{"taskId":"t1","status":"completed"}`, "tasks/result": `{"content":[]}`})
	j := wait.Job{RolloutID: "r1", Spec: wait.Spec{Type: wait.TypeMCPTask, Watch: json.RawMessage(`{"work":{"callId":"c1","server":"s","tool":"run","arguments":{"n":1},` +
		`"task":{"taskId":"old","era":"2025-11-25","status":"working","createdAt":"2026-07-28T11:00:00Z","ttlMs":null,"pollIntervalMs":5000,` +
		`"session":{"era":"2025-11-25","version":"2025-11-25","sessionId":"session"}}},` +
		`"server":{"name":"s","transport":"streamable-http","url":"` + s.url + `","headers":[{"name":"Authorization","value":"Bearer ${TOKEN}"}]},"person":true}`)}}
	got, err := newSource(taskWork()).Check(t.Context(), j)
	if err != nil || !got.Done || string(got.Payload) != `{"evalrun.dev/outcome":{"result":{"content":[]}}}` {
		t.Errorf("got %+v, %v", got, err)
	}
}

// What will never be readable is a fault of the job. What another time or another process may be
// able to read is an error, which is tried again.
func TestWhatCannotBeAsked(t *testing.T) {
	here := declared("http://127.0.0.1:1")
	for name, c := range map[string]struct {
		watch  string
		server tasks.MCPServer
		work   *wait.Work
		fault  string // empty: an error
	}{
		"a watch that is no JSON":    {watch: `{`, fault: "cannot be read"},
		"a server without URL":       {server: tasks.MCPServer{Name: "s", Transport: tasks.TransportStdio, Command: "x"}, work: taskWork(), fault: "has no URL"},
		"a call without record":      {server: here, fault: "is not recorded"},
		"a variable without value":   {server: tasks.MCPServer{Name: "s", Transport: tasks.TransportHTTP, URL: "http://${MISSING}/"}, work: taskWork()},
		"a server that is not there": {server: here, work: taskWork()},
	} {
		t.Run(name, func(t *testing.T) {
			j := jobOf(t, c.server, false)
			if c.watch != "" {
				j.Spec.Watch = json.RawMessage(c.watch)
			}
			got, err := newSource(c.work).Check(t.Context(), j)
			switch {
			case c.fault == "" && (err == nil || got.Done):
				t.Errorf("got %+v, %v; want an error", got, err)
			case c.fault != "" && (err != nil || !got.Done || got.Fault == nil || !strings.Contains(got.Fault.Message, c.fault)):
				t.Errorf("got %+v, %v; want a fault with %q", got, err, c.fault)
			}
		})
	}
}

func TestSourceKeepsToItsInterface(t *testing.T) {
	s := startServer(t, map[string]string{"tasks/get": `{"taskId":"t1","status":"working"}`, "tasks/cancel": `{"taskId":"t1","status":"cancelled"}`})
	j := jobOf(t, declared(s.url), false)
	j.Spec.ItemKey = "task-1"
	steps := &waittest.Transport{}
	source := newSourceOver(&http.Client{Transport: steps}, taskWork())
	waittest.Run(t, waittest.Case{Source: source, Job: j, OnStep: steps.OnStep, End: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answers["tasks/get"], s.answers["tasks/result"] = `{"taskId":"t1","status":"completed"}`, `{"content":[]}`
	}})
}

// A server that cannot be asked has forgotten the result some time after it has said it would.
func TestAResultThatIsForgotten(t *testing.T) {
	j := jobOf(t, declared("http://127.0.0.1:1"), false)
	for after, forgotten := range map[time.Duration]bool{AfterExpiry / 2: false, AfterExpiry * 2: true} {
		at := now.Add(-after)
		j.Spec.ExpiresAt = &at
		got, err := newSource(taskWork()).Check(t.Context(), j)
		if forgotten != got.Done || forgotten != (err == nil) {
			t.Errorf("%v after it expired: %+v, %v", after, got, err)
		}
	}
}

// A task is cancelled at its server. A job of the contract cannot be.
func TestCancel(t *testing.T) {
	s := startServer(t, map[string]string{"tasks/cancel": `{"taskId":"t1","status":"cancelled"}`})
	if err := newSource(taskWork()).Cancel(t.Context(), jobOf(t, declared(s.url), false)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(s.asked, "\n"), "tasks/cancel t1") {
		t.Errorf("it was asked %q", s.asked)
	}
	job := &wait.Work{CallID: "c1", Server: "s", Tool: "run", Job: &wait.JobHandle{Key: "k", FolderKey: "f"}}
	s.asked = nil
	if err := newSource(job).Cancel(t.Context(), jobOf(t, declared(s.url), false)); err != nil || s.asked != nil {
		t.Errorf("%v, and it was asked %q", err, s.asked)
	}
}
