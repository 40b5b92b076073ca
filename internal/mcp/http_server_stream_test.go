package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestProgressComesInOrderBeforeTheAnswer(t *testing.T) {
	e := serveHTTP(t, newTestServer(), ServerOptions{})
	session := e.initialize(Version2025_06_18)
	for name, headers := range map[string][]string{"legacy": {session}, "modern": modern("tools/call", "progress")} {
		meta := `,"_meta":{"progressToken":"p"}`
		if name == "modern" {
			meta = strings.Replace(","+modernMeta, "{", `{"progressToken":"p",`, 1)
		}
		got := events(t, e.post(call("1", "progress", meta), headers...), nil)
		if len(got) != 101 {
			t.Fatalf("%s: %d events", name, len(got))
		}
		for i, e := range got[:100] {
			if want := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":%d}}`, i); e.data != want {
				t.Errorf("%s: event %d: %s", name, i, e.data)
			}
		}
		if !strings.HasPrefix(got[100].data, `{"jsonrpc":"2.0","id":1,"result":`) {
			t.Errorf("%s: last: %s", name, got[100].data)
		}
	}
	// A client that takes no stream is not told, but gets its answer.
	if got := text(t, e.post(call("1", "progress", `,"_meta":{"progressToken":"p"}`), session, "Accept: application/json")); got != `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}` {
		t.Errorf("without a stream: %s", got)
	}
	if got := text(t, e.post(call("1", "ask", ""), session, "Accept: application/json")); !strings.Contains(got, "no stream") {
		t.Errorf("a question without a stream: %s", got)
	}
}

func TestSlowAnswerBecomesAStream(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{StreamAfter: time.Millisecond})
	session := e.initialize(Version2025_11_25)
	response := e.post(call("1", "wait", ""), session) // returns with the header
	testenv.Receive(t, h.started)
	h.proceed <- struct{}{}
	got := events(t, response, nil)
	// The first event has no name, of which clients in Python would warn.
	if len(got) != 2 || got[0].name != "" || got[0].data != "" || got[0].id == "" || !strings.Contains(got[1].data, "waited") {
		t.Errorf("%v", got)
	}
	// An older version has no first event without data.
	response = e.post(call("1", "wait", ""), e.initialize(Version2025_06_18))
	testenv.Receive(t, h.started)
	h.proceed <- struct{}{}
	if got = events(t, response, nil); len(got) != 1 || got[0].id == "" {
		t.Errorf("2025-06-18: %v", got)
	}
	// Modern has no ids.
	response = e.post(call("1", "wait", ","+modernMeta), modern("tools/call", "wait")...)
	testenv.Receive(t, h.started)
	h.proceed <- struct{}{}
	if got = events(t, response, nil); len(got) != 1 || got[0].id != "" {
		t.Errorf("modern: %v", got)
	}
}

func TestSilentStreamIsKeptAlive(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{StreamAfter: time.Millisecond})
	e.handler.keepAlive = time.Millisecond
	response := e.post(call("1", "wait", ","+modernMeta), modern("tools/call", "wait")...)
	testenv.Receive(t, h.started)
	b := make([]byte, 1000)
	for got := ""; strings.Count(got, ": still here\n\n") < 3; {
		n, err := response.Body.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got += string(b[:n])
	}
	h.proceed <- struct{}{}
	if got := events(t, response, nil); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestCutStreamIsResumed(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{})
	session := e.initialize(Version2025_11_25)
	ctx, cut := context.WithCancel(t.Context())
	first := events(t, e.do(ctx, "POST", call("1", "note-and-wait", ""), session), func(e sse) bool { return e.data != "" })
	testenv.Receive(t, h.started)
	cut()
	h.proceed <- struct{}{}

	waited := func(e sse) bool { return strings.Contains(e.data, `"waited":true`) }
	// After the second event, and once more: what was sent may have been lost on the way.
	for range 2 {
		got := events(t, e.do(t.Context(), "GET", "", session, headerLastEvent+": "+first[1].id), nil)
		if len(got) != 2 || !strings.Contains(got[0].data, `{"n":2}`) || !waited(got[1]) {
			t.Fatalf("%v", got)
		}
	}
	// After the first, which has no message.
	got := events(t, e.do(t.Context(), "GET", "", session, headerLastEvent+": "+first[0].id), nil)
	if len(got) != 3 || got[0] != first[1] || !waited(got[2]) {
		t.Fatalf("%v", got)
	}
	// After the last, nothing is left.
	if got = events(t, e.do(t.Context(), "GET", "", session, headerLastEvent+": "+got[2].id), nil); len(got) != 0 {
		t.Fatalf("%v", got)
	}
}

