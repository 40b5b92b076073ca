package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestSessionEnds(t *testing.T) {
	now := time.Now()
	var clock sync.Mutex
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{IdleTimeout: time.Hour, Now: func() time.Time {
		clock.Lock()
		defer clock.Unlock()
		return now
	}})
	later := func(d time.Duration) {
		clock.Lock()
		now = now.Add(d)
		clock.Unlock()
		e.handler.sweep()
	}
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`

	// By DELETE, which ends what runs.
	session := e.initialize(Version2025_11_25)
	stream := e.do(t.Context(), "GET", "", session)
	e.postAside(call("1", "wait", ""), session)
	s := testenv.Receive(t, h.started).Session
	if r := e.do(t.Context(), "DELETE", "", session); r.StatusCode != 204 {
		t.Errorf("status %d", r.StatusCode)
	}
	_ = testenv.Receive(t, h.causes)
	if testenv.Receive(t, h.closed) != s || s.Err() == nil || s.Notify("x", nil) == nil {
		t.Error("the session goes on")
	}
	events(t, stream, nil)
	if r := e.post(ping, session); r.StatusCode != 404 {
		t.Errorf("status %d", r.StatusCode)
	}
	// By the handler, in the middle of a request.
	session = e.initialize(Version2025_11_25)
	if got := text(t, e.post(call("1", "end", ""), session)); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Error(got)
	}
	testenv.Receive(t, h.closed)
	// By an initialize that fails.
	e.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"fail":1}}`)
	testenv.Receive(t, h.closed)
	// By being idle, which it is not while a stream is open.
	session = e.initialize(Version2025_11_25)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	e.do(ctx, "GET", "", session)
	later(2 * time.Hour)
	if r := e.post(ping, session); r.StatusCode != 200 {
		t.Fatalf("status %d", r.StatusCode)
	}
	idle := e.initialize(Version2025_11_25)
	later(59 * time.Minute)
	e.post(ping, idle)
	later(59 * time.Minute)
	if len(h.closed) != 0 {
		t.Error("ended too early")
	}
	later(2 * time.Minute)
	if s := testenv.Receive(t, h.closed); s.ID() != strings.TrimPrefix(idle, headerSession+": ") || !strings.Contains(s.Err().Error(), "idle") {
		t.Errorf("%v", s.Err())
	}
}

func TestSessionIsRestored(t *testing.T) {
	h := newTestServer()
	asked := make(chan string, 10)
	e := serveHTTP(t, h, ServerOptions{Restore: func(_ context.Context, s *Session) (string, bool) {
		asked <- s.ID()
		s.SetValue("restored")
		_ = s.Notify("meanwhile", nil) // who does not listen does not hear
		return Version2025_06_18, s.ID() == "of-another-process"
	}})
	session := headerSession + ": of-another-process"
	e.postAside(call("1", "wait", ""), session)
	if r := testenv.Receive(t, h.started); r.Version != Version2025_06_18 || r.Session.Version() != r.Version || r.Session.Value() != "restored" || r.Session.ID() != "of-another-process" {
		t.Errorf("%+v", r)
	}
	h.proceed <- struct{}{}
	events(t, e.do(t.Context(), "GET", "", session, headerLastEvent+": ABC-0_3"), holds("meanwhile"))
	if r := e.post(call("1", "echo", ""), headerSession+": unknown"); r.StatusCode != 404 {
		t.Errorf("status %d", r.StatusCode)
	}
	if n := len(asked); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

// Whatever comes at once, a session is restored once, and not served before that.
func TestSessionIsRestoredOnce(t *testing.T) {
	asked, restored := make(chan string, 10), make(chan struct{})
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{Restore: func(_ context.Context, s *Session) (string, bool) {
		asked <- s.ID()
		select {
		case <-restored:
		case <-t.Context().Done(): // the test has failed
		}
		s.SetValue("restored")
		return Version2025_11_25, true
	}})
	arrived := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Method
		e.handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	e.url = server.URL
	session := headerSession + ": x"
	for i := range 8 {
		e.postAside(call(fmt.Sprint(i), "wait", ""), session)
	}
	for range 8 {
		testenv.Receive(t, arrived)
	}
	testenv.Receive(t, asked)
	close(restored)
	for range 8 {
		if r := testenv.Receive(t, h.started); r.Session.Value() != "restored" {
			t.Error("it is served before it was restored")
		}
	}
	if len(asked) > 0 {
		t.Errorf("asked %d times more", len(asked))
	}
	close(h.proceed)
}

// A session that a client has ended must not come back as long as the handler has not dealt with
// its end.
func TestEndedSessionIsNotRestored(t *testing.T) {
	h := newTestServer()
	h.closed = make(chan *Session) // so that Closed waits for us
	asked := make(chan string, 10)
	e := serveHTTP(t, h, ServerOptions{Restore: func(_ context.Context, s *Session) (string, bool) {
		asked <- s.ID()
		return "", false
	}})
	session := e.initialize(Version2025_11_25)
	if r := e.do(t.Context(), "DELETE", "", session); r.StatusCode != 204 {
		t.Errorf("status %d", r.StatusCode)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if r := e.do(t.Context(), method, "", session); r.StatusCode != 404 {
			t.Errorf("%s: status %d", method, r.StatusCode)
		}
	}
	if r := e.post(call("1", "echo", ""), session); r.StatusCode != 404 || len(asked) > 0 {
		t.Errorf("status %d, asked %d times", r.StatusCode, len(asked))
	}
	s := testenv.Receive(t, h.closed)
	<-s.gone
	if r := e.post(call("1", "echo", ""), session); r.StatusCode != 404 {
		t.Errorf("status %d", r.StatusCode)
	}
}

func TestCloseEndsEverything(t *testing.T) {
	noGoroutinesLeft(t)
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{StreamAfter: time.Millisecond, IdleTimeout: time.Hour})
	session := e.initialize(Version2025_11_25)
	standalone := e.do(t.Context(), "GET", "", session)
	legacy := e.post(call("1", "wait", ""), session)
	modern := e.post(call("1", "wait", ","+modernMeta), modern("tools/call", "wait")...)
	s := testenv.Receive(t, h.started).Session
	testenv.Receive(t, h.started)
	e.handler.Close()
	for range 2 {
		if cause := testenv.Receive(t, h.causes); !errors.Is(cause, ErrShutdown) {
			t.Errorf("cause: %v", cause)
		}
	}
	closed := testenv.Receive(t, h.closed)
	if !errors.Is(closed.Err(), ErrShutdown) || !errors.Is(s.Err(), ErrShutdown) {
		t.Errorf("%v, %v", closed.Err(), s.Err())
	}
	events(t, standalone, nil)
	events(t, legacy, nil)
	events(t, modern, nil)
	if r := e.post(call("1", "echo", ""), session); r.StatusCode != 503 {
		t.Errorf("status %d", r.StatusCode)
	}
	if r := e.do(t.Context(), "GET", "", session); r.StatusCode != 503 {
		t.Errorf("status %d", r.StatusCode)
	}
	e.handler.Close()
}
