package a2aagent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
)

// office is an agent behind JSON-RPC of version 1.0, as far as these tests need one. The tests with
// the protocol's own SDK are in fixtures.
type office struct {
	*httptest.Server
	mu sync.Mutex
	// answer makes the result of a request, or answers it otherwise and returns nil.
	answer func(w http.ResponseWriter, method string, params map[string]any) any
	// methods are those that were called, with the ids of messages.
	methods []string
	card    string
	headers []http.Header
}

const rpcCard = `{"name": "Clerk", "supportedInterfaces": [{"url": "$URL/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}], "defaultInputModes": ["application/json"]}`

func open(t *testing.T, answer func(w http.ResponseWriter, method string, params map[string]any) any) *office {
	o := &office{answer: answer, card: rpcCard}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if r.URL.Path == "/.well-known/agent-card.json" {
			_, _ = io.WriteString(w, strings.ReplaceAll(o.card, "$URL", o.URL))
			return
		}
		var request struct {
			Method string         `json:"method"`
			Params map[string]any `json:"params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		called := request.Method
		if m, ok := request.Params["message"].(map[string]any); ok {
			called += " " + fmt.Sprint(m["messageId"])
		}
		o.methods, o.headers = append(o.methods, called), append(o.headers, r.Header)
		if result := o.answer(w, request.Method, request.Params); result != nil {
			_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": "1", "result": result})
		}
	}))
	t.Cleanup(o.Close)
	return o
}

type m = map[string]any

func task(state string, more m) m {
	t := m{"id": "t-1", "contextId": "c-1", "status": m{"state": state}}
	for key, value := range more {
		t[key] = value
	}
	return t
}

// asks is a task that asks a question, with the history of messages that it has received.
func asks(question string, history ...string) m {
	t := task("", m{"status": m{"state": "TASK_STATE_INPUT_REQUIRED",
		"message": m{"messageId": "q", "parts": []any{m{"text": question}}}}})
	var received []any
	for _, id := range history {
		received = append(received, m{"messageId": id, "parts": []any{}})
	}
	t["history"] = received
	return t
}

func artifact(parts ...any) m {
	return task("TASK_STATE_COMPLETED", m{"artifacts": []any{m{"parts": parts}}})
}

func errorOf(w http.ResponseWriter, code int, message string) any {
	_ = json.NewEncoder(w).Encode(m{"jsonrpc": "2.0", "id": "1", "error": m{"code": code, "message": message}})
	return nil
}

// newAgent returns an agent whose pauses take no time; they are noted.
func newAgent(t *testing.T, url string, env map[string]string) (*a2aAgent, *[]time.Duration) {
	s := &Settings{URL: url, SoftWait: wait.Duration(time.Second), Interval: wait.Duration(time.Second)}
	if env != nil {
		s.Headers = map[string]string{"Authorization": "Bearer ${TOKEN}"}
	}
	g := New(agent.Entry{Name: "clerk", Type: Name, Settings: s}, agent.Options{Resolve: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}}).(*a2aAgent)
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	var pauses []time.Duration
	g.pause = func(_ context.Context, d time.Duration) { pauses = append(pauses, d) }
	return g, &pauses
}

func segment(t *testing.T) agent.Segment {
	return agent.Segment{RolloutID: "r", Number: 1, Attempt: 1, Input: json.RawMessage(`{"q":1}`), Dir: t.TempDir()}
}

// next is the segment after one, with what has arrived for an interrupt of it.
func next(t *testing.T, seg agent.Segment, id, payload string) agent.Segment {
	after := segment(t)
	after.Number, after.Earlier = seg.Number+1, append(seg.Earlier, seg.Dir)
	after.Resume = map[string]json.RawMessage{id: json.RawMessage(payload)}
	return after
}

// again is the attempt after one that was broken off.
func again(t *testing.T, seg agent.Segment) agent.Segment {
	after := seg
	after.Attempt, after.Earlier, after.Dir = seg.Attempt+1, append(seg.Earlier, seg.Dir), t.TempDir()
	return after
}

func run(t *testing.T, g *a2aAgent, seg agent.Segment) agent.Outcome {
	t.Helper()
	out, err := g.Run(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (o *office) called(t *testing.T, want ...string) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if got := strings.Join(o.methods, ", "); got != strings.Join(want, ", ") {
		t.Errorf("the agent was asked %s\nwant %s", got, strings.Join(want, ", "))
	}
}

func TestWhatAnAgentAnswersIsTheOutput(t *testing.T) {
	for name, test := range map[string]struct {
		result any
		want   string
	}{
		"a message":            {m{"message": m{"messageId": "a", "parts": []any{m{"text": "Hello"}, m{"text": "you"}}}}, `{"result":"Hello\nyou"}`},
		"a text":               {m{"task": artifact(m{"text": "Hello"})}, `{"result":"Hello"}`},
		"an object":            {m{"task": artifact(m{"data": m{"answer": 42}, "mediaType": "application/json"})}, `{"answer":42}`},
		"an object and a text": {m{"task": artifact(m{"text": "Done."}, m{"data": m{"answer": 42}})}, `{"answer":42,"result":"Done."}`},
		"two objects":          {m{"task": artifact(m{"data": m{"a": 1}}, m{"data": m{"b": 2}})}, `{"data":[{"a":1},{"b":2}]}`},
		"a file":               {m{"task": artifact(m{"url": "https://x.example/y.pdf", "filename": "y.pdf"})}, `{"files":[{"filename":"y.pdf","url":"https://x.example/y.pdf"}]}`},
		"nothing":              {m{"task": task("TASK_STATE_COMPLETED", nil)}, `{"result":""}`},
		"version 0.3":          {artifactOf03(), `{"answer":42,"files":[{"uri":"https://x.example/y.pdf"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, func(http.ResponseWriter, string, m) any { return test.result })
			g, _ := newAgent(t, o.URL, map[string]string{"TOKEN": "s3cr3t"})
			if out := run(t, g, segment(t)); string(out.Output) != test.want || len(out.Files) != 1 {
				t.Errorf("got %s, %v", out.Output, out.Fault)
			}
			o.called(t, "SendMessage r-1-1")
			if h := o.headers[0]; h.Get("Authorization") != "Bearer s3cr3t" || h.Get("A2A-Version") != "1.0" || h.Get("Traceparent") == "" {
				t.Errorf("got %v", h)
			}
		})
	}
}