// A response whose stream goes on elsewhere ends, although its request runs.
func TestReplacedStreamEnds(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{})
	session := e.initialize(Version2025_11_25)
	cut := e.post(call("1", "note-and-wait", ""), session)
	first := events(t, cut, func(e sse) bool { return e.data != "" })
	testenv.Receive(t, h.started)
	again := e.do(t.Context(), "GET", "", session, headerLastEvent+": "+first[1].id)
	_, _ = io.Copy(io.Discard, cut.Body) // ends
	h.proceed <- struct{}{}
	if got := events(t, again, nil); len(got) != 2 || !strings.Contains(got[1].data, `"waited":true`) {
		t.Errorf("%v", got)
	}
}

func TestStandaloneStream(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{})
	session := e.initialize(Version2025_11_25)
	e.postAside(call("1", "wait", ""), session)
	s := testenv.Receive(t, h.started).Session
	defer close(h.proceed)
	say := func(n string) {
		t.Helper()
		if err := s.Notify("n", json.RawMessage(n)); err != nil {
			t.Error(err)
		}
	}
	until := func(n string) func(sse) bool {
		return func(e sse) bool { return strings.HasSuffix(e.data, `"params":`+n+`}`) }
	}
	say("1") // nobody listens yet
	first := e.do(t.Context(), "GET", "", session)
	if got := events(t, first, until("1")); len(got) != 1 {
		t.Errorf("%v", got)
	}
	// Whoever comes without the id of an event gets again what the server does not know to be written.
	if !testenv.Eventually(func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.out.(*stream).written == 1
	}) {
		t.Fatal("the first event has come, and does not count as written")
	}
	second := e.do(t.Context(), "GET", "", session) // takes the place of the first
	if got := events(t, first, nil); len(got) != 0 {
		t.Errorf("%v", got)
	}
	say("2")
	got := events(t, second, until("2"))
	if len(got) != 1 {
		t.Errorf("%v", got)
	}
	// From here on the client comes back each time, and says what it has seen.
	seen := got[0].id
	next := func(stop func(sse) bool) sse {
		t.Helper()
		got := events(t, e.do(t.Context(), "GET", "", session, headerLastEvent+": "+seen), stop)
		if len(got) != 1 {
			t.Errorf("%v", got)
		}
		seen = got[0].id
		return got[0]
	}
	say("3")
	next(until("3"))

	// The session asks, and the client answers with a POST.
	answers := make(chan string, 1)
	go func() {
		result, err := s.Ask(t.Context(), "roots/list", nil)
		answers <- fmt.Sprint(string(result), err)
	}()
	var question struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(next(holds("roots/list")).data), &question); err != nil {
		t.Fatal(err)
	}
	e.post(`{"jsonrpc":"2.0","id":`+string(question.ID)+`,"result":{"roots":[ ]}}`, session)
	if got := testenv.Receive(t, answers); got != `{"roots":[ ]}<nil>` {
		t.Error(got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, err := s.Ask(ctx, "roots/list", nil)
		answers <- fmt.Sprint(err)
	}()
	next(holds("roots/list"))
	cancel()
	if got := testenv.Receive(t, answers); !strings.Contains(got, "context canceled") {
		t.Error(got)
	}
	next(holds(NoteCancelled))
}

// holds tells the event that holds a text.
func holds(text string) func(sse) bool {
	return func(e sse) bool { return strings.Contains(e.data, text) }
}

