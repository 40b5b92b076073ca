package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
						time.Sleep(100 * time.Millisecond) // time is what this is about
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
				a := open(t, gateway.Server{Name: "raw", Target: s.target(t, transport), Timeout: 200 * time.Millisecond})
				t.Cleanup(func() { close(waiting) }) // before the server is closed
				c := newClient(t, a, "http", &rawClient{era: client})
				begin := time.Now()
				fails(t, c.call("tools/call", c.params(`"name":"echo","arguments":{"what":"wait"}`, "")), "raw", "too long", "200ms")
				if took := time.Since(begin); took < 400*time.Millisecond {
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

// What a server says that makes no sense harms nobody but the call that it answers.
func TestServerTalksNonsense(t *testing.T) {
	for _, transport := range []string{"http", "stdio", "sse"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			nonsense := []string{
				`no JSON at all`, `{`, `[]`, `[1,2]`, `null`, `{}`, `{"jsonrpc":"2.0"}`, `{"jsonrpc":"1.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":999,"result":{}}`,
				`{"jsonrpc":"2.0","id":"1","result":{}}`, `{"jsonrpc":"2.0","id":null,"result":{}}`, `{"jsonrpc":"2.0","id":{},"result":{}}`, `{"jsonrpc":"2.0","method":7}`,
				`{"jsonrpc":"2.0","id":1,"method":""}`, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":77,"progress":1}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":[]}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":12345}}`,
				`{"jsonrpc":"2.0","method":"notifications/never/heard/of","params":null}`, "\x00\xff", strings.Repeat("[", 100000), `"` + strings.Repeat("x", 1<<20),
			}
			s := &rawServer{era: mcp.Legacy, serve: func(q *rawRequest) string {
				for _, text := range nonsense {
					q.say(text)
				}
				return echo(q)
			}}
			a := open(t, gateway.Server{Name: "raw", Target: s.target(t, transport)})
			for _, downstream := range []string{"http", "stdio"} {
				for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
					c := newClient(t, a, downstream, &rawClient{era: era})
					for i := range 3 {
						echoes(t, c, fmt.Sprintf(`{"a":%d}`, i))
					}
				}
			}
		})
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, answer := range map[string]string{
		"another id":        `{"jsonrpc":"2.0","id":4711,"result":{}}`,
		"no JSON":           `hello`,
		"result and error":  `{"jsonrpc":"2.0","id":%ID%,"result":{},"error":{"code":1,"message":"x"}}`,
		"neither":           `{"jsonrpc":"2.0","id":%ID%}`,
		"without a version": `{"id":%ID%,"result":{}}`,
		"nothing":           ``,
	} {
		t.Run(name, func(t *testing.T) {
			bad := true
			s := &rawServer{era: mcp.Legacy, serve: echo}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if m := (rawMessage{}); bad && json.Unmarshal(body, &m) == nil && m.Method == "tools/call" {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, strings.Replace(answer, "%ID%", string(m.ID), 1))
					return
				}
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				s.serveHTTP(w, r)
			}))
			defer server.Close()
			a := open(t, gateway.Server{Name: "raw", Target: mcp.Target{URL: server.URL}})
			c := newClient(t, a, "http", &rawClient{era: mcp.Legacy})
			fails(t, c.call("tools/call", c.params(`"name":"echo","arguments":{}`, "")), "raw", "not valid")
			bad = false
			echoes(t, c, `{"a":1}`)
		})
	}
}