func artifactOf03() m {
	return m{"kind": "task", "id": "t-1", "contextId": "c-1", "status": m{"state": "completed"}, "artifacts": []any{
		m{"parts": []any{m{"kind": "data", "data": m{"answer": 42}}, m{"kind": "file", "file": m{"uri": "https://x.example/y.pdf"}}}}}}
}

func TestATaskThatGoesOnForLongSuspends(t *testing.T) {
	o := open(t, func(_ http.ResponseWriter, method string, _ m) any {
		if method == "SendMessage" {
			return m{"task": task("TASK_STATE_SUBMITTED", nil)}
		}
		return task("TASK_STATE_WORKING", nil)
	})
	g, pauses := newAgent(t, o.URL, nil)
	seg := segment(t)
	out := run(t, g, seg)
	if len(out.Interrupts) != 1 || out.Interrupts[0].ID != workID {
		t.Fatalf("got %+v, %v", out, out.Fault)
	}
	spec := out.Interrupts[0].Specs[0]
	if spec.Type != wait.TypeJob || spec.Source != wait.SourceA2A || spec.ItemKey != "t-1" || !strings.Contains(string(spec.Watch), `"endpoint":"/a2a"`) {
		t.Errorf("got %+v, %s", spec, spec.Watch)
	}
	if got := fmt.Sprint(*pauses); got != "[100ms 200ms 400ms 800ms]" {
		t.Errorf("it was looked at after %s", got)
	}
	done, err := json.Marshal(artifact(m{"text": "Done."}))
	if err != nil {
		t.Fatal(err)
	}
	if out = run(t, g, next(t, seg, workID, string(done))); string(out.Output) != `{"result":"Done."}` {
		t.Errorf("got %s, %v", out.Output, out.Fault)
	}
}

