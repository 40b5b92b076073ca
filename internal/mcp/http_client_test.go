package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestClientFindsOutTheEraOverHTTP(t *testing.T) {
	rpcError := func(id json.RawMessage, code int, data string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no","data":%s}}`, id, code, data)
	}
	modern := `{"supportedVersions":["2026-07-28"]}`
	tests := []struct {
		name     string
		discover func(x clientExchange)
		era      Era    // "" if it cannot connect
		err      string // then
	}{
		{"modern", func(x clientExchange) { x.json(modern) }, Modern, ""},
		{"modern on a stream", func(x clientExchange) {
			x.stream()
			x.event("", `{"jsonrpc":"2.0","id":`+string(x.ID)+`,"result":`+modern+`}`)
		}, Modern, ""},
		{"text and 400", func(x clientExchange) { x.refuse(400, "Bad Request: no session") }, Legacy, ""},
		{"404", func(x clientExchange) { x.refuse(404, "") }, Legacy, ""},
		{"500", func(x clientExchange) { x.refuse(500, "<html>") }, Legacy, ""},
		{"an error with 200", func(x clientExchange) {
			x.w.Header().Set("Content-Type", clientJSON)
			x.refuse(200, rpcError(x.ID, -32601, "{}"))
		}, Legacy, ""},
		{"an error for no id", func(x clientExchange) { x.refuse(400, rpcError(json.RawMessage("null"), -32000, "{}")) }, Legacy, ""},
		{"legacy versions", func(x clientExchange) {
			x.refuse(400, rpcError(x.ID, CodeUnsupportedVersion, `{"supported":["2025-11-25","2025-06-18"]}`))
		}, Legacy, ""},
		{"nothing", func(x clientExchange) { x.w.WriteHeader(202) }, Legacy, ""},
		{"other versions", func(x clientExchange) {
			x.refuse(400, rpcError(x.ID, CodeUnsupportedVersion, `{"supported":["2031-01-01"]}`))
		}, "", "-32022"},
		{"a missing capability", func(x clientExchange) { x.refuse(400, rpcError(x.ID, CodeMissingCapability, "{}")) }, "", "-32021"},
		{"401", func(x clientExchange) { x.refuse(401, "who are you?\x1b[31m") }, "", "HTTP 401 Unauthorized: who are you? [31m"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			legacy := clientServeLegacy(t, nil)
			s := clientServe(t, func(x clientExchange) {
				if x.Method == MethodDiscover {
					if x.r.Header.Get("Mcp-Protocol-Version") != Version2026_07_28 || x.r.Header.Get("Mcp-Method") != MethodDiscover {
						t.Errorf("the headers are %v", x.r.Header)
					}
					test.discover(x)
					return
				}
				if x.r.Method == http.MethodPost {
					x.r.Body = io.NopCloser(bytes.NewReader(x.Encode()))
				}
				legacy.Config.Handler.ServeHTTP(x.w, x.r)
			})
			c, err := Connect(clientSoon(t), Target{URL: s.URL}, ClientOptions{})
			if test.era == "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "initialize") {
					t.Errorf("the error is %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if c.Era() != test.era {
				t.Errorf("the era is %s", c.Era())
			}
		})
	}
}