// A client that does not read is in nobody's way, and what waits for it is bounded.
func TestClientThatDoesNotRead(t *testing.T) {
	testenv.NeedSlow(t)
	noGoroutinesLeft(t)
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{})
	session := e.initialize(Version2025_11_25)
	e.post(call("1", "flood", ""), session)
	testenv.Receive(t, h.started)
	if err := testenv.Receive(t, h.causes); !errors.Is(err, errFull) {
		t.Errorf("legacy: %v", err)
	}
	e.post(call("1", "flood", ","+modernMeta), modern("tools/call", "flood")...)
	testenv.Receive(t, h.started)
	if err := testenv.Receive(t, h.causes); !errors.Is(err, errFull) {
		t.Errorf("modern: %v", err)
	}
	if got := text(t, e.post(call("2", "echo", ""), session)); !strings.Contains(got, "result") {
		t.Error(got)
	}
	e.handler.Close() // does not wait for it for long
}

// However long a message is, a client that reads gets it.
func TestLongNotification(t *testing.T) {
	e := serveHTTP(t, newTestServer(), ServerOptions{})
	session := e.initialize(Version2025_11_25)
	for name, response := range map[string]*reply{
		"legacy": e.post(call("1", "long", ""), session), "modern": e.post(call("1", "long", ","+modernMeta), modern("tools/call", "long")...),
	} {
		body := text(t, response)
		if !strings.Contains(body, `"result"`) || len(body) < maxQueue {
			t.Errorf("%s: %d bytes: %.200s", name, len(body), body)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := newSession(t.Context(), "x", Legacy, Version2025_11_25, newTestServer())
	s.openStreams("n", 3*historySize)
	kb := func(n int) []byte { return make([]byte, n<<10) }
	lost := func() *stream { // a POST whose connection is cut before the answer
		st := newStream(s, 1)
		connection := st.attach()
		st.makeResumable()
		st.detach(connection)
		return st
	}
	a := lost()
	if err := a.put(kindAnswer, &message{Result: kb(700)}); err != nil {
		t.Fatal(err)
	}
	for range 10000 {
		if err := s.Notify("n", json.RawMessage(`"0123456789012345678901234567890123456789012345678901234567890123456789"`)); err != nil {
			t.Fatal(err)
		}
	}
	if kept := s.streams.kept; kept > historySize {
		t.Errorf("%d bytes are kept", kept)
	}
	if st, _, ok := s.resume(a.eventID(0)); !ok || len(st.events) != 1 {
		t.Error("the answer was dropped for notifications")
	}
	streams := []*stream{a}
	for range 10 {
		streams = append(streams, lost())
		if err := streams[len(streams)-1].put(kindAnswer, &message{Result: kb(700)}); err != nil {
			t.Fatal(err)
		}
	}
	if kept := s.streams.kept; kept > 3*historySize {
		t.Errorf("%d bytes are kept", kept)
	}
	if _, _, ok := s.resume(a.eventID(0)); ok {
		t.Error("the oldest answer is still there")
	}
	if _, _, ok := s.resume(streams[10].eventID(0)); !ok {
		t.Error("the newest answer is not there")
	}
	sum := 0
	for _, e := range s.streams.history {
		sum += len(e.data)
	}
	if sum != s.streams.kept {
		t.Errorf("%d bytes are kept, %d are counted", sum, s.streams.kept)
	}
}

func TestBatchBecomesAStream(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{})
	session := e.initialize(Version2025_03_26)
	got := events(t, e.post("["+call("1", "progress", `,"_meta":{"progressToken":1}`)+","+call("2", "echo", "")+`,{"jsonrpc":"2.0","method":"x"}]`, session), nil)
	answers := 0
	for _, e := range got {
		if strings.Contains(e.data, `"result"`) {
			answers++
		}
	}
	if len(got) != 102 || answers != 2 || testenv.Receive(t, h.notes) != "x " {
		t.Errorf("%d events, %d answers", len(got), answers)
	}
}