func TestAQuestionIsAnsweredOnItsTask(t *testing.T) {
	var sent m
	o := open(t, func(_ http.ResponseWriter, method string, params m) any {
		if method == "GetTask" {
			return asks("Pay?")
		}
		if sent = params["message"].(m); sent["taskId"] == nil {
			return m{"task": asks("Pay?")}
		}
		return m{"task": artifact(m{"text": "Paid."})}
	})
	g, _ := newAgent(t, o.URL, nil)
	seg := segment(t)
	out := run(t, g, seg)
	if len(out.Interrupts) != 1 || out.Interrupts[0].ID != inputID+"1" || out.Interrupts[0].Specs[0].Type != wait.TypeTask ||
		!strings.Contains(string(out.Interrupts[0].Specs[0].Payload), `"title":"Pay?"`) {
		t.Fatalf("got %+v, %v", out, out.Fault)
	}
	out = run(t, g, next(t, seg, inputID+"1", `{"action":"approve","approved":true,"reason":"cheap"}`))
	if string(out.Output) != `{"result":"Paid."}` || sent["taskId"] != "t-1" || sent["contextId"] != "c-1" ||
		!strings.Contains(fmt.Sprint(sent["parts"]), "approved: cheap") {
		t.Errorf("got %s, %v after %v", out.Output, out.Fault, sent)
	}
	o.called(t, "SendMessage r-1-1", "GetTask", "SendMessage r-2-1")
}

func TestAnAuthorizationIsNeverAnsweredWithWhatAPersonSaid(t *testing.T) {
	var sent string
	o := open(t, func(_ http.ResponseWriter, method string, params m) any {
		asked := asks("Sign in")
		asked["status"].(m)["state"] = "TASK_STATE_AUTH_REQUIRED"
		if method == "GetTask" {
			return asked
		}
		if text := fmt.Sprint(params["message"]); strings.Contains(text, "taskId") {
			sent = text
			return m{"task": artifact(m{"text": "Read."})}
		}
		return m{"task": asked}
	})
	g, _ := newAgent(t, o.URL, nil)
	seg := segment(t)
	out := run(t, g, seg)
	if len(out.Interrupts) != 1 || out.Interrupts[0].ID != authorID+"1" || !strings.Contains(string(out.Interrupts[0].Specs[0].Payload), "no secret") {
		t.Fatalf("got %+v, %v", out, out.Fault)
	}
	out = run(t, g, next(t, seg, authorID+"1", `{"approved":true,"token":"s3cr3t"}`))
	if string(out.Output) != `{"result":"Read."}` || strings.Contains(sent, "s3cr3t") || !strings.Contains(sent, "The authorization is done.") {
		t.Errorf("got %s, %v after %s", out.Output, out.Fault, sent)
	}
}

