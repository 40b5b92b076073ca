package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Peers that are written by hand, so that no library stands between a test and the wire. They know
// only what their transport needs.

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// rawMessage is a message as encoding/json takes it apart. The parts are as they came.
type rawMessage struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func parseRaw(text []byte) (m rawMessage) {
	if err := json.Unmarshal(text, &m); err != nil {
		panic(fmt.Sprintf("%v in %s", err, text))
	}
	return m
}

// rawServer is a server of one era. What it does not know it answers with -32601.
type rawServer struct {
	era mcp.Era
	// offers are further members of its answer to initialize or server/discover, such as
	// `,"instructions":"x"`.
	offers string
	// capabilities are those that it offers; empty: tools.
	capabilities string
	// serve answers a request, but for a handshake: with `"result":…` or `"error":…`, or not at all
	// if that is empty.
	serve func(q *rawRequest) string
	// notified gets the notifications, if it is not nil.
	notified func(m rawMessage)

	mu      sync.Mutex
	lastAsk int
	asked   map[string]chan rawMessage
}

// rawRequest is a request at a rawServer.
type rawRequest struct {
	rawMessage
	server *rawServer
	// say sends a message that belongs to the request, before its answer.
	say func(text string)
	// ctx ends when the client has left the request, over HTTP.
	ctx context.Context
}

// ask asks the client and waits for the answer. Without params the request has none.
func (q *rawRequest) ask(method, params string) rawMessage {
	s := q.server
	s.mu.Lock()
	s.lastAsk++
	id := fmt.Sprintf(`"ask-%d"`, s.lastAsk)
	answer := make(chan rawMessage, 1)
	if s.asked == nil {
		s.asked = map[string]chan rawMessage{}
	}
	s.asked[id] = answer
	s.mu.Unlock()
	if params != "" {
		params = `,"params":` + params
	}
	q.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q%s}`, id, method, params))
	select {
	case m := <-answer:
		return m
	case <-time.After(patience):
		return rawMessage{}
	}
}

// handle handles one message, and returns its answer if there must be one.
func (s *rawServer) handle(ctx context.Context, text []byte, say func(text string)) string {
	m := parseRaw(text)
	switch {
	case m.Method == "":
		s.mu.Lock()
		answer := s.asked[string(m.ID)]
		delete(s.asked, string(m.ID))
		s.mu.Unlock()
		if answer != nil {
			answer <- m
		}
		return ""
	case m.ID == nil:
		if s.notified != nil {
			s.notified(m)
		}
		return ""
	}
	body := s.handshake(m)
	if body == "" {
		body = s.serve(&rawRequest{m, s, say, ctx})
	}
	if body == "" {
		return ""
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, body)
}

func (s *rawServer) handshake(m rawMessage) string {
	capabilities := s.capabilities
	if capabilities == "" {
		capabilities = `{"tools":{"listChanged":true}}`
	}
	switch {
	case m.Method == "initialize" && s.era == mcp.Legacy:
		return `"result":{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `,"serverInfo":{"name":"raw","version":"1"}` + s.offers + `}`
	case m.Method == "initialize":
		return `"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"],"requested":"2025-11-25"}}`
	case m.Method == "server/discover" && s.era == mcp.Modern:
		return `"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":` + capabilities + s.offers + `}`
	case m.Method == "server/discover":
		return `"error":{"code":-32601,"message":"no"}`
	case m.Method == "subscriptions/listen" && s.era == mcp.Legacy:
		return `"error":{"code":-32601,"message":"no"}`
	}
	return ""
}

// serveHTTP is the server over streamable HTTP: the answer is a body, or events if something is
// said before it.
func (s *rawServer) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var mu sync.Mutex
	events := false
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		if !events {
			w.Header().Set("Content-Type", "text/event-stream")
			events = true
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
		w.(http.Flusher).Flush()
	}
	answer := s.handle(r.Context(), body, say)
	mu.Lock()
	defer mu.Unlock()
	switch {
	case events && answer != "":
		_, _ = fmt.Fprintf(w, "data: %s\n\n", answer)
	case events:
	case answer != "":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// serveStream is the server on lines, until they end.
func (s *rawServer) serveStream(r io.Reader, w io.Writer) {
	var mu sync.Mutex
	var running sync.WaitGroup
	defer running.Wait()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	say := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.WriteString(w, text+"\n")
	}
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		handle := func() {
			if answer := s.handle(ctx, line, say); answer != "" {
				say(answer)
			}
		}
		if parseRaw(line).ID == nil {
			handle() // in order
		} else {
			running.Go(handle)
		}
	}
}

// pipe is one end of a connection in this process.
type pipe struct {
	io.Reader
	io.Writer
	close func() error
}

func (p *pipe) Close() error { return p.close() }

// pipes connects two ends. Closing one ends both.
func pipes() (here, there *pipe) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	end := func() error {
		for _, c := range []io.Closer{w1, w2, r1, r2} {
			_ = c.Close()
		}
		return nil
	}
	return &pipe{r1, w2, end}, &pipe{r2, w1, end}
}

// target is where the gateway finds the server over a transport: http, stdio or sse.
func (s *rawServer) target(t testing.TB, transport string) mcp.Target {
	switch transport {
	case "stdio":
		return mcp.Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
			ours, theirs := pipes()
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.serveStream(theirs, theirs)
			}()
			return &pipe{ours, ours, func() error { defer func() { <-done }(); return ours.Close() }}, nil
		}}
	case "http":
		server := httptest.NewServer(http.HandlerFunc(s.serveHTTP))
		t.Cleanup(server.Close)
		return mcp.Target{URL: server.URL}
	}
	x := &rawSSE{rawServer: s, streams: map[string]chan string{}}
	server := httptest.NewServer(x)
	t.Cleanup(server.Close)
	return mcp.Target{URL: server.URL, SSE: true}
}

// rawSSE is a server over the transport of 2024-11-05.
type rawSSE struct {
	*rawServer
	mu      sync.Mutex
	streams map[string]chan string
}

func (x *rawSSE) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		out := make(chan string, 100)
		x.mu.Lock()
		id := fmt.Sprint(len(x.streams))
		x.streams[id] = out
		x.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "event: endpoint\ndata: /?stream=%s\n\n", id)
		for {
			w.(http.Flusher).Flush()
			select {
			case text := <-out:
				_, _ = fmt.Fprintf(w, "event: message\ndata: %s\n\n", text)
			case <-r.Context().Done():
				return
			}
		}
	}
	x.mu.Lock()
	out := x.streams[r.URL.Query().Get("stream")]
	x.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.WriteHeader(http.StatusAccepted)
	w.(http.Flusher).Flush()
	if answer := x.handle(context.Background(), body, func(text string) { out <- text }); answer != "" {
		out <- answer
	}
}

// open opens an access to servers.
func open(t testing.TB, servers ...gateway.Server) *gateway.Access {
	t.Helper()
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	a, err := g.Open(gateway.AccessOptions{Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

type jsonRaw = json.RawMessage

func unmarshal(text []byte, v any) error { return json.Unmarshal(text, v) }
