package acp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// client is a handler that keeps what it is told.
type client struct {
	mu      sync.Mutex
	updates []Update
	asked   []PermissionRequest
	lines   []string // as recorded, with "< " or "> " before them
	noise   []string

	onUpdate func(Update)
	permit   func(context.Context, PermissionRequest) (PermissionOutcome, error)
}

func (c *client) Update(u Update) {
	c.mu.Lock()
	c.updates = append(c.updates, u)
	c.mu.Unlock()
	if c.onUpdate != nil {
		c.onUpdate(u)
	}
}

func (c *client) RequestPermission(ctx context.Context, req PermissionRequest) (PermissionOutcome, error) {
	c.mu.Lock()
	c.asked = append(c.asked, req)
	c.mu.Unlock()
	if c.permit == nil {
		return Allow(req.Options), nil
	}
	return c.permit(ctx, req)
}

func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.updates)
}

// text is all that the agent said.
func (c *client) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, u := range c.updates {
		if text, ok := u.Text(); ok && u.Kind == UpdateAgentMessage {
			b.WriteString(text)
		}
	}
	return b.String()
}

// options adds the recording of lines and noise.
func (c *client) options(o Options) Options {
	o.Record = func(dir Direction, line []byte) {
		mark := "< "
		if dir == ToAgent {
			mark = "> "
		}
		c.lines = append(c.lines, mark+string(line)) // Record is not called concurrently, and the tests read after Wait
	}
	o.Noise = func(line []byte) { c.noise = append(c.noise, string(line)) }
	return o
}

// peer is the agent's end of a connection, played by the test.
type peer struct {
	t   *testing.T
	in  *os.File
	out *os.File
	buf *bufio.Reader

	serving sync.WaitGroup
}

// rpc is a message as the peer sees it.
type rpc struct {
	ID, Params, Result, Error json.RawMessage
	Method                    string
}

// dial returns both ends of a connection over real pipes. What a test leaves open is closed after
// it.
func dial(t *testing.T, h Handler, o Options) (*Conn, *peer) {
	t.Helper()
	theirIn, ourOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ourIn, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := NewConn(ourOut, ourIn, h, o)
	p := &peer{t: t, in: theirIn, out: theirOut, buf: bufio.NewReader(theirIn)}
	t.Cleanup(func() {
		_ = c.Close()
		p.hangUp()
		p.serving.Wait()
		c.Wait()
		ourIn.Close()
	})
	return c, p
}

// hangUp ends the agent.
func (p *peer) hangUp() {
	p.out.Close()
	p.in.Close()
}

// next reads the client's next message.
func (p *peer) next() (m rpc, ok bool) {
	line, err := p.buf.ReadBytes('\n')
	if errors.Is(err, io.EOF) || errors.Is(err, os.ErrClosed) {
		return m, false
	}
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		p.t.Errorf("the client sent %q: %v", line, err)
	}
	return m, err == nil
}

// expect reads a message with a method, or, if it is "", an answer.
func (p *peer) expect(method string) rpc {
	p.t.Helper()
	m, ok := p.next()
	if !ok || m.Method != method {
		p.t.Fatalf("the client sent %+v; want method %q", m, method)
	}
	return m
}

func (p *peer) send(text string) {
	if _, err := io.WriteString(p.out, text); err != nil && !errors.Is(err, os.ErrClosed) {
		p.t.Errorf("send: %v", err)
	}
}

func (p *peer) answer(m rpc, result string) {
	p.send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + "}\n")
}

// serve answers requests on a goroutine, with the result that f returns, until f returns "" or the
// client is gone.
func (p *peer) serve(f func(rpc) string) {
	p.serving.Go(func() {
		for {
			m, ok := p.next()
			if !ok {
				return
			}
			result := f(m)
			if result == "" {
				return
			}
			p.answer(m, result)
		}
	})
}

// chunk is an update with a text.
func chunk(text string) string {
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` +
		`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"` + text + `"}}}}`
}

// testContext is a context that ends a test that hangs.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// background runs f on a goroutine and returns what it returns.
func background[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}