// Whatever a process was doing when it was killed, the next one finds out what the agent has, and no
// message is received twice.
func TestAfterAKillNoMessageIsReceivedTwice(t *testing.T) {
	t.Run("the agent had the input", func(t *testing.T) {
		received := 0
		o := open(t, func(_ http.ResponseWriter, method string, params m) any {
			switch method {
			case "SendMessage":
				if received++; received > 1 {
					t.Error("the input was received twice")
				}
				panic(http.ErrAbortHandler) // the connection breaks off
			case "ListTasks":
				return m{"tasks": []any{m{"id": "t-1", "contextId": params["contextId"]}}}
			}
			return artifact(m{"text": "Done."})
		})
		g, _ := newAgent(t, o.URL, nil)
		if out := run(t, g, segment(t)); string(out.Output) != `{"result":"Done."}` { // its connection alone broke off
			t.Errorf("got %s, %v", out.Output, out.Fault)
		}
		o.called(t, "SendMessage r-1-1", "ListTasks", "GetTask")
	})
	t.Run("the process was killed before it was told", func(t *testing.T) {
		o := open(t, func(_ http.ResponseWriter, method string, params m) any {
			if method == "ListTasks" {
				return m{"tasks": []any{m{"id": "t-1", "contextId": params["contextId"]}}}
			}
			return artifact(m{"text": "Done."})
		})
		g, _ := newAgent(t, o.URL, nil)
		seg := segment(t)
		if err := (note{MessageID: "r-1-1"}).write(seg.Dir); err != nil {
			t.Fatal(err)
		}
		if out := run(t, g, again(t, seg)); string(out.Output) != `{"result":"Done."}` {
			t.Errorf("got %s, %v", out.Output, out.Fault)
		}
		o.called(t, "ListTasks", "GetTask")
	})
	t.Run("the agent had nothing", func(t *testing.T) {
		o := open(t, func(_ http.ResponseWriter, method string, _ m) any {
			if method == "ListTasks" {
				return m{"tasks": []any{}}
			}
			return m{"task": artifact(m{"text": "Done."})}
		})
		g, _ := newAgent(t, o.URL, nil)
		seg := segment(t)
		if err := (note{MessageID: "r-1-1"}).write(seg.Dir); err != nil {
			t.Fatal(err)
		}
		if out := run(t, g, again(t, seg)); string(out.Output) != `{"result":"Done."}` {
			t.Errorf("got %s, %v", out.Output, out.Fault)
		}
		o.called(t, "ListTasks", "SendMessage r-1-1")
	})
	t.Run("the agent cannot tell", func(t *testing.T) {
		o := open(t, func(w http.ResponseWriter, _ string, _ m) any { return errorOf(w, -32601, "Method not found") })
		g, _ := newAgent(t, o.URL, nil)
		seg := segment(t)
		if err := (note{MessageID: "r-1-1"}).write(seg.Dir); err != nil {
			t.Fatal(err)
		}
		if out := run(t, g, again(t, seg)); out.Fault == nil || out.Fault.Category != fault.StartUnknown {
			t.Errorf("got %+v", out)
		}
		failed := again(t, seg)
		failed.Failures = 1 // after a failure it is other work, with a task of its own
		if out := run(t, g, failed); out.Fault == nil || out.Fault.Category != fault.Protocol {
			t.Errorf("got %+v", out)
		}
		o.called(t, "ListTasks", "SendMessage r-1-2")
	})
	for name, test := range map[string]struct {
		task any
		want []string
	}{
		"the agent has the answer":             {asks("Pay?", "r-1-1", "r-2-1"), []string{"GetTask", "GetTask"}},
		"the agent has gone on":                {artifact(m{"text": "Paid."}), []string{"GetTask"}},
		"the agent does not have the answer":   {asks("Pay?", "r-1-1"), []string{"GetTask", "SendMessage r-2-1"}},
		"nobody knows the history of the task": {asks("Pay?"), []string{"GetTask", "SendMessage r-2-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			looks := 0
			o := open(t, func(_ http.ResponseWriter, method string, _ m) any {
				if looks++; method == "SendMessage" {
					return m{"task": artifact(m{"text": "Paid."})}
				}
				if looks > 1 {
					return artifact(m{"text": "Paid."})
				}
				return test.task
			})
			g, _ := newAgent(t, o.URL, nil)
			first := segment(t)
			asked := open(t, func(http.ResponseWriter, string, m) any { return m{"task": asks("Pay?")} })
			before, _ := newAgent(t, asked.URL, nil)
			run(t, before, first)
			seg := next(t, first, inputID+"1", `true`)
			if err := (note{MessageID: "r-2-1", TaskID: "t-1"}).write(seg.Dir); err != nil {
				t.Fatal(err)
			}
			if out := run(t, g, again(t, seg)); string(out.Output) != `{"result":"Paid."}` {
				t.Errorf("got %s, %v", out.Output, out.Fault)
			}
			o.called(t, test.want...)
		})
	}
	t.Run("the question was not committed", func(t *testing.T) {
		o := open(t, func(_ http.ResponseWriter, method string, _ m) any {
			if method == "GetTask" {
				return asks("Pay?")
			}
			return m{"task": asks("Pay?")}
		})
		g, _ := newAgent(t, o.URL, nil)
		seg := segment(t)
		run(t, g, seg)
		if out := run(t, g, again(t, seg)); len(out.Interrupts) != 1 || out.Interrupts[0].ID != inputID+"1" {
			t.Errorf("got %+v, %v", out, out.Fault)
		}
		o.called(t, "SendMessage r-1-1", "GetTask")
	})
}