// Schemas that no library takes are the client's business.
func TestOddSchemasGoThrough(t *testing.T) {
	const tools = `[{"name":"a"},{"name":"b","inputSchema":null},{"name":"c","inputSchema":{}},{"name":"d","inputSchema":true},{"name":"e","inputSchema":[1]},` +
		`{"name":"f","inputSchema":{"$ref":"http://127.0.0.1:1/x"},"outputSchema":7},{"name":7},"no tool",null]`
	eachEra(t, func(t *testing.T, client, server mcp.Era) {
		s := &rawServer{era: server, serve: func(q *rawRequest) string {
			if q.Method == "tools/list" {
				return `"result":{"resultType":"complete","tools":` + tools + `}`
			}
			return echo(q)
		}}
		a := open(t, gateway.Server{Name: "raw", Target: s.target(t, "http")})
		c := newClient(t, a, "http", &rawClient{era: client})
		if m := c.call("tools/list", c.params("", "")); !strings.Contains(string(m.Result), `"tools":`+tools) {
			t.Errorf("tools/list: %s %s", m.Result, m.Error)
		}
		for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
			if m := c.call("tools/call", c.params(`"name":"`+name+`","arguments":{"x":1}`, "")); m.Error != nil {
				t.Errorf("%s: %s", name, m.Error)
			}
		}
	})
}

// A tool that the filters hide cannot be called, whether the client has listed the tools or not.
func TestHiddenToolsCannotBeCalled(t *testing.T) {
	eachEra(t, func(t *testing.T, client, server mcp.Era) {
		s := &rawServer{era: server, serve: func(q *rawRequest) string {
			if q.Method == "tools/list" {
				return `"result":{"resultType":"complete","tools":[{"name":"echo","_meta":{"tags":["safe"]}},{"name":"rm","_meta":{"tags":["danger"]}},{"name":"plain"}]}`
			}
			return echo(q)
		}}
		for name, filter := range map[string]gateway.Filter{
			"excluded by its tag": {ExcludeTags: []string{"danger"}}, "without a tag to include": {IncludeTags: []string{"safe"}}, "not named": {Tools: []string{"echo"}},
		} {
			a := open(t, gateway.Server{Name: "raw", Target: s.target(t, "http"), Filter: filter})
			c := newClient(t, a, "http", &rawClient{era: client})
			for range 2 {
				fails(t, c.call("tools/call", c.params(`"name":"rm","arguments":{}`, "")), "Unknown tool: rm")
				echoes(t, c, `{"a":1}`)
				if m := c.call("tools/list", c.params("", "")); !strings.Contains(string(m.Result), `"echo"`) || strings.Contains(string(m.Result), `"rm"`) {
					t.Errorf("%s: tools/list: %s %s", name, m.Result, m.Error)
				}
			}
		}
	})
}

func TestLargeResults(t *testing.T) {
	testenv.NeedLong(t)
	large := `{"text":"` + strings.Repeat("0123456789abcde\\n", 10<<20/17) + `"}`
	for _, upstream := range []string{"http", "stdio", "sse"} {
		for _, downstream := range []string{"http", "stdio", "bridge"} {
			t.Run(upstream+" "+downstream, func(t *testing.T) {
				s := &rawServer{era: mcp.Legacy, serve: echo}
				a := open(t, gateway.Server{Name: "raw", Target: s.target(t, upstream)})
				for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
					c := newClient(t, a, downstream, &rawClient{era: era})
					echoes(t, c, large)
				}
			})
		}
	}
}

// 32 callers at once, each of which must get its own answers and no others.
func TestManyCallersLoseNothing(t *testing.T) {
	const callers, calls = 32, 10
	for _, p := range pairs() {
		t.Run(p.String(), func(t *testing.T) {
			s := &rawServer{era: p.server, serve: func(q *rawRequest) string {
				var params struct {
					Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
				}
				if json.Unmarshal(q.Params, &params) == nil && params.Meta.ProgressToken != nil {
					q.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(params.Meta.ProgressToken) + `,"progress":1}}`)
				}
				return echo(q)
			}}
			a := open(t, gateway.Server{Name: "raw", Target: s.target(t, p.upstream)})
			var mu sync.Mutex
			progress := map[string]int{}
			c := newClient(t, a, p.downstream, &rawClient{era: p.client, other: func(text []byte) string {
				var m struct {
					Params struct{ ProgressToken string }
				}
				if json.Unmarshal(text, &m) == nil {
					mu.Lock()
					progress[m.Params.ProgressToken]++
					mu.Unlock()
				}
				return ""
			}})
			var running sync.WaitGroup
			for i := range callers {
				running.Go(func() {
					for j := range calls {
						arguments := fmt.Sprintf(`{"caller":%d,"call":%d}`, i, j)
						answer := c.begin("tools/call", c.params(`"name":"echo","arguments":`+arguments, fmt.Sprintf(`"progressToken":"%d-%d"`, i, j)))
						select {
						case m := <-answer:
							if !strings.Contains(string(m.Result), arguments) {
								t.Errorf("%s was answered by %s %s", arguments, m.Result, m.Error)
							}
						case <-time.After(patience):
							t.Errorf("%s was not answered", arguments)
							return
						}
					}
				})
			}
			running.Wait()
			if len(progress) != callers*calls {
				t.Errorf("progress came of %d calls, want %d", len(progress), callers*calls)
			}
			for token, n := range progress {
				if n != 1 {
					t.Errorf("progress of %s came %d times", token, n)
				}
			}
		})
	}
}

