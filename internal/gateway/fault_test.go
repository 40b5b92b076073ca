package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/testenv"
)

// echo answers every request with its arguments.
func echo(q *rawRequest) string {
	var p struct{ Arguments json.RawMessage }
	if err := json.Unmarshal(q.Params, &p); err != nil || p.Arguments == nil {
		return `"result":{"tools":[]}`
	}
	return `"result":{"content":[],"structuredContent":` + string(p.Arguments) + `}`
}

// echoes checks that a call of a tool works.
func echoes(t *testing.T, c *rawClient, arguments string) {
	t.Helper()
	m := c.call("tools/call", c.params(`"name":"echo","arguments":`+arguments, ""))
	if !strings.Contains(string(m.Result), `"structuredContent":`+arguments) {
		t.Errorf("the answer is %.200s %.200s, want %.100s", m.Result, m.Error, arguments)
	}
}

// fails checks that a call fails with a text.
func fails(t *testing.T, m rawMessage, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(string(m.Error), want) {
			t.Errorf("the answer is %.200s %.300s, want an error with %q", m.Result, m.Error, want)
		}
	}
}

// mortal is a server over stdio that can be killed.
type mortal struct {
	*rawServer
	mu     sync.Mutex
	starts int
	life   *pipe
}

func (s *mortal) target() mcp.Target {
	return mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
		ours, theirs := pipes()
		done := make(chan struct{})
		s.mu.Lock()
		s.starts++
		s.life = theirs
		s.mu.Unlock()
		go func() {
			defer close(done)
			s.serveStream(theirs, theirs)
		}()
		return &pipe{ours, ours, func() error { defer func() { <-done }(); return ours.Close() }}, nil
	}}
}

func (s *mortal) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.life.Close()
}

// eachEra runs a test with a client and a server of each era.
func eachEra(t *testing.T, run func(t *testing.T, client, server mcp.Era)) {
	for _, client := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		for _, server := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			t.Run(fmt.Sprintf("%s client, %s server", client, server), func(t *testing.T) {
				t.Parallel()
				run(t, client, server)
			})
		}
	}
}

// eachWay is eachEra for clients over HTTP and over stdio.
func eachWay(t *testing.T, run func(t *testing.T, client, server mcp.Era, downstream string)) {
	for _, downstream := range []string{"http", "stdio"} {
		t.Run(downstream, func(t *testing.T) {
			eachEra(t, func(t *testing.T, client, server mcp.Era) { run(t, client, server, downstream) })
		})
	}
}

func TestStdioServerDiesInACall(t *testing.T) {
	eachWay(t, func(t *testing.T, client, server mcp.Era, downstream string) {
		s := &mortal{}
		s.rawServer = &rawServer{era: server, serve: func(q *rawRequest) string {
			if strings.Contains(string(q.Params), "die") {
				s.die()
				return ""
			}
			return echo(q)
		}}
		a := open(t, gateway.Server{Name: "raw", Target: s.target(), Protocol: server})
		c := newClient(t, a, downstream, &rawClient{era: client})
		for range 3 {
			echoes(t, c, `{"a":1}`)
			fails(t, c.call("tools/call", c.params(`"name":"echo","arguments":{"what":"die"}`, "")), `raw`, "gone")
		}
		echoes(t, c, `{"a":2}`)
		if lost := a.Endpoint("raw").Stats().Lost; lost == "" {
			t.Error("the statistics do not say that the server was lost in a call")
		}
	})
}

func TestStdioServerDiesBetweenCalls(t *testing.T) {
	eachWay(t, func(t *testing.T, client, server mcp.Era, downstream string) {
		s := &mortal{rawServer: &rawServer{era: server, serve: echo}}
		a := open(t, gateway.Server{Name: "raw", Target: s.target(), Protocol: server})
		c := newClient(t, a, downstream, &rawClient{era: client})
		for i := range 3 {
			echoes(t, c, fmt.Sprintf(`{"a":%d}`, i))
			s.die()
			// Whether the next call meets a server that is known to be gone or not is a matter of
			// chance. It must not hang.
			if m := c.call("tools/call", c.params(`"name":"echo","arguments":{}`, "")); m.Result == nil {
				fails(t, m, "gone")
			}
			echoes(t, c, fmt.Sprintf(`{"b":%d}`, i))
		}
	})
}

