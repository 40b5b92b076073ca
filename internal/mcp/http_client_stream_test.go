package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestClientReadsTheStreamOfACall(t *testing.T) {
	answered := make(chan message, 1)
	s := clientServeLegacy(t, func(x clientExchange) {
		switch {
		case x.isAnswer():
			x.w.WriteHeader(202)
			answered <- x.Message
		case x.Method == "x":
			x.stream()
			token := clientMember(x.Params, "_meta", "progressToken")
			for i := range 100 {
				x.event("", fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i))
			}
			x.event("", `{"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{}}`)
			select {
			case m := <-answered:
				x.event("", `{"jsonrpc":"2.0","method":"notifications/message","params":`+string(m.Result)+`}`)
			case <-x.r.Context().Done():
			}
			x.event("", `{"jsonrpc":"2.0","id":`+string(x.ID)+",\ndata:\"result\":{\"n\":9007199254740993}}")
		default:
			x.refuse(405, "")
		}
	})
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Protocol: Legacy})
	var got, want []clientNote
	for i := range 100 {
		want = append(want, clientNote{NoteProgress, fmt.Sprintf(`{"progressToken":"mine","progress":%d}`, i)})
	}
	want = append(want, clientNote{NoteMessage, `{"action":"accept"}`})
	result, err := c.Call(clientSoon(t), Call{
		Method: "x", Params: json.RawMessage(`{"_meta":{"progressToken":"mine"}}`),
		Notified: func(method string, params json.RawMessage) { got = append(got, clientNote{method, string(params)}) },
		Asked: func(context.Context, string, json.RawMessage) (json.RawMessage, *Error) {
			return json.RawMessage(`{"action":"accept"}`), nil
		},
	})
	if err != nil || string(result) != `{"n":9007199254740993}` {
		t.Errorf("the result is %s, %v", result, err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(clientNote{})); diff != "" {
		t.Error(diff)
	}
}

func TestClientResumesACutStream(t *testing.T) {
	var waits []time.Duration
	var mu sync.Mutex
	wait := func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		waits = append(waits, d)
		mu.Unlock()
		return ctx.Err()
	}
	var id string
	s := clientServeLegacy(t, func(x clientExchange) {
		last := x.r.Header.Get("Last-Event-ID")
		note := func(n int) string {
			return fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/n","params":{"n":%d}}`, n)
		}
		switch {
		case x.Method == "x":
			id = string(x.ID)
			x.stream()
			x.event("e1", note(1))
			panic(http.ErrAbortHandler)
		case last == "":
			x.refuse(405, "")
		case last == "e1":
			x.stream()
			x.write("id: e2\nretry: 1234\ndata\n\n") // as servers prime a client that is to come back
			x.event("e3", note(2))
			x.write("id: e4\ndata: {\"cut") // which does not count
		case last == "e3":
			x.stream()
			x.event("e5", `{"jsonrpc":"2.0","id":`+id+`,"result":{}}`)
		default:
			t.Errorf("Last-Event-ID is %s", last)
		}
	})
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Protocol: Legacy, wait: wait})
	var got []string
	_, err := c.Call(clientSoon(t), Call{Method: "x", Notified: func(_ string, params json.RawMessage) { got = append(got, string(params)) }})
	if err != nil || strings.Join(got, " ") != `{"n":1} {"n":2}` {
		t.Errorf("the call got %v, %v", got, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]time.Duration{0, 1234 * time.Millisecond}, waits); diff != "" {
		t.Error(diff)
	}
}

func TestClientFailsACallWhoseStreamCannotBeResumed(t *testing.T) {
	s := clientServeLegacy(t, func(x clientExchange) {
		if x.Method != "x" {
			x.refuse(404, "")
			return
		}
		x.stream()
		x.event("e1", `{"jsonrpc":"2.0","method":"notifications/n"}`)
	})
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Protocol: Legacy})
	if _, err := c.Call(clientSoon(t), Call{Method: "x"}); !errors.Is(err, ErrClosed) || errors.Is(err, ErrSessionLost) {
		t.Errorf("the error is %v", err)
	}
}

func TestClientKeepsTheStandaloneStreamOpen(t *testing.T) {
	waits := make(chan time.Duration)
	wait := func(ctx context.Context, d time.Duration) error {
		select {
		case waits <- d:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	asked := make(chan message, 1)
	var streams atomic.Int64
	s := clientServeLegacy(t, func(x clientExchange) {
		if x.isAnswer() {
			x.w.WriteHeader(202)
			asked <- x.Message
			return
		}
		if x.r.Method != http.MethodGet {
			return
		}
		switch streams.Add(1) {
		case 1:
			x.stream()
			x.event("a", `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		case 2:
			x.refuse(503, "")
		case 3:
			x.refuse(409, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Conflict: Only one SSE stream is allowed per session"},"id":null}`)
		case 4:
			if x.r.Header.Get("Last-Event-ID") != "a" {
				t.Errorf("the headers are %v", x.r.Header)
			}
			x.stream()
			x.event("", `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)
		default:
			x.refuse(404, "")
		}
	})
	notes := clientNotes{came: make(chan clientNote, 9)}
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Protocol: Legacy, Notified: notes.add, wait: wait,
		Asked: func(context.Context, string, json.RawMessage) (json.RawMessage, *Error) {
			return json.RawMessage(`{"roots":[]}`), nil
		}})
	if note := testenv.Receive(t, notes.came); note.method != "notifications/tools/list_changed" {
		t.Errorf("the note is %v", note)
	}
	for i, want := range []time.Duration{time.Second, time.Second, 2 * time.Second, time.Second} {
		if got := testenv.Receive(t, waits); got != want {
			t.Errorf("wait %d is %v; want %v", i, got, want)
		}
	}
	if m := testenv.Receive(t, asked); string(m.Encode()) != `{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}` {
		t.Errorf("the answer is %s", m.Encode())
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
