package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
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

// ask asks the client and waits for the answer.
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
	q.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
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

// rawClient is a client of one era.
type rawClient struct {
	t   testing.TB
	era mcp.Era
	// capabilities are those that it declares.
	capabilities string
	// other gets what comes that is no answer; it returns what is to be sent back, if anything.
	other func(text []byte) string

	send    func(text string, answered func(text []byte)) error
	lastID  atomic.Int64
	url     string
	token   string
	session atomic.Value // string
}

// newClient makes a client of an endpoint over a transport: http, stdio, or bridge, which is stdio
// by way of HTTP. It has shaken hands.
func newClient(t testing.TB, a *gateway.Access, transport string, c *rawClient) *rawClient {
	t.Helper()
	c.t, c.token = t, a.Token()
	if transport != "stdio" {
		c.url = a.URL("raw")
	}
	c.session.Store("")
	if c.capabilities == "" {
		c.capabilities = "{}"
	}
	switch c.send = c.sendHTTP; transport {
	case "stdio":
		c.send = c.overLines(func(r io.Reader, w io.Writer) error { return a.ServeStdio(context.Background(), "raw", r, w) })
	case "bridge":
		c.send = c.overLines(func(r io.Reader, w io.Writer) error {
			return gateway.Bridge(context.Background(), c.url, c.token, r, w)
		})
	}
	if c.era == mcp.Modern {
		return c
	}
	m := c.call("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+c.capabilities+`,"clientInfo":{"name":"raw","version":"1"}}`)
	if m.Error != nil {
		t.Fatalf("initialize: %s", m.Error)
	}
	c.notify("notifications/initialized", "{}")
	return c
}

// modernMeta are the members of _meta that a modern request must have.
func (c *rawClient) modernMeta() string {
	return `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` + c.capabilities +
		`,"io.modelcontextprotocol/clientInfo":{"name":"raw","version":"1"}`
}

// params makes params of members and of members of _meta, to which a modern client adds its own.
func (c *rawClient) params(members, meta string) string {
	if c.era == mcp.Modern {
		if meta != "" {
			meta += ","
		}
		meta += c.modernMeta()
	}
	switch {
	case meta == "":
		return "{" + members + "}"
	case members != "":
		members += ","
	}
	return "{" + members + `"_meta":{` + meta + "}}"
}

// begin sends a request; the answer comes on the channel.
func (c *rawClient) begin(method, params string) <-chan rawMessage {
	id := fmt.Sprintf(`"raw-%d"`, c.lastID.Add(1))
	answers := make(chan rawMessage, 1)
	err := c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params), func(text []byte) {
		m := parseRaw(text)
		if string(m.ID) != id {
			c.t.Errorf("the answer to %s has the id %s", id, m.ID)
		}
		answers <- m
	})
	if err != nil {
		c.t.Errorf("%s: %v", method, err)
		close(answers)
	}
	return answers
}

// call sends a request and waits for its answer.
func (c *rawClient) call(method, params string) rawMessage {
	c.t.Helper()
	select {
	case m := <-c.begin(method, params):
		return m
	case <-time.After(patience):
		c.t.Fatalf("%s was not answered", method)
		return rawMessage{}
	}
}

func (c *rawClient) notify(method, params string) {
	c.t.Helper()
	if err := c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":%s}`, method, params), nil); err != nil {
		c.t.Errorf("%s: %v", method, err)
	}
}

// sendHTTP posts a message, and reads the answer on another goroutine if there must be one.
func (c *rawClient) sendHTTP(text string, answered func(text []byte)) error {
	m := parseRaw([]byte(text))
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url, strings.NewReader(text))
	if err != nil {
		return err
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + c.token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
	}
	if session := c.session.Load().(string); session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	if c.era == mcp.Modern {
		req.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		req.Header.Set("Mcp-Method", m.Method)
		var named struct{ Name, URI string }
		if json.Unmarshal(m.Params, &named) == nil && named.Name+named.URI != "" {
			req.Header.Set("Mcp-Name", named.Name+named.URI)
		}
	}
	read := func() error {
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if session := resp.Header.Get("Mcp-Session-Id"); session != "" {
			c.session.Store(session)
		}
		if resp.Header.Get("Content-Type") != "text/event-stream" {
			body, err := io.ReadAll(resp.Body)
			if err == nil && answered != nil {
				answered(body)
			}
			return err
		}
		in := bufio.NewReaderSize(resp.Body, 64<<10)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return nil //nolint:nilerr // whoever misses the answer says so
			}
			if data, ok := bytes.CutPrefix(bytes.TrimRight(line, "\n"), []byte("data: ")); ok && len(data) > 0 {
				c.received(data, answered)
			}
		}
	}
	if answered == nil {
		return read()
	}
	go func() {
		if err := read(); err != nil && c.t.Context().Err() == nil {
			c.t.Errorf("%s: %v", m.Method, err)
		}
	}()
	return nil
}

func (c *rawClient) received(data []byte, answered func([]byte)) {
	if m := parseRaw(data); m.Method == "" && answered != nil {
		answered(data)
	} else if c.other != nil {
		if reply := c.other(data); reply != "" {
			_ = c.send(reply, nil)
		}
	}
}

// overLines sends messages on lines to what serves them.
func (c *rawClient) overLines(serve func(r io.Reader, w io.Writer) error) func(text string, answered func([]byte)) error {
	ours, theirs := pipes()
	ended := make(chan error, 1)
	go func() { ended <- serve(theirs.Reader, theirs.Writer) }()
	var mu sync.Mutex
	waiting := map[string]func([]byte){}
	go func() {
		in := bufio.NewReaderSize(ours, 64<<10)
		for {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			line = bytes.TrimRight(line, "\n")
			m := parseRaw(line)
			mu.Lock()
			answered := waiting[string(m.ID)]
			if m.Method == "" {
				delete(waiting, string(m.ID))
			}
			mu.Unlock()
			c.received(line, answered)
		}
	}()
	c.t.Cleanup(func() {
		_ = ours.Close()
		select {
		case <-ended:
		case <-time.After(patience):
			c.t.Error("the client is still served")
		}
	})
	var writing sync.Mutex
	return func(text string, answered func([]byte)) error {
		if answered != nil {
			mu.Lock()
			waiting[string(parseRaw([]byte(text)).ID)] = answered
			mu.Unlock()
		}
		writing.Lock()
		defer writing.Unlock()
		_, err := io.WriteString(ours, text+"\n")
		return err
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
