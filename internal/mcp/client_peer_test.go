package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// clientLimit ends a test that hangs.
const clientLimit = 30 * time.Second

// clientSoon is a context that ends a test that hangs.
func clientSoon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), clientLimit)
	t.Cleanup(cancel)
	return ctx
}

// clientStdioPeer is a stdio server, played by the test.
type clientStdioPeer struct {
	net.Conn
	lines *bufio.Reader
}

// next reads the client's next message; ok is false once the client has gone.
func (p *clientStdioPeer) next() (m message, ok bool) {
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return m, false
	}
	m, err = jsonrpc.Parse(line)
	return m, err == nil
}

func (p *clientStdioPeer) say(text string) { _, _ = io.WriteString(p, text+"\n") } // a client that has gone is the test's intention

func (p *clientStdioPeer) answer(id json.RawMessage, result string) {
	p.say(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`)
}

// clientPlay is the target of a server that the test plays. Each start runs play on a goroutine,
// which ends before the test does.
func clientPlay(t *testing.T, play func(p *clientStdioPeer)) Target {
	var playing sync.WaitGroup
	t.Cleanup(playing.Wait)
	return Target{Start: func(context.Context) (io.ReadWriteCloser, error) {
		ours, theirs := net.Pipe()
		playing.Go(func() {
			defer theirs.Close()
			play(&clientStdioPeer{theirs, bufio.NewReader(theirs)})
		})
		return ours, nil
	}}
}

const initializeAnswer = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"raw","version":"1"},"_meta":{"uipath.com/job":{"version":1}}}`

// clientGreet plays the legacy handshake.
func clientGreet(p *clientStdioPeer) bool {
	m, ok := p.next()
	if !ok || m.Method != MethodInitialize {
		return false
	}
	p.answer(m.ID, initializeAnswer)
	m, ok = p.next()
	return ok && m.Method == NoteInitialized
}

// clientPlayLegacy is the target of a legacy server whose requests the test handles until it
// returns false.
func clientPlayLegacy(t *testing.T, handle func(p *clientStdioPeer, m message) bool) Target {
	return clientPlay(t, func(p *clientStdioPeer) {
		if !clientGreet(p) {
			return
		}
		for {
			m, ok := p.next()
			if !ok || !handle(p, m) {
				return
			}
		}
	})
}

// clientDial connects, and closes after the test.
func clientDial(t *testing.T, target Target, o ClientOptions) *Client {
	t.Helper()
	c, err := Connect(clientSoon(t), target, o)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func clientCallTool(name, arguments string) Call {
	return Call{Method: MethodToolsCall, Params: json.RawMessage(`{"name":"` + name + `","arguments":` + arguments + `}`)}
}

// clientResult is what a call came to.
type clientResult struct {
	result json.RawMessage
	err    error
}

// clientGo calls on a goroutine.
func clientGo(ctx context.Context, c *Client, call Call) <-chan clientResult {
	done := make(chan clientResult, 1)
	go func() {
		result, err := c.Call(ctx, call)
		done <- clientResult{result, err}
	}()
	return done
}

// clientNote is a notification that was received.
type clientNote struct{ method, params string }

// clientNotes keeps notifications.
type clientNotes struct {
	mu   sync.Mutex
	all  []clientNote
	came chan clientNote // nil: nobody waits
}

func (n *clientNotes) add(method string, params json.RawMessage) {
	note := clientNote{method, string(params)}
	n.mu.Lock()
	n.all = append(n.all, note)
	n.mu.Unlock()
	if n.came != nil {
		n.came <- note
	}
}

func (n *clientNotes) list() []clientNote {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]clientNote(nil), n.all...)
}

// clientExchange is one HTTP request as a server sees it.
type clientExchange struct {
	w http.ResponseWriter
	r *http.Request
	jsonrpc.Message
}

// isAnswer reports whether it brings the answer to a request of the server.
func (x clientExchange) isAnswer() bool { return x.r.Method == http.MethodPost && x.IsResponse() }

// write writes and flushes. A client that has gone is the test's intention.
func (x clientExchange) write(text string) {
	_, _ = io.WriteString(x.w, text)
	_ = http.NewResponseController(x.w).Flush()
}

func (x clientExchange) json(result string) {
	x.w.Header().Set("Content-Type", clientJSON)
	x.write(`{"jsonrpc":"2.0","id":` + string(x.ID) + `,"result":` + result + `}`)
}

// stream begins an SSE answer.
func (x clientExchange) stream() {
	x.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	x.w.WriteHeader(http.StatusOK)
	x.event("", "")
}

// event sends an event; without data only a comment.
func (x clientExchange) event(id, data string) {
	switch {
	case data == "":
		x.write(": nothing\n\n")
	case id == "":
		x.write("data: " + data + "\n\n")
	default:
		x.write("event: message\nid: " + id + "\ndata: " + data + "\n\n")
	}
}

func (x clientExchange) refuse(status int, body string) {
	x.w.WriteHeader(status)
	x.write(body)
}

// clientServe starts an HTTP server that the test plays: each request is handled by handle.
func clientServe(t *testing.T, handle func(x clientExchange)) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := clientExchange{w: w, r: r}
		body, err := io.ReadAll(r.Body)
		if err == nil && len(body) > 0 {
			x.Message, err = jsonrpc.Parse(body)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the client sent %q: %v", body, err)
		}
		handle(x)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// clientServeLegacy starts a legacy HTTP server with the session "s1". What is no handshake is
// handled by handle, if not nil.
func clientServeLegacy(t *testing.T, handle func(x clientExchange)) *httptest.Server {
	return clientServe(t, func(x clientExchange) {
		switch {
		case x.Method == MethodDiscover:
			x.refuse(http.StatusBadRequest, "Bad Request: what is this?")
		case x.Method == MethodInitialize:
			if got := x.r.Header.Get("Mcp-Protocol-Version") + x.r.Header.Get("Mcp-Session-Id"); got != "" {
				t.Errorf("initialize has the headers of a session: %q", got)
			}
			x.w.Header().Set("Mcp-Session-Id", "s1")
			x.json(initializeAnswer)
		case handle != nil && x.Method != NoteInitialized:
			handle(x)
		case x.r.Method == http.MethodGet:
			x.refuse(http.StatusMethodNotAllowed, "")
		default:
			x.w.WriteHeader(http.StatusAccepted)
		}
	})
}

// clientMember returns a member of a JSON object in dotted notation.
func clientMember(doc json.RawMessage, path ...string) string {
	for _, key := range path {
		o, err := jsonobj.ParseObject(doc)
		if err != nil {
			return ""
		}
		doc = o.Get(key)
	}
	return string(doc)
}
