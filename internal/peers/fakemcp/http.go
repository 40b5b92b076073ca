package fakemcp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// statelessSince is the first version of MCP whose clients have no sessions. The SDK's handler
// serves either them or the older ones.
const statelessSince = "2026-07-28"

// HTTPServer serves MCP over streamable HTTP and over SSE. It is safe for concurrent use.
type HTTPServer struct {
	token    string
	markers  map[string]string
	delay    time.Duration
	listener net.Listener
	server   *http.Server
	serving  sync.WaitGroup
	// overHTTP serves the clients of MCPURL; each connection to SSEURL has a server of its own.
	overHTTP *mcp.Server
	done     chan struct{}
	closing  sync.Once

	mu      sync.Mutex
	entries []Entry
	// changed is closed when entries change, and replaced.
	changed chan struct{}
}

// StartHTTP starts a server on 127.0.0.1. Its first answer to a client, that to initialize, takes
// delay. It must be closed.
func StartHTTP(delay time.Duration) (*HTTPServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("MCP servers of the probe: %w", err)
	}
	s := &HTTPServer{
		token: rand.Text(), markers: map[string]string{HTTP: newMarker(HTTP), SSE: newMarker(SSE)},
		delay: delay, listener: listener, done: make(chan struct{}), changed: make(chan struct{}),
	}
	s.overHTTP = served{transport: HTTP, marker: s.markers[HTTP], delay: delay, log: s.add, done: s.done}.server()
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.streamable())
	mux.Handle("/sse", s.sse())
	s.server = &http.Server{Handler: s.guard(mux), ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.serving.Go(func() { _ = s.server.Serve(listener) }) // ends with Close
	return s, nil
}

func newMarker(transport string) string { return "marker-" + transport + "-" + rand.Text() }

// streamable serves clients of both eras on one path.
func (s *HTTPServer) streamable() http.Handler {
	get := func(*http.Request) *mcp.Server { return s.overHTTP }
	stateful := mcp.NewStreamableHTTPHandler(get, nil)
	// Without the second option a call would go on after its client has gone.
	stateless := mcp.NewStreamableHTTPHandler(get,
		&mcp.StreamableHTTPOptions{Stateless: true, PropagateRequestCancellation: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") >= statelessSince && r.Header.Get("Mcp-Session-Id") == "" {
			stateless.ServeHTTP(w, r)
		} else {
			stateful.ServeHTTP(w, r)
		}
	})
}

// sse serves clients of 2024. opencode tries streamable HTTP first, and wants to learn at once that
// this is something else.
func (s *HTTPServer) sse() http.Handler {
	handler := mcp.NewSSEHandler(func(r *http.Request) *mcp.Server {
		return served{transport: SSE, marker: s.markers[SSE], delay: s.delay,
			header: withoutCredentials(r.Header), log: s.add, done: s.done}.server()
	}, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.Query().Get("sessionid") == "" {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "this is an SSE server: begin with GET", http.StatusMethodNotAllowed)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

// guard checks the token.
func (s *HTTPServer) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.token)) == 1 {
			next.ServeHTTP(w, r)
			return
		}
		transport := HTTP
		if r.URL.Path == "/sse" {
			transport = SSE
		}
		s.add(Entry{Time: time.Now(), Transport: transport, Method: MethodRefused, Header: withoutCredentials(r.Header),
			Error: r.Method + " " + r.URL.Path + " without the right token"})
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "wrong or missing token", http.StatusUnauthorized)
	})
}

// MCPURL is the URL for streamable HTTP.
func (s *HTTPServer) MCPURL() string { return s.url("/mcp") }

// SSEURL is the URL for SSE.
func (s *HTTPServer) SSEURL() string { return s.url("/sse") }

func (s *HTTPServer) url(path string) string { return "http://" + s.listener.Addr().String() + path }

// Token is the token that a client must send as Authorization: Bearer.
func (s *HTTPServer) Token() string { return s.token }

// Marker returns the text that the tool of a transport returns.
func (s *HTTPServer) Marker(transport string) string { return s.markers[transport] }

// Log returns what the server has seen so far.
func (s *HTTPServer) Log() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entries)
}

// Wait waits until the function accepts the log. The error is that of the context.
func (s *HTTPServer) Wait(ctx context.Context, until func([]Entry) bool) error {
	for {
		s.mu.Lock()
		entries, changed := slices.Clone(s.entries), s.changed
		s.mu.Unlock()
		if until(entries) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}

// Close ends the server, its connections and sessions.
func (s *HTTPServer) Close() error {
	s.closing.Do(func() { close(s.done) })
	err := s.server.Close()
	s.serving.Wait()
	for session := range s.overHTTP.Sessions() {
		_ = session.Close() // its connection is closed already
	}
	return err
}

func (s *HTTPServer) add(e Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries = append(s.entries, e)
	close(s.changed)
	s.changed = make(chan struct{})
}