func TestWhatIsNoAgentIsAFault(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("another host was asked") }))
	defer elsewhere.Close()
	says := func(status int, body string, headers ...string) func(http.ResponseWriter, string, m) any {
		return func(w http.ResponseWriter, _ string, _ m) any {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
			return nil
		}
	}
	gives := func(result any) func(http.ResponseWriter, string, m) any {
		return func(http.ResponseWriter, string, m) any { return result }
	}
	for name, test := range map[string]struct {
		card     string
		answer   func(http.ResponseWriter, string, m) any
		category fault.Category
		says     string
	}{
		"a page":                {"", says(200, "<html>Sign in", "Content-Type", "text/html"), fault.Protocol, "a page (HTML)"},
		"nothing":               {"", says(200, ""), fault.Protocol, "no answer of A2A"},
		"a list":                {"", says(200, "[]"), fault.Protocol, "no answer of A2A"},
		"no result":             {"", says(200, "{}"), fault.Protocol, "no answer of A2A"},
		"sent elsewhere":        {"", says(307, "", "Location", elsewhere.URL), fault.Start, "redirects to another host are not followed"},
		"unauthorized":          {"", says(401, "who are you?"), fault.Start, "401 Unauthorized: who are you?"},
		"an error":              {"", func(w http.ResponseWriter, _ string, _ m) any { return errorOf(w, -32602, "no parts") }, fault.AgentError, "error -32602: no parts"},
		"another version":       {"", func(w http.ResponseWriter, _ string, _ m) any { return errorOf(w, -32009, "too new") }, fault.Protocol, "too new"},
		"neither":               {"", gives("hello"), fault.Protocol, "neither a task nor a message"},
		"a task without an id":  {"", gives(m{"task": m{"status": m{"state": "TASK_STATE_WORKING"}}}), fault.Protocol, "without an id"},
		"an unknown state":      {"", gives(m{"task": task("TASK_STATE_DREAMING", nil)}), fault.Protocol, `the state "dreaming"`},
		"no state":              {"", gives(m{"task": m{"id": "t"}}), fault.Protocol, `the state ""`},
		"parts that are none":   {"", gives(m{"task": artifact(7)}), fault.Protocol, "no task"},
		"failed":                {"", gives(m{"task": m{"id": "t", "status": m{"state": "TASK_STATE_FAILED", "message": m{"parts": []any{m{"text": "out of paper"}}}}}}), fault.AgentError, "failed: out of paper"},
		"rejected":              {"", gives(m{"task": task("TASK_STATE_REJECTED", nil)}), fault.AgentError, "is rejected"},
		"canceled":              {"", gives(m{"task": task("TASK_STATE_CANCELED", nil)}), fault.Job, "canceled at the agent"},
		"too much":              {"", gives(m{"task": artifact(m{"text": strings.Repeat("x", 2000)})}), fault.OutputLimit, "more than 1000 bytes"},
		"an interrupt of ours":  {"", gives(m{"task": artifact(m{"data": m{"__interrupt__": []any{m{"value": 1}}}})}), fault.InvalidInterrupt, "input-required"},
		"always busy":           {"", says(503, "busy"), fault.Start, "503 Service Unavailable: busy"},
		"a card that is a page": {"<html>", nil, fault.Protocol, "no agent card"},
		"a card without a way":  {`{"name": "x"}`, nil, fault.Protocol, "names no address"},
		"a card of gRPC alone":  {`{"supportedInterfaces": [{"url": "h:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"}]}`, nil, fault.Protocol, "offers GRPC 1.0; evalrun speaks A2A 1.0 over JSONRPC and HTTP+JSON, and 0.3"},
		"a card of a far time":  {`{"supportedInterfaces": [{"url": "$URL", "protocolBinding": "JSONRPC", "protocolVersion": "7.0"}]}`, nil, fault.Protocol, "offers JSONRPC 7.0"},
		"a card of another":     {strings.ReplaceAll(rpcCard, "$URL", elsewhere.URL), nil, fault.Protocol, "another host than that of its url"},
		"a card of a file":      {`{"url": "file:///etc/passwd"}`, nil, fault.Protocol, "no URL of HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, test.answer)
			if test.card != "" {
				o.card = test.card
			}
			g, _ := newAgent(t, o.URL, map[string]string{"TOKEN": "x"})
			seg := segment(t)
			seg.OutputBytes = 1000
			out := run(t, g, seg)
			if out.Fault == nil || out.Fault.Category != test.category || !strings.Contains(out.Fault.Message, test.says) {
				t.Errorf("got %+v, %+v", out, out.Fault)
			}
		})
	}
	t.Run("no card", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		defer s.Close()
		g, _ := newAgent(t, s.URL+"/agents/x", nil)
		if out := run(t, g, segment(t)); out.Fault == nil || out.Fault.Category != fault.Start ||
			!strings.Contains(out.Fault.Message, "no agent card at /agents/x/.well-known/agent-card.json") {
			t.Errorf("got %+v", out.Fault)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		s.Close()
		g, pauses := newAgent(t, s.URL, nil)
		if out := run(t, g, segment(t)); out.Fault == nil || out.Fault.Category != fault.Start || len(*pauses) != agent.MaxTries-1 {
			t.Errorf("got %+v after %v", out.Fault, *pauses)
		}
	})
}