func TestClientTellsOfStatusesWithoutAnAnswer(t *testing.T) {
	var reply atomic.Value // of func(x clientExchange)
	s := clientServeLegacy(t, func(x clientExchange) {
		if x.r.Method == http.MethodPost {
			reply.Load().(func(x clientExchange))(x)
		}
	})
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Protocol: Legacy})
	id := func(x clientExchange) string { return string(x.ID) }
	tests := []struct {
		name   string
		reply  func(x clientExchange)
		status int // of a StatusError; 0: none
		code   int64
		is     error
	}{
		{"a proxy", func(x clientExchange) { x.refuse(502, "<html>\n bad gateway") }, 502, 0, nil},
		{"an answer", func(x clientExchange) {
			x.refuse(400, `{"jsonrpc":"2.0","id":`+id(x)+`,"error":{"code":-32602,"message":"session is a bad word"}}`)
		}, 0, -32602, nil},
		{"an answer without an id", func(x clientExchange) { x.refuse(500, `{"jsonrpc":"2.0","error":{"code":-1,"message":"m"}}`) }, 0, -1, nil},
		{"an answer for another", func(x clientExchange) { x.refuse(500, `{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"m"}}`) }, 500, 0, nil},
		{"403 with an answer", func(x clientExchange) {
			x.refuse(403, `{"jsonrpc":"2.0","id":`+id(x)+`,"error":{"code":-5,"message":"scope"}}`)
		}, 403, -5, nil},
		{"the session is lost", func(x clientExchange) { x.refuse(404, "session not found") }, 404, 0, ErrSessionLost},
		{"the session is lost, with an answer", func(x clientExchange) {
			x.refuse(404, `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`)
		}, 404, 0, ErrSessionLost},
		{"the session is lost at server-everything", func(x clientExchange) {
			x.refuse(400, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
		}, 400, 0, ErrSessionLost},
		{"no answer", func(x clientExchange) { x.w.WriteHeader(202) }, 0, 0, errClientMalformed},
		{"a web page", func(x clientExchange) { x.refuse(200, "<html>hello") }, 0, 0, errClientMalformed},
		{"a malformed answer", func(x clientExchange) { x.refuse(200, `{"jsonrpc":"2.0","id":`+id(x)+`}`) }, 0, 0, errClientMalformed},
		{"the answer to another call", func(x clientExchange) { x.refuse(200, `{"jsonrpc":"2.0","id":99,"result":{}}`) }, 0, 0, errClientMalformed},
		{"elsewhere", func(x clientExchange) {
			x.w.Header().Set("Location", "http://localhost:1/")
			x.w.WriteHeader(307)
		}, 307, 0, nil},
		{"cut", func(x clientExchange) {
			x.w.Header().Set("Content-Length", "100")
			x.refuse(200, `{"jsonrpc"`)
		}, 0, 0, ErrClosed},
		{"dead", func(clientExchange) { panic(http.ErrAbortHandler) }, 0, 0, ErrClosed},
		{"a stream without an answer", func(x clientExchange) { x.stream() }, 0, 0, ErrClosed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			reply.Store(test.reply)
			_, err := c.Call(clientSoon(t), Call{Method: "x"})
			var status *StatusError
			if got := errors.As(err, &status); got != (test.status != 0) || got && status.Status != test.status {
				t.Errorf("the error is %v; want status %d", err, test.status)
			}
			var answer *Error
			if got := errors.As(err, &answer); got != (test.code != 0) || got && answer.Code != test.code {
				t.Errorf("the error is %v; want code %d", err, test.code)
			}
			if err == nil || test.is != nil && !errors.Is(err, test.is) || errors.Is(err, ErrSessionLost) != errors.Is(test.is, ErrSessionLost) {
				t.Errorf("the error is %v; want %v", err, test.is)
			}
		})
	}
}

func TestClientTellsThatAServerIsNotThere(t *testing.T) {
	s := clientServeLegacy(t, nil)
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{})
	s.Close()
	if _, err := c.Call(clientSoon(t), Call{Method: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("the error is %v", err)
	}
	if c.Err() != nil {
		t.Errorf("the connection has ended: %v", c.Err())
	}
	_, err := Connect(clientSoon(t), Target{URL: s.URL + "/?key=hush"}, ClientOptions{})
	if !errors.Is(err, ErrClosed) || strings.Contains(err.Error(), "hush") {
		t.Errorf("the error of a new one is %v", err)
	}
}

