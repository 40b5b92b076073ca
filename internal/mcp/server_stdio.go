package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// ServeStdio serves one connection of messages on lines, of either era, until r ends or ctx is
// done; it returns when all handlers have. Requests are served concurrently and answered in any
// order. The error is nil if r has ended. Otherwise it is the cause of ctx, the error for a line
// that is longer than MaxMessage, or that of r or w. Of the options it uses only MaxMessage.
//
// Unless r has ended, r and w are closed if they are closers; a Read or a Write that does not
// return then is left behind. Give it a stdin that does not block: a read that blocks may stop the
// garbage collector for a minute.
func ServeStdio(ctx context.Context, r io.Reader, w io.Writer, h Handler, o ServerOptions) error {
	o = o.withDefaults()
	c := &stdioConn{broken: make(chan struct{})}
	c.out = jsonrpc.NewWriter(w, jsonrpc.WriterOptions{Failed: func(error) { close(c.broken) }})
	c.session = newSession(context.WithoutCancel(ctx), rand.Text(), "", "", h)
	c.session.out = c
	readError := make(chan error, 1)
	go func() { readError <- readLines(r, o.MaxMessage, c.receive) }()

	var err error
	select {
	case err = <-readError:
	case <-c.broken:
		err = c.failure()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if ctx.Err() != nil {
		c.session.end(fmt.Errorf("%w: %w", ErrShutdown, context.Cause(ctx)))
	} else {
		c.session.end(errEnded)
	}
	c.session.close()
	c.closed.Store(true)
	c.out.Flush(ctx)
	if err == nil {
		return c.failure()
	}
	closeIfCloser(r)
	closeIfCloser(w)
	return err
}

// maxQueue is how many bytes may wait for a client that does not read before notifications are
// refused. The length of a single message does not count: a client that reads must not be cut for
// the first long one.
const maxQueue = 8 << 20

// stdioConn is the messageSink of a connection.
type stdioConn struct {
	session *Session
	out     *jsonrpc.Writer
	broken  chan struct{} // closed when out has failed
	closed  atomic.Bool   // nothing is taken any more
}

// put has a message written. It takes an answer in any case, since there are not more answers than
// requests.
func (c *stdioConn) put(k messageKind, m *message) error {
	switch {
	case m == nil:
		return nil // nobody wants the answer
	case c.closed.Load():
		return errEnded
	case k != kindAnswer && c.out.Queued() >= maxQueue:
		return errFull
	}
	return c.write(m.Encode())
}

func (c *stdioConn) write(text []byte) error {
	if c.out.Put(jsonrpc.NewLine(text)) != nil {
		return c.failure()
	}
	return nil
}

// failure is the error of writing, for people.
func (c *stdioConn) failure() error {
	if err := c.out.Err(); err != nil {
		return fmt.Errorf("writing to the MCP client: %w", err)
	}
	return nil
}

func closeIfCloser(end any) {
	if closer, ok := end.(io.Closer); ok {
		_ = closer.Close() // there is nobody to tell
	}
}

// receive acts on a line: a message or a batch of them.
func (c *stdioConn) receive(line []byte) {
	messages, isBatch := jsonrpc.SplitBatch(line)
	switch {
	case !isBatch:
		c.receiveOne(line, c, false)
	case len(messages) == 0:
		_ = c.put(kindAnswer, errorMessage(nil, Errorf(CodeInvalidRequest, "an empty batch"))) // fails if the connection has
	default:
		b := &stdioBatch{conn: c, open: 1}
		for _, m := range messages {
			b.expect()
			c.receiveOne(m, b, true)
		}
		b.close()
	}
}

// receiveOne acts on one message. Its puts fail only if the connection has failed.
func (c *stdioConn) receiveOne(text []byte, out messageSink, inBatch bool) {
	refuse := func(id []byte, e *Error) { _ = out.put(kindAnswer, errorMessage(id, e)) }
	m, err := jsonrpc.Parse(text)
	switch {
	case err != nil:
		refuse(nil, invalidMessage(text))
		return
	case !m.IsRequest():
		c.session.receive(m)
		if b, ok := out.(*stdioBatch); ok {
			b.close()
		}
		return
	}
	r := &Request{Session: c.session, Method: m.Method, Params: m.Params,
		ID: m.ID, Era: Legacy, meta: serverMeta(m.Params), out: out}
	era := c.session.Era()
	if version := r.meta.Text(MetaProtocolVersion); version != "" {
		if e, ok := EraOf(version); !ok || e == Modern {
			r.Era, r.Version = Modern, version
		}
	} else if era == Modern && m.Method != MethodInitialize {
		r.Era = Modern
	}
	if era == "" {
		c.session.meet(r.Era)
	}
	if r.Era == Modern {
		invalid := checkMeta(r.Method, r.meta)
		if inBatch {
			invalid = Errorf(CodeInvalidRequest, "%s has no batches", Version2026_07_28)
		}
		if invalid != nil {
			refuse(r.ID, invalid)
			return
		}
	}
	if err := c.session.start(r); err != nil {
		refuse(r.ID, err)
	}
}

// meet records the era of a connection's first request.
func (s *Session) meet(era Era) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.era = era; era == Modern {
		s.version = Version2026_07_28
	}
}

// stdioBatch collects the answers to the requests of a batch. Everything else goes its way at once.
type stdioBatch struct {
	conn    *stdioConn
	mu      sync.Mutex
	open    int
	answers [][]byte
}

func (b *stdioBatch) expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open++
}

// close counts a message that needs no answer, and sends the answers if all messages have been
// counted.
func (b *stdioBatch) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open--; b.open == 0 && len(b.answers) > 0 {
		_ = b.conn.write(jsonrpc.JoinBatch(b.answers)) // fails if the connection has failed
	}
}

func (b *stdioBatch) put(k messageKind, m *message) error {
	if k != kindAnswer {
		return b.conn.put(k, m)
	}
	if m != nil {
		b.mu.Lock()
		b.answers = append(b.answers, m.Encode())
		b.mu.Unlock()
	}
	b.close()
	return nil
}

// errLongLine is for a message that exceeds MaxMessage.
var errLongLine = errors.New("a message of the MCP client is too long")

// readLines calls receive for the lines of r that are not empty, until r ends; then it returns nil.
func readLines(r io.Reader, maxLine int, receive func(line []byte)) error {
	lines := jsonrpc.NewReader(r, maxLine)
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, jsonrpc.ErrTooLong):
			return fmt.Errorf("%w: more than %d bytes", errLongLine, maxLine)
		case err != nil:
			return fmt.Errorf("reading from the MCP client: %w", err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			receive(line)
		}
	}
}