func TestTwoClientsOfOneServer(t *testing.T) {
	s := &mortal{rawServer: &rawServer{era: mcp.Legacy, serve: echo}}
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	server := gateway.Server{Name: "raw", Target: s.target(), Protocol: mcp.Legacy}
	var accesses []*gateway.Access
	var clients []*rawClient
	for range 2 {
		a, err := g.Open(gateway.AccessOptions{Servers: []gateway.Server{server}})
		if err != nil {
			t.Fatal(err)
		}
		accesses = append(accesses, a)
		for range 2 {
			clients = append(clients, newClient(t, a, "http", &rawClient{era: mcp.Legacy}))
		}
	}
	for i, c := range clients {
		echoes(t, c, fmt.Sprintf(`{"client":%d}`, i))
	}
	if s.starts != len(clients) {
		t.Errorf("the server was started %d times for %d sessions", s.starts, len(clients))
	}
	if err := accesses[0].Close(); err != nil {
		t.Fatal(err)
	}
	echoes(t, clients[2], `{"still":"there"}`)
}

func TestTokens(t *testing.T) {
	s := &rawServer{era: mcp.Legacy, serve: echo}
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	access := func(name string) *gateway.Access {
		a, err := g.Open(gateway.AccessOptions{Servers: []gateway.Server{{Name: name, Target: s.target(t, "http")}}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, other, closed := access("one"), access("other"), access("one")
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	status := func(url string, header http.Header) int {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		req.Host = header.Get("Host")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	bearer := func(a *gateway.Access) http.Header { return http.Header{"Authorization": {"Bearer " + a.Token()}} }
	for _, test := range []struct {
		name   string
		url    string
		header http.Header
		want   int
	}{
		{"its own", one.URL("one"), bearer(one), 200},
		{"its own in the URL", one.URLWithToken("one"), http.Header{}, 200},
		{"none", one.URL("one"), http.Header{}, 401},
		{"empty", one.URL("one"), http.Header{"Authorization": {"Bearer "}}, 401},
		{"of nobody", one.URL("one"), http.Header{"Authorization": {"Bearer x" + one.Token()}}, 401},
		{"of another access", one.URL("one"), bearer(other), 404},
		{"of another access in the URL", strings.Replace(one.URLWithToken("one"), one.Token(), other.Token(), 1), http.Header{}, 404},
		{"of a closed access", one.URL("one"), bearer(closed), 401},
		{"of a closed access in the URL", closed.URLWithToken("one"), http.Header{}, 401},
		{"for another server", one.URL("other"), bearer(one), 404},
		{"no such path", strings.Replace(one.URL("one"), "/mcp/", "/", 1), bearer(one), 404},
		{"another host", one.URL("one"), http.Header{"Authorization": {"Bearer " + one.Token()}, "Host": {"evil.example.com"}}, 403},
		{"another host, none", one.URL("one"), http.Header{"Host": {"evil.example.com"}}, 403},
		{"another site", one.URLWithToken("one"), http.Header{"Origin": {"https://evil.example.com"}}, 403},
		{"a site of this machine", one.URLWithToken("one"), http.Header{"Origin": {"http://localhost:3000"}}, 200},
	} {
		if got := status(test.url, test.header); got != test.want {
			t.Errorf("token %s: HTTP %d, want %d", test.name, got, test.want)
		}
	}
}

// A server that wants credentials is not one that cannot be reached. Its challenge reaches the
// client.
func TestServerWantsCredentials(t *testing.T) {
	t.Parallel()
	const challenge = `Bearer resource_metadata="https://example.com/.well-known/oauth-protected-resource"`
	s := &rawServer{era: mcp.Legacy, serve: echo}
	var signedIn atomic.Bool
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !signedIn.Load() {
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"sign in"}}`)
			return
		}
		s.serveHTTP(w, r)
	}))
	defer h.Close()
	a := open(t, gateway.Server{Name: "raw", Target: mcp.Target{URL: h.URL}})
	wanted := func(err error) {
		t.Helper()
		var said *mcp.Error
		if !errors.As(err, &said) || !strings.Contains(said.Message, `MCP server "raw" wants other credentials`) || !strings.Contains(said.Message, challenge) {
			t.Fatal(err)
		}
		data := struct {
			Status          int
			WWWAuthenticate string
		}{}
		if err := json.Unmarshal(said.Data(), &data); err != nil || data.Status != 401 || data.WWWAuthenticate != challenge {
			t.Errorf("%s, %v", said.Data(), err)
		}
	}
	connect := func() (*mcp.Client, error) {
		return mcp.Connect(soon(t), mcp.Target{URL: a.URLWithToken("raw")}, mcp.ClientOptions{Protocol: mcp.Legacy})
	}
	_, err := connect()
	wanted(err)
	signedIn.Store(true)
	c, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	signedIn.Store(false) // the token has expired
	_, err = c.Call(soon(t), mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(`{"name":"echo","arguments":{}}`)})
	wanted(err)
}

// Who bears no token is told so before the body has come, which is not waited for.
func TestHalfABodyWithoutAToken(t *testing.T) {
	t.Parallel()
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	conn, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /mcp/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn) // until the gateway has closed the connection
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") {
		t.Errorf("%s, %v", answer, err)
	}
}

// What a client sends that makes no sense is refused, and the next call works.
func TestClientTalksNonsense(t *testing.T) {
	s := &rawServer{era: mcp.Legacy, serve: echo}
	a := open(t, gateway.Server{Name: "raw", Target: s.target(t, "stdio")})
	for _, transport := range []string{"http", "stdio", "bridge"} {
		for _, era := range []mcp.Era{mcp.Legacy, mcp.Modern} {
			c := newClient(t, a, transport, &rawClient{era: era})
			for _, text := range []string{
				`{`, `nothing`, `[]`, `7`, `{"jsonrpc":"2.0","id":{},"method":"tools/call"}`, `{"jsonrpc":"2.0","id":7}`, `{"id":7,"method":"ping"}`,
				`{"jsonrpc":"2.0","id":true,"method":"tools/call","params":[]}`, `{"jsonrpc":"2.0","id":"never asked","result":{}}`,
			} {
				if transport != "http" {
					if err := c.send(text, nil); err != nil {
						t.Fatal(err)
					}
					continue
				}
				req, err := http.NewRequest(http.MethodPost, a.URLWithToken("raw"), strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Content-Type", "application/json")
				if era == mcp.Modern {
					req.Header.Set("Mcp-Protocol-Version", mcp.Version2026_07_28)
				}
				if session := c.session.Load().(string); session != "" {
					req.Header.Set("Mcp-Session-Id", session)
				}
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
				if resp.StatusCode >= 500 {
					t.Errorf("%s: HTTP %d", text, resp.StatusCode)
				}
			}
			for _, params := range []string{`[]`, `"x"`, `{"arguments":{}}`, `{"name":7,"arguments":[]}`, `null`} {
				if m := c.call("tools/call", params); m.Error == nil && m.Result == nil {
					t.Errorf("%s was not answered", params)
				}
			}
			echoes(t, c, `{"a":1}`)
		}
	}
}
