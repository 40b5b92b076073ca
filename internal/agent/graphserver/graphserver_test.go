package graphserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
)

// server is a server of LangGraph with one thread, as far as these tests need one. The test with the
// real server is in fixtures.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	runs     []string
	// status is that of a run, state what the thread has come to. broken drops the answer to a start.
	status, state string
	broken        bool
	answer        http.HandlerFunc
}

func open(t *testing.T) *server {
	s := &server{status: "success", state: `{"values":{"n":1},"next":[],"tasks":[]}`}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		var asked struct {
			Thread   string `json:"thread_id"`
			Metadata struct{ Evalrun string }
		}
		_ = json.Unmarshal(body, &asked)
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		what := r.Method + " " + parts[len(parts)-1]
		s.requests = append(s.requests, strings.TrimSpace(what+" "+asked.Metadata.Evalrun))
		switch {
		case s.answer != nil:
			s.answer(w, r)
		case what == "POST threads":
			_, _ = fmt.Fprintf(w, `{"thread_id":%q}`, asked.Thread)
		case what == "POST runs":
			s.runs = append(s.runs, fmt.Sprintf(`{"run_id":"r-%d","status":%q,"metadata":{"evalrun":%q},"asked":%s}`,
				len(s.runs), s.status, asked.Metadata.Evalrun, body))
			if s.broken {
				s.broken = false
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, s.runs[len(s.runs)-1])
		case what == "GET runs":
			_, _ = io.WriteString(w, "["+strings.Join(s.runs, ",")+"]")
		case what == "GET state":
			_, _ = io.WriteString(w, s.state)
		default: // a run
			_, _ = fmt.Fprintf(w, `{"run_id":"r-0","status":%q}`, s.status)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func newAgent(t *testing.T, s *server) *graphAgent {
	g := New(agent.Entry{Name: "clerk", Type: Name, Settings: &Settings{URL: s.URL, Assistant: "clerk",
		SoftWait: wait.Duration(time.Second)}}, agent.Options{}).(*graphAgent)
	t.Cleanup(func() { _ = g.Close() })
	g.pause = func(context.Context, time.Duration) {}
	return g
}

func segment(t *testing.T) agent.Segment {
	return agent.Segment{RolloutID: "r", Number: 1, Attempt: 1, Input: json.RawMessage(`{"q":1}`), Dir: t.TempDir()}
}

func run(t *testing.T, g *graphAgent, seg agent.Segment) agent.Outcome {
	t.Helper()
	out, err := g.Run(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *server) asked(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := strings.Join(s.requests, ", "); got != strings.Join(want, ", ") {
		t.Errorf("the server was asked %s\nwant %s", got, strings.Join(want, ", "))
	}
}

func TestTheValuesOfAGraphAreTheOutput(t *testing.T) {
	for state, want := range map[string]string{
		`{"values":{"n":1}}`: `{"n":1}`,
		`{"values":[1]}`:     `[1]`,
		`{"values":{"messages":[{"type":"human","content":"hi"},{"type":"ai","content":[{"type":"text","text":"Hello"}]}]}}`: `{"messages":[{"type":"human","content":"hi"},{"type":"ai","content":[{"type":"text","text":"Hello"}]}],"result":"Hello"}`,
	} {
		s := open(t)
		s.state = state
		if out := run(t, newAgent(t, s), segment(t)); string(out.Output) != want {
			t.Errorf("got %s, %v", out.Output, out.Fault)
		}
		s.asked(t, "POST threads", "POST runs r-1-1", "GET state")
	}
}

func TestAnInterruptSuspendsAndIsResumedByItsID(t *testing.T) {
	s := open(t)
	s.state = `{"values":{"n":1},"next":["ask"],"tasks":[{"name":"done","result":{},"interrupts":[{"id":"old","value":1}]},{"name":"ask","interrupts":[{"id":"i-1","value":{"type":"CreateTask","title":"Pay?","data":{}}}]}]}`
	g, seg := newAgent(t, s), segment(t)
	out := run(t, g, seg)
	if len(out.Interrupts) != 1 || out.Interrupts[0].ID != "i-1" || out.Interrupts[0].Specs[0].Type != wait.TypeTask {
		t.Fatalf("got %+v, %v", out, out.Fault)
	}
	s.state = `{"values":{"n":2}}`
	after := segment(t)
	after.Number, after.Earlier, after.Resume = 2, []string{seg.Dir}, map[string]json.RawMessage{"i-1": json.RawMessage(`true`)}
	if out = run(t, g, after); string(out.Output) != `{"n":2}` || !strings.Contains(s.runs[1], `"command":{"resume":{"i-1":true}}`) {
		t.Errorf("got %s, %v after %s", out.Output, out.Fault, s.runs)
	}
}

func TestABreakpointIsResumedWithoutInput(t *testing.T) {
	s := open(t)
	s.state = `{"values":{"n":1},"next":["pay"],"tasks":[{"name":"pay","interrupts":[]}]}`
	g, seg := newAgent(t, s), segment(t)
	out := run(t, g, seg)
	if len(out.Interrupts) != 1 || out.Interrupts[0].ID != "breakpoint:pay" {
		t.Fatalf("got %+v, %v", out, out.Fault)
	}
	s.state = `{"values":{"n":2}}`
	after := segment(t)
	after.Number, after.Earlier, after.Resume = 2, []string{seg.Dir}, map[string]json.RawMessage{"breakpoint:pay": json.RawMessage(`null`)}
	if out = run(t, g, after); string(out.Output) != `{"n":2}` || !strings.Contains(s.runs[1], `"input":null`) {
		t.Errorf("got %s, %v after %s", out.Output, out.Fault, s.runs)
	}
}

// A run that was started before a crash, or before the connection broke off, is not started again.
func TestARunIsStartedOnce(t *testing.T) {
	s := open(t)
	s.broken = true
	g, seg := newAgent(t, s), segment(t)
	if out := run(t, g, seg); string(out.Output) != `{"n":1}` {
		t.Errorf("got %s, %v", out.Output, out.Fault)
	}
	again := seg
	again.Attempt, again.Dir, again.Earlier = 2, t.TempDir(), []string{seg.Dir}
	if out := run(t, g, again); string(out.Output) != `{"n":1}` || len(s.runs) != 1 {
		t.Errorf("got %s, %v with %d runs", out.Output, out.Fault, len(s.runs))
	}
	again.Failures = 1
	if run(t, g, again); len(s.runs) != 2 {
		t.Errorf("after a failure there are %d runs", len(s.runs))
	}
}

func TestARunThatGoesOnForLongSuspends(t *testing.T) {
	s := open(t)
	s.status = "running"
	g, seg := newAgent(t, s), segment(t)
	out := run(t, g, seg)
	if len(out.Interrupts) != 1 || out.Interrupts[0].Specs[0].Source != wait.SourceLangGraph || out.Interrupts[0].Specs[0].ItemKey != "r-0" {
		t.Fatalf("got %+v, %v", out, out.Fault)
	}
	after := segment(t)
	after.Number, after.Earlier = 2, []string{seg.Dir}
	after.Resume = map[string]json.RawMessage{workID: json.RawMessage(`{"run_id":"r-0","status":"success"}`)}
	if out = run(t, g, after); string(out.Output) != `{"n":1}` || len(s.runs) != 1 {
		t.Errorf("got %s, %v", out.Output, out.Fault)
	}
}

func TestWhatIsNoServerIsAFault(t *testing.T) {
	says := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		category fault.Category
		says     string
	}{
		"a page":       {says(200, "<html>"), fault.Protocol, "no answer of LangGraph's server"},
		"another API":  {says(200, "{}"), fault.Protocol, "is it one of LangGraph?"},
		"nothing":      {says(200, ""), fault.Protocol, "no answer of LangGraph's server"},
		"unknown path": {says(404, "no"), fault.Start, "404 Not Found: no"},
		"wrong input":  {says(422, "no such graph"), fault.AgentError, "no such graph"},
		"always busy":  {says(503, "busy"), fault.Start, "busy"},
		"redirect":     {says(302, ""), fault.Start, "302"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.answer = test.answer
			out := run(t, newAgent(t, s), segment(t))
			if out.Fault == nil || out.Fault.Category != test.category || !strings.Contains(out.Fault.Message, test.says) {
				t.Errorf("got %+v", out.Fault)
			}
		})
	}
	s := open(t)
	s.status, s.state = "error", `{"values":{},"tasks":[{"name":"act","error":"ValueError('no')"}]}`
	if out := run(t, newAgent(t, s), segment(t)); out.Fault == nil || out.Fault.Category != fault.AgentError || !strings.Contains(out.Fault.Message, "ValueError") {
		t.Errorf("got %+v", out.Fault)
	}
	after := segment(t)
	after.Number = 2
	if out := run(t, newAgent(t, s), after); out.Fault == nil || out.Fault.Category != fault.Unresumable {
		t.Errorf("got %+v", out.Fault)
	}
}
