package httpagent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

// service is an agent behind HTTP; it keeps what it was sent.
type service struct {
	*httptest.Server
	requests []*http.Request
	bodies   []string
}

func serve(t *testing.T, answer http.HandlerFunc) *service {
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// answers gives one answer after the other, and the last one again and again.
func answers(all ...http.HandlerFunc) http.HandlerFunc {
	n := 0
	return func(w http.ResponseWriter, r *http.Request) {
		all[min(n, len(all)-1)](w, r)
		n++
	}
}

func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func segment(t *testing.T) agent.Segment {
	return agent.Segment{RolloutID: "r-1", Number: 2, Attempt: 1, Input: json.RawMessage(`{"q":1}`), Dir: t.TempDir(), Workspace: "/w"}
}

// newAgent returns an agent whose pauses take no time; they are noted.
func newAgent(t *testing.T, s Settings, env map[string]string) (*httpAgent, *[]time.Duration) {
	h := New(agent.Entry{Name: "service", Type: Name, Settings: &s}, agent.Options{Resolve: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}}).(*httpAgent)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	var pauses []time.Duration
	h.pause = func(_ context.Context, d time.Duration) { pauses = append(pauses, d) }
	return h, &pauses
}

func run(t *testing.T, h *httpAgent, seg agent.Segment) agent.Outcome {
	t.Helper()
	out, err := h.Run(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheDocumentOfASegmentIsPosted(t *testing.T) {
	s := serve(t, says(200, `{"answer": 42, "__usage__": {"model": "m", "inputTokens": 1, "outputTokens": 2}}`))
	h, _ := newAgent(t, Settings{URL: "${BASE}/run", Headers: map[string]string{"Authorization": "Bearer ${TOKEN}"}},
		map[string]string{"BASE": s.URL, "TOKEN": "s3cr3t"})
	seg := segment(t)
	out := run(t, h, seg)
	if string(out.Output) != `{"answer":42}` && string(out.Output) != `{"answer": 42}` || out.Info == nil || len(out.Info.Usage) != 1 {
		t.Errorf("got %s %+v %v", out.Output, out.Info, out.Fault)
	}
	r := s.requests[0]
	if r.Method != "POST" || r.URL.Path != "/run" || r.Header.Get("Authorization") != "Bearer s3cr3t" ||
		r.Header.Get("Idempotency-Key") != "r-1-2-1" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Traceparent") == "" {
		t.Errorf("got %s %s %v", r.Method, r.URL, r.Header)
	}
	var sent map[string]json.RawMessage
	if err := json.Unmarshal([]byte(s.bodies[0]), &sent); err != nil || string(sent["input"]) != `{"q":1}` || string(sent["rolloutId"]) != `"r-1"` {
		t.Errorf("got %s", s.bodies[0])
	}
	if text := testenv.ReadFile(t, seg.Dir, record.FileOutput); !strings.Contains(text, "42") || len(out.Files) != 1 {
		t.Errorf("got %q, %v", text, out.Files)
	}
}

func TestAnInterruptSuspendsAndTheResumeDocumentIsPosted(t *testing.T) {
	s := serve(t, answers(says(200, `{"__interrupt__": [{"id": "i-1", "value": "Go on?"}]}`), says(200, `{"done": true}`)))
	h, _ := newAgent(t, Settings{URL: s.URL}, nil)
	out := run(t, h, segment(t))
	if len(out.Interrupts) != 1 || out.Interrupts[0].ID != "i-1" {
		t.Fatalf("got %+v", out)
	}
	seg := segment(t)
	seg.Number, seg.Resume = 3, map[string]json.RawMessage{"i-1": json.RawMessage(`"yes"`)}
	if out = run(t, h, seg); string(out.Output) != `{"done": true}` || !strings.Contains(s.bodies[1], `"resume":{"i-1":"yes"}`) {
		t.Errorf("got %s after %s", out.Output, s.bodies[1])
	}
}

func TestWhatMayChangeIsTriedAgain(t *testing.T) {
	s := serve(t, answers(says(503, "busy"), says(429, "slow down", "Retry-After", "7"), says(200, `{}`)))
	h, pauses := newAgent(t, Settings{URL: s.URL}, nil)
	out := run(t, h, segment(t))
	if string(out.Output) != "{}" || fmt.Sprint(*pauses) != "[1s 7s]" {
		t.Errorf("got %+v after %v", out, *pauses)
	}
	for _, r := range s.requests {
		if r.Header.Get("Idempotency-Key") != "r-1-2-1" {
			t.Errorf("a try has the key %q", r.Header.Get("Idempotency-Key"))
		}
	}
}

func TestAnswersThatAreNoDocuments(t *testing.T) {
	elsewhere := serve(t, says(200, `{"stolen": true}`))
	for name, test := range map[string]struct {
		answer   http.HandlerFunc
		category fault.Category
		says     string
		tries    int
	}{
		"a page":            {says(200, "<!doctype html><p>Sign in", "Content-Type", "text/html"), fault.InvalidOutput, "a page (HTML) in place of a JSON document", 1},
		"nothing":           {says(200, ""), fault.NoOutput, "expected a JSON document", 1},
		"a part":            {says(200, `{"answer": `), fault.InvalidOutput, "a part of one", 1},
		"two documents":     {says(200, `{} {}`), fault.InvalidOutput, "something else than one JSON document", 1},
		"too much":          {says(200, `"`+strings.Repeat("x", 2000)+`"`), fault.OutputLimit, "more than 1000 bytes", 1},
		"elsewhere":         {says(307, "", "Location", elsewhere.URL), fault.AgentError, "not sent on to another address; name " + elsewhere.URL, 1},
		"no such thing":     {says(404, "no agent here"), fault.Start, "404 Not Found: no agent here", 1},
		"refused":           {says(422, `{"detail": "q is missing"}`), fault.AgentError, "q is missing", 1},
		"always busy":       {says(503, "busy"), fault.Start, "503 Service Unavailable: busy", agent.MaxTries},
		"accepted nowhere":  {says(202, ""), fault.Protocol, "without a Location", 1},
		"accepted by other": {says(202, "", "Location", elsewhere.URL+"/jobs/1"), fault.Protocol, "on another host", 1},
		"accepted secretly": {says(202, "", "Location", "/jobs/1?token=s3cr3t"), fault.Protocol, "a secret in its Location", 1},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"a":`)
		}, fault.InvalidOutput, "broke off after 5 bytes", 1},
		"our id": {says(200, `{"__interrupt__": [{"id": "`+answerID+`", "value": 1}]}`), fault.InvalidInterrupt, "evalrun's own", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, test.answer)
			h, _ := newAgent(t, Settings{URL: s.URL, Headers: map[string]string{"X-Key": "${KEY}"}}, map[string]string{"KEY": "s3cr3t"})
			h.opts.Redact = redacting
			seg := segment(t)
			seg.OutputBytes = 1000
			out := run(t, h, seg)
			if out.Fault == nil || out.Fault.Category != test.category || !strings.Contains(out.Fault.Message, test.says) || len(s.requests) != test.tries {
				t.Errorf("got %+v after %d tries", out.Fault, len(s.requests))
			}
		})
	}
	if n := len(elsewhere.requests); n > 0 {
		t.Errorf("%d requests were sent to another host", n)
	}
}

// redacting takes one secret out.
func redacting(w io.Writer) io.WriteCloser { return &redactor{w} }

type redactor struct{ io.Writer }

func (r *redactor) Write(p []byte) (int, error) {
	_, err := io.WriteString(r.Writer, strings.ReplaceAll(string(p), "s3cr3t", "[redacted]"))
	return len(p), err
}

func (r *redactor) Close() error { return nil }

func TestAnUnreachableServiceIsTriedAgain(t *testing.T) {
	s := serve(t, says(200, `{}`))
	s.Close()
	h, pauses := newAgent(t, Settings{URL: s.URL}, nil)
	out := run(t, h, segment(t))
	if out.Fault == nil || out.Fault.Category != fault.Start || !strings.Contains(out.Fault.Message, "refused") || len(*pauses) != agent.MaxTries-1 {
		t.Errorf("got %+v after %v", out.Fault, *pauses)
	}
}

func TestAVariableWithoutAValueIsNamed(t *testing.T) {
	for _, s := range []Settings{{URL: "http://h/${NONE}"}, {URL: "http://h", Headers: map[string]string{"X": "${NONE}"}}} {
		h, _ := newAgent(t, s, nil)
		if out := run(t, h, segment(t)); out.Fault == nil || out.Fault.Category != fault.Start || !strings.Contains(out.Fault.Message, "${NONE}") {
			t.Errorf("got %+v", out.Fault)
		}
	}
}

// A service that needs long answers 202, and the rollout waits for what it says then.
func TestAnAcceptedRequestSuspends(t *testing.T) {
	s := serve(t, says(202, "", "Location", "../jobs/7?x=1#part", "Retry-After", "60"))
	h, _ := newAgent(t, Settings{URL: s.URL + "/v1/run", Headers: map[string]string{"X-Key": "${KEY}"}, Interval: wait.Duration(time.Second)},
		map[string]string{"KEY": "s3cr3t"})
	out := run(t, h, segment(t))
	if len(out.Interrupts) != 1 {
		t.Fatalf("got %+v, %v", out, out.Fault)
	}
	spec := out.Interrupts[0].Specs[0]
	if spec.Type != wait.TypeJob || spec.ItemKey != "/jobs/7?x=1" || strings.Contains(string(spec.Watch), "s3cr3t") ||
		!strings.Contains(string(spec.Watch), "notBefore") {
		t.Errorf("got %+v, %s", spec, spec.Watch)
	}
	seg := segment(t)
	seg.Number = 3
	seg.Resume = map[string]json.RawMessage{answerID: json.RawMessage(`{"answer": 42}`)}
	if out = run(t, h, seg); string(out.Output) != `{"answer": 42}` || len(s.requests) != 1 {
		t.Errorf("got %+v after %d requests", out, len(s.requests))
	}
	seg.Deliveries = map[string]agent.Delivery{answerID: {Error: &wait.Error{Message: "it is gone"}}}
	if out = run(t, h, seg); out.Fault == nil || out.Fault.Category != fault.Job || out.Fault.Message != "it is gone" {
		t.Errorf("got %+v", out)
	}
}

func TestTheTimeoutEndsARequest(t *testing.T) {
	// The request may be over before the service has it. The end of the test waits for one that it has.
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	h, _ := newAgent(t, Settings{URL: s.URL}, nil)
	h.entry.Timeout = wait.Duration(100 * time.Millisecond)
	if out := run(t, h, segment(t)); out.Fault == nil || out.Fault.Category != fault.Timeout {
		t.Errorf("got %+v", out.Fault)
	}
}
