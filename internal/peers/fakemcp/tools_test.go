package fakemcp

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalrun/evalrun/internal/testenv"
)

const deadline = 20 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T) *HTTPServer {
	t.Helper()
	s, err := StartHTTP(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// withHeader sends a token and a header of ours.
type withHeader struct{ token string }

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	r.Header.Set("X-Declared", "yes")
	return http.DefaultTransport.RoundTrip(r)
}

func connect(t *testing.T, transport mcp.Transport, version string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test-client", Version: "7"}, nil)
	session, err := client.Connect(within(t), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// has returns a condition: an entry like this is in the log.
func has(method, tool string, answered, cancelled bool) func([]Entry) bool {
	return func(log []Entry) bool {
		return slices.ContainsFunc(log, func(e Entry) bool {
			return e.Method == method && e.Tool == tool && e.Answered == answered && e.Cancelled == cancelled
		})
	}
}

// A client lists and calls the tools over every transport, in both eras of the protocol, cancels,
// and is found in the log.
func TestEveryTransport(t *testing.T) {
	for _, c := range []struct{ transport, version, first string }{
		{HTTP, "2025-06-18", "initialize"},
		{HTTP, "2025-11-25", "initialize"},
		{HTTP, "2026-07-28", "server/discover"},
		{SSE, "2025-06-18", "initialize"},
		{Stdio, "2025-11-25", "initialize"},
		{Stdio, "2026-07-28", "server/discover"},
	} {
		t.Run(c.transport+" "+c.version, func(t *testing.T) {
			marker := NewStdioMarker()
			var transport mcp.Transport
			var wait func(context.Context, func([]Entry) bool) error
			var read func() []Entry
			if c.transport == Stdio {
				cmd, file := stdioServer(t, marker)
				transport = &mcp.CommandTransport{Command: cmd}
				read = func() []Entry {
					log, err := ReadLog(file)
					if err != nil {
						t.Error(err)
					}
					return log
				}
				wait = func(ctx context.Context, until func([]Entry) bool) error {
					for !until(read()) {
						if ctx.Err() != nil {
							return ctx.Err()
						}
						runtime.Gosched() // a file does not tell when it grows
					}
					return nil
				}
			} else {
				s := start(t)
				marker, wait, read = s.Marker(c.transport), s.Wait, s.Log
				client := &http.Client{Transport: withHeader{s.Token()}}
				transport = &mcp.StreamableClientTransport{Endpoint: s.MCPURL(), HTTPClient: client}
				if c.transport == SSE {
					transport = &mcp.SSEClientTransport{Endpoint: s.SSEURL(), HTTPClient: client}
				}
			}
			session := connect(t, transport, c.version)
			if got := session.InitializeResult().ProtocolVersion; got != c.version {
				t.Errorf("got version %s", got)
			}

			list, err := session.ListTools(within(t), nil)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
			}
			if !slices.Equal(names, []string{ToolPrefix + c.transport, WaitTool}) {
				t.Errorf("got %v", names)
			}
			for _, call := range []struct {
				name string
				args map[string]any
				want string
				bad  bool
			}{
				{ToolPrefix + c.transport, nil, marker, false},
				{WaitTool, map[string]any{"ms": 1}, "waited 1 ms", false},
				{WaitTool, map[string]any{"ms": "long"}, `expected {"ms": milliseconds}, got {"ms":"long"}`, true},
				{WaitTool, map[string]any{"ms": -1}, `expected {"ms": milliseconds}, got {"ms":-1}`, true},
				{WaitTool, map[string]any{}, `expected {"ms": milliseconds}, got {}`, true},
			} {
				result, err := session.CallTool(within(t), &mcp.CallToolParams{Name: call.name, Arguments: call.args})
				if err != nil {
					t.Fatal(err)
				}
				if got := result.Content[0].(*mcp.TextContent).Text; got != call.want || result.IsError != call.bad {
					t.Errorf("%v: got %s, error %v", call, got, result.IsError)
				}
			}

			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := session.CallTool(ctx, &mcp.CallToolParams{Name: WaitTool, Arguments: map[string]any{"ms": 3_600_000}})
				done <- err
			}()
			long := func(log []Entry) bool {
				return slices.ContainsFunc(log, func(e Entry) bool { return strings.Contains(string(e.Params), "3600000") })
			}
			if err := wait(within(t), long); err != nil {
				t.Fatal(err)
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if err := wait(within(t), has("tools/call", WaitTool, true, true)); err != nil {
				t.Fatalf("%v: the cancel was not seen: %+v", err, read())
			}

			log := read()
			if log[0].Method == MethodStart {
				log = log[1:]
			}
			if log[0].Method != c.first || log[0].Answered || !strings.Contains(string(log[0].Params), "test-client") || log[0].Time.IsZero() {
				t.Errorf("got %+v", log[0])
			}
			if !has("tools/list", "", true, false)(log) || !has("tools/call", ToolPrefix+c.transport, true, false)(log) {
				t.Errorf("got %+v", log)
			}
			for _, e := range log {
				if c.transport != Stdio && (e.Header.Get("X-Declared") != "yes" || e.Header.Get("Authorization") != "") {
					t.Errorf("got the header %v of %s", e.Header, e.Method)
				}
				if e.Transport != c.transport {
					t.Errorf("got %+v", e)
				}
			}
			if err := session.Close(); err != nil {
				t.Error(err)
			}
			if c.transport == Stdio {
				if log := read(); log[len(log)-1].Method != MethodEnd || log[len(log)-1].Error != "" {
					t.Errorf("the end: got %+v", log[len(log)-1])
				}
			}
		})
	}
}

func TestWithoutTheToken(t *testing.T) {
	s := start(t)
	for i, header := range []string{"", "Bearer x", s.Token(), "Bearer " + s.Token() + "x"} {
		for _, url := range []string{s.MCPURL(), s.SSEURL()} {
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			r.Header.Set("Authorization", header)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			log := s.Log()
			if last := log[len(log)-1]; resp.StatusCode != 401 || last.Method != MethodRefused || last.Header.Get("Authorization") != "" || len(log) < 2*i+1 {
				t.Errorf("%q: got %d, %+v", header, resp.StatusCode, last)
			}
		}
	}
}

// A client that tries streamable HTTP on the SSE server is told so at once.
func TestPostToTheSSEServer(t *testing.T) {
	s := start(t)
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.SSEURL(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize"}`))
	r.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: withHeader{s.Token()}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("got %d", resp.StatusCode)
	}
}

// The first answer of a slow server takes its time.
func TestSlowToBegin(t *testing.T) {
	const delay = 200 * time.Millisecond
	s, err := StartHTTP(delay)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	client := &http.Client{Transport: withHeader{s.Token()}}
	for _, c := range []struct {
		transport mcp.Transport
		version   string
	}{
		{&mcp.StreamableClientTransport{Endpoint: s.MCPURL(), HTTPClient: client}, "2025-06-18"},
		{&mcp.StreamableClientTransport{Endpoint: s.MCPURL(), HTTPClient: client}, "2026-07-28"},
		{&mcp.SSEClientTransport{Endpoint: s.SSEURL(), HTTPClient: client}, "2025-06-18"},
	} {
		began := time.Now()
		session := connect(t, c.transport, c.version)
		if took := time.Since(began); took < delay {
			t.Errorf("%s: connected after %v", c.version, took)
		}
		if _, err := session.ListTools(within(t), nil); err != nil {
			t.Error(err)
		}
	}
	for _, e := range s.Log() {
		if first := e.Method == "initialize" || e.Method == "server/discover"; e.Answered && first && e.TookMs < delay.Milliseconds() {
			t.Errorf("got %+v", e)
		}
	}
}

// Sessions, their streams and calls end with the server.
func TestNothingIsLeft(t *testing.T) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := runtime.NumGoroutine()
	s, err := StartHTTP(0)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: withHeader{s.Token()}}
	var sessions []*mcp.ClientSession
	for _, transport := range []mcp.Transport{
		&mcp.StreamableClientTransport{Endpoint: s.MCPURL(), HTTPClient: client, MaxRetries: -1},
		&mcp.SSEClientTransport{Endpoint: s.SSEURL(), HTTPClient: client},
	} {
		session, err := mcp.NewClient(&mcp.Implementation{Name: "c"}, nil).Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
		if err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, session)
		go func() {
			_, _ = session.CallTool(t.Context(), &mcp.CallToolParams{Name: WaitTool, Arguments: map[string]any{"ms": 3_600_000}})
		}()
	}
	if err := s.Wait(within(t), func(log []Entry) bool {
		return len(slices.DeleteFunc(log, func(e Entry) bool { return e.Tool != WaitTool })) == 2
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, session := range sessions {
		_ = session.Close() // there is nobody left to tell
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	testenv.NoMoreGoroutines(t, before+1) // 1 for within
}