// A server that has forgotten its sessions has not looked at the call: it is made again, and told
// what its client had told the one before.
func TestLegacyServerForgetsItsSessions(t *testing.T) {
	for _, client := range []mcp.Era{mcp.Legacy, mcp.Modern} {
		t.Run(string(client), func(t *testing.T) {
			var mu sync.Mutex
			var sessions int
			var said []string
			s := &rawServer{
				era: mcp.Legacy, capabilities: `{"tools":{},"logging":{},"resources":{"subscribe":true}}`, serve: func(q *rawRequest) string {
					mu.Lock()
					defer mu.Unlock()
					if q.Method == "logging/setLevel" || q.Method == "resources/subscribe" {
						said = append(said, fmt.Sprint(sessions, " ", q.Method, " ", string(q.Params)))
						return `"result":{}`
					}
					return echo(q)
				},
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				mu.Lock()
				switch {
				case strings.Contains(string(body), `"initialize"`):
					sessions++
					w.Header().Set("Mcp-Session-Id", fmt.Sprint("session-", sessions))
				case strings.Contains(string(body), `"server/discover"`):
				case r.Header.Get("Mcp-Session-Id") != fmt.Sprint("session-", sessions):
					mu.Unlock()
					w.WriteHeader(http.StatusNotFound)
					return
				}
				mu.Unlock()
				s.serveHTTP(w, r)
			}))
			defer server.Close()
			a := open(t, gateway.Server{Name: "raw", Target: mcp.Target{URL: server.URL}})
			c := newClient(t, a, "http", &rawClient{era: client})
			meta := ""
			if client == mcp.Legacy {
				c.call("logging/setLevel", `{"level":"info"}`)
				c.call("resources/subscribe", `{"uri":"test://a"}`)
			} else {
				meta = `"io.modelcontextprotocol/logLevel":"info"`
			}
			for i := range 3 {
				m := c.call("tools/call", c.params(`"name":"echo","arguments":{"a":1}`, meta))
				if m.Result == nil {
					t.Fatalf("%s", m.Error)
				}
				mu.Lock()
				sessions = 100 * (i + 1) // the next call finds its session unknown
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			for _, session := range []string{"1", "101", "201"} {
				if !slices.Contains(said, session+` logging/setLevel {"level":"info"}`) {
					t.Errorf("session %s was not told the level of logs: %q", session, said)
				}
				if client == mcp.Legacy && !slices.Contains(said, session+` resources/subscribe {"uri":"test://a"}`) {
					t.Errorf("session %s was not told of the resource: %q", session, said)
				}
			}
		})
	}
}

func TestHTTPServerDies(t *testing.T) {
	eachEra(t, func(t *testing.T, client, server mcp.Era) {
		s := &rawServer{era: server, serve: echo}
		var deaths atomic.Int32
		deaths.Store(-1000)
		upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch deaths.Add(-1) {
			case 2: // before it answers
				panic(http.ErrAbortHandler)
			case 1: // in the middle of its answer
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`)
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			case 0: // in the middle of its events
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, ": hello\n\ndata: {\"jsonrpc\"")
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			s.serveHTTP(w, r)
		}))
		t.Cleanup(upstream.Close)
		a := open(t, gateway.Server{Name: "raw", Target: mcp.Target{URL: upstream.URL}, Protocol: server})
		c := newClient(t, a, "http", &rawClient{era: client})
		echoes(t, c, `{"a":1}`)
		deaths.Store(3)
		for range 3 {
			fails(t, c.call("tools/call", c.params(`"name":"echo","arguments":{}`, "")), "raw", "gone")
		}
		echoes(t, c, `{"a":2}`)
	})
}

// A server that has said what it can do, and then says nothing.
func TestServerDoesNotAnswer(t *testing.T) {
	testenv.NeedSlow(t)
	for _, transport := range []string{"http", "stdio", "sse"} {
		for _, client := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			t.Run(fmt.Sprint(client, " client, ", transport), func(t *testing.T) {
				t.Parallel()
				cancelled := make(chan string, 10)
				waiting := make(chan struct{})
				s := &rawServer{era: mcp.Legacy, serve: func(q *rawRequest) string {
					if !strings.Contains(string(q.Params), "wait") {
						return echo(q)
					}
					for i := range 3 { // what says something is not given up
						time.Sleep(400 * time.Millisecond) // time is what this is about
						q.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%d}}`, i))
					}
					select {
					case <-waiting:
					case <-q.ctx.Done():
					}
					return ""
				}, notified: func(m rawMessage) {
					if m.Method == "notifications/cancelled" {
						cancelled <- string(m.Params)
					}
				}}
				a := open(t, gateway.Server{Name: "raw", Target: s.target(t, transport), Timeout: time.Second})
				t.Cleanup(func() { close(waiting) }) // before the server is closed
				c := newClient(t, a, "http", &rawClient{era: client})
				begin := time.Now()
				fails(t, c.call("tools/call", c.params(`"name":"echo","arguments":{"what":"wait"}`, "")), "raw", "too long", "1s")
				if took := time.Since(begin); took < 2*time.Second {
					t.Errorf("the call was given up after %v although the server said something", took)
				}
				if params := testenv.Receive(t, cancelled, "the cancellation"); !strings.Contains(params, "too long") {
					t.Errorf("the server was told %s", params)
				}
				echoes(t, c, `{"a":1}`)
			})
		}
	}
}