func TestClientEndsTheSessionUnlessItIsDetached(t *testing.T) {
	var deleted atomic.Int64
	s := clientServeLegacy(t, func(x clientExchange) {
		session, version := x.r.Header.Get("Mcp-Session-Id"), x.r.Header.Get("Mcp-Protocol-Version")
		if session != "s1" || version != "2025-11-25" || x.r.Header.Get("X-Key") != "k" {
			t.Errorf("%s has the headers %v", x.r.Method, x.r.Header)
		}
		switch x.r.Method {
		case http.MethodDelete:
			deleted.Add(1)
		case http.MethodGet:
			x.refuse(405, "")
		default:
			x.json(`{"id":` + string(x.ID) + `}`)
		}
	})
	target := Target{URL: s.URL, Header: http.Header{"X-Key": {"k"}}}
	first := clientDial(t, target, ClientOptions{})
	if err := first.Detach(); err != nil || deleted.Load() != 0 {
		t.Errorf("detached: %v, %d deleted", err, deleted.Load())
	}
	text, err := json.Marshal(first.State())
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"era":"legacy","version":"2025-11-25","sessionId":"s1","hello":` + initializeAnswer + `}`; string(text) != want {
		t.Errorf("the state is %s", text)
	}
	var state SessionState
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}

	second := clientDial(t, target, ClientOptions{Session: &state})
	if diff := cmp.Diff(first.State(), second.State()); diff != "" || second.Era() != Legacy {
		t.Error(diff)
	}
	result, err := second.Call(clientSoon(t), Call{Method: "x"})
	if err != nil || len(clientMember(result, "id")) < 5 {
		t.Errorf("the call with an id that must be new: %s, %v", result, err)
	}
	if err := second.Close(); err != nil || deleted.Load() != 1 {
		t.Errorf("closed: %v, %d deleted", err, deleted.Load())
	}
	testenv.Receive(t, second.Done())
	if _, err := second.Call(clientSoon(t), Call{Method: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("the error of a later call is %v", err)
	}
}

func TestClientGoesOnWithoutAHandshakeInModern(t *testing.T) {
	s := clientServe(t, func(x clientExchange) {
		if x.r.Method != http.MethodPost || x.Method != "x" {
			t.Errorf("the client sent %s %s", x.r.Method, x.Method)
		}
		x.json(`{}`)
	})
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Session: &SessionState{Era: Modern, Version: Version2026_07_28}})
	if _, err := c.Call(clientSoon(t), Call{Method: "x"}); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestClientCancelsOverHTTP(t *testing.T) {
	for _, era := range []Era{Legacy, Modern} {
		t.Run(string(era), func(t *testing.T) {
			began, ended, told := make(chan string, 1), make(chan struct{}), make(chan message, 1)
			handle := func(x clientExchange) {
				switch x.Method {
				case "x":
					x.stream()
					began <- string(x.ID)
					<-x.r.Context().Done()
					close(ended)
				case NoteCancelled:
					told <- x.Message
				}
			}
			s := clientServeLegacy(t, handle)
			o := ClientOptions{Protocol: Legacy}
			if era == Modern {
				s = clientServe(t, handle)
				o = ClientOptions{Session: &SessionState{Era: Modern, Version: Version2026_07_28}}
			}
			c := clientDial(t, Target{URL: s.URL}, o)
			ctx, cancel := context.WithCancel(clientSoon(t))
			call := clientGo(ctx, c, Call{Method: "x"})
			id := testenv.Receive(t, began)
			cancel()
			if r := testenv.Receive(t, call); !errors.Is(r.err, context.Canceled) {
				t.Errorf("the error is %v", r.err)
			}
			testenv.Receive(t, ended)
			if err := c.Close(); err != nil { // which waits for what is being told
				t.Error(err)
			}
			if era == Legacy {
				if m := testenv.Receive(t, told); clientMember(m.Params, "requestId") != id {
					t.Errorf("the server was told %s", m.Params)
				}
			} else if len(told) > 0 {
				t.Error("a modern server was told")
			}
		})
	}
}

func TestClientCloseEndsCallsOverHTTP(t *testing.T) {
	began := make(chan struct{}, 1)
	s := clientServeLegacy(t, func(x clientExchange) {
		if x.Method == "x" {
			x.stream()
			began <- struct{}{}
			<-x.r.Context().Done()
		}
	})
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Protocol: Legacy})
	call := clientGo(clientSoon(t), c, Call{Method: "x"})
	testenv.Receive(t, began)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if r := testenv.Receive(t, call); !errors.Is(r.err, ErrClosed) {
		t.Errorf("the error is %v", r.err)
	}
}

func TestClientBoundsWhatItReads(t *testing.T) {
	large := `{"x":"` + strings.Repeat("x", 2000) + `"}`
	s := clientServeLegacy(t, func(x clientExchange) {
		switch x.Method {
		case "body":
			x.json(large)
		case "event":
			x.stream()
			x.event("e", `{"jsonrpc":"2.0","id":`+string(x.ID)+`,"result":`+large+`}`)
		case "endless":
			x.stream()
			for x.r.Context().Err() == nil {
				x.write("data: x\n")
			}
		default:
			x.refuse(405, "")
		}
	})
	c := clientDial(t, Target{URL: s.URL}, ClientOptions{Protocol: Legacy, MaxMessage: 1000})
	for _, method := range []string{"body", "event", "endless"} {
		if _, err := c.Call(clientSoon(t), Call{Method: method}); !errors.Is(err, errClientTooLong) {
			t.Errorf("%s: the error is %v", method, err)
		}
	}
}

func TestClientTellsNoOtherServerItsSecrets(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("the other server got %v", r.Header) }))
	defer other.Close()
	s := clientServe(t, func(x clientExchange) {
		switch x.r.URL.Path {
		case "/same":
			http.Redirect(x.w, x.r, "/mcp", http.StatusTemporaryRedirect)
		case "/mcp":
			x.json(`{"auth":"` + x.r.Header.Get("Authorization") + `"}`)
		default:
			http.Redirect(x.w, x.r, other.URL, http.StatusPermanentRedirect)
		}
	})
	o := ClientOptions{Session: &SessionState{Era: Modern, Version: Version2026_07_28}}
	h := http.Header{"authorization": {"Bearer t"}}
	result, err := clientDial(t, Target{URL: s.URL + "/same", Header: h}, o).Call(clientSoon(t), Call{Method: "x"})
	if err != nil || string(result) != `{"auth":"Bearer t"}` {
		t.Errorf("the same server: %s, %v", result, err)
	}
	_, err = clientDial(t, Target{URL: s.URL + "/other", Header: h}, o).Call(clientSoon(t), Call{Method: "x"})
	var status *StatusError
	if !errors.As(err, &status) || status.Status != http.StatusPermanentRedirect {
		t.Errorf("the other server: %v", err)
	}
}

// ends is a transport that loses the connection of the first request of a method to the end of
// another request.
type ends struct {
	method string
	with   error
	lost   atomic.Bool
}

func (e *ends) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == e.method && !e.lost.Swap(true) {
		return nil, e.with
	}
	return http.DefaultTransport.RoundTrip(r)
}

// That it happens is seen in one of some hundred runs of TestClientKeepsTheStandaloneStreamOpen.
func TestClientEndsTheSessionThoughItsConnectionEndsWithAnotherRequest(t *testing.T) {
	var ended atomic.Int64
	s := clientServeLegacy(t, func(x clientExchange) {
		if x.r.Method == http.MethodDelete {
			ended.Add(1)
		}
		x.refuse(404, "")
	})
	transport := &ends{method: http.MethodDelete, with: errClientClosed}
	c := clientDial(t, Target{URL: s.URL, HTTPClient: &http.Client{Transport: transport}}, ClientOptions{Protocol: Legacy})
	if err := c.Close(); err != nil || ended.Load() != 1 {
		t.Errorf("the session was ended %d times, %v", ended.Load(), err)
	}
}

// Not every server cancels the calls of a session that ends: it is told first which nobody waits for.
func TestClientTellsOfCancelledCallsBeforeItEndsTheSession(t *testing.T) {
	for _, sse := range []bool{false, true} {
		t.Run(fmt.Sprintf("SSE %v", sse), func(t *testing.T) {
			began, told, ended := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
			answers := make(chan string, 1)
			s := clientServe(t, func(x clientExchange) {
				switch {
				case x.Method == MethodInitialize && sse:
					answers <- `{"jsonrpc":"2.0","id":` + string(x.ID) + `,"result":` + initializeAnswer + `}`
				case x.Method == MethodInitialize:
					x.w.Header().Set("Mcp-Session-Id", "s1")
					x.json(initializeAnswer)
				case x.r.Method == http.MethodGet:
					x.stream()
					x.write("event: endpoint\ndata: messages\n\n")
					x.event("", <-answers)
					<-x.r.Context().Done()
					close(ended)
				case x.r.Method == http.MethodDelete:
					close(ended)
				case x.Method == "x":
					x.stream()
					began <- struct{}{}
					if !sse {
						<-x.r.Context().Done()
					}
				case x.Method == NoteCancelled:
					select {
					case <-ended:
						t.Error("the session has ended before the server was told")
					case <-time.After(50 * time.Millisecond): // in which a client that does not wait would have ended it
					}
					close(told)
				}
			})
			c := clientDial(t, Target{URL: s.URL, SSE: sse}, ClientOptions{Protocol: Legacy, NoStream: true})
			ctx, cancel := context.WithCancel(clientSoon(t))
			call := clientGo(ctx, c, Call{Method: "x"})
			testenv.Receive(t, began)
			cancel()
			testenv.Receive(t, call)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			testenv.Receive(t, told)
			testenv.Receive(t, ended)
		})
	}
}