func TestABusyAgentIsTriedAgain(t *testing.T) {
	tries := 0
	o := open(t, func(w http.ResponseWriter, _ string, _ m) any {
		if tries++; tries == 1 {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
			return nil
		}
		return m{"task": artifact(m{"text": "Done."})}
	})
	g, pauses := newAgent(t, o.URL, nil)
	if out := run(t, g, segment(t)); string(out.Output) != `{"result":"Done."}` || fmt.Sprint(*pauses) != "[7s]" {
		t.Errorf("got %s, %v after %v", out.Output, out.Fault, *pauses)
	}
	o.called(t, "SendMessage r-1-1", "SendMessage r-1-1") // the first was not taken
}

func TestATaskThatIsLostIsAFault(t *testing.T) {
	o := open(t, func(w http.ResponseWriter, method string, _ m) any {
		if method == "GetTask" {
			return errorOf(w, -32001, "Task not found")
		}
		return m{"task": task("TASK_STATE_WORKING", nil)}
	})
	g, _ := newAgent(t, o.URL, nil)
	if out := run(t, g, segment(t)); out.Fault == nil || out.Fault.Category != fault.JobLost {
		t.Errorf("got %+v", out.Fault)
	}
}

// A task is cancelled when nobody wants it any more, and not when evalrun alone ends.
func TestTheEndOfASegmentCancelsItsTask(t *testing.T) {
	for name, test := range map[string]struct {
		cause    error
		category fault.Category
		want     string
	}{
		"a limit":         {fault.New(fault.Timeout, "too long"), fault.Timeout, "SendMessage r-1-1, CancelTask"},
		"the end of work": {fault.New(fault.Interrupted, "evalrun ends"), fault.Interrupted, "SendMessage r-1-1"},
	} {
		t.Run(name, func(t *testing.T) {
			o := open(t, func(_ http.ResponseWriter, method string, _ m) any {
				if method == "SendMessage" {
					return m{"task": task("TASK_STATE_WORKING", nil)}
				}
				return task("TASK_STATE_CANCELED", nil)
			})
			g, _ := newAgent(t, o.URL, nil)
			ctx, cancel := context.WithCancelCause(t.Context())
			g.pause = func(context.Context, time.Duration) { cancel(test.cause) }
			out, err := g.Run(ctx, segment(t))
			if err != nil || out.Fault == nil || out.Fault.Category != test.category {
				t.Errorf("got %+v, %v", out.Fault, err)
			}
			o.called(t, strings.Split(test.want, ", ")...)
		})
	}
}

func TestTheInputIsAMessage(t *testing.T) {
	for _, test := range []struct {
		input     string
		takesJSON bool
		want      string
	}{
		{`"hello"`, true, `text hello`},
		{`{"prompt": "hello"}`, true, `text hello`},
		{`{"prompt": "hello", "n": 1}`, true, `data {"prompt": "hello", "n": 1}`},
		{`{"prompt": "hello", "n": 1}`, false, `text {"prompt": "hello", "n": 1}`},
		{`null`, false, `text null`},
		{`[1.50]`, true, `data [1.50]`},
		{`{"prompt": null}`, true, `data {"prompt": null}`},
		{`{"approved": false, "reason": "no"}`, false, `text denied: no`},
		{`{"approved": "yes"}`, false, `text denied`},
	} {
		var got []string
		for _, p := range partsOf(json.RawMessage(test.input), test.takesJSON) {
			if p.Text != nil {
				got = append(got, "text "+*p.Text)
			} else {
				got = append(got, "data "+string(p.Data))
			}
		}
		if text := strings.Join(got, "; "); text != test.want {
			t.Errorf("%s: got %s", test.input, text)
		}
	}
}

func TestANoteThatIsTornIsAnError(t *testing.T) {
	seg := segment(t)
	if err := os.WriteFile(seg.Dir+"/"+fileNote, []byte(`{"mess`), 0o600); err != nil {
		t.Fatal(err)
	}
	g, _ := newAgent(t, "http://127.0.0.1:1", nil)
	if _, err := g.Run(t.Context(), again(t, seg)); err == nil {
		t.Error("it was taken for none, and the message would be sent again")
	}
}
