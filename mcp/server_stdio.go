package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

// ServeStdio serves one connection of messages on lines, of either era, until r ends or ctx is done; it returns when all handlers have.
// Requests are served concurrently and answered in any order. The error is nil if r has ended, else the cause of ctx, a line that is longer
// than MaxMessage, or what r or w failed with. Only MaxMessage of the options counts.
//
// Unless r has ended, r and w are closed if they are closers; a Read or a Write that does not return from that is left behind. Give it a
// non-blocking stdin: a blocking read may stop the garbage collector for a minute (docs/gateway.md).
func ServeStdio(ctx context.Context, r io.Reader, w io.Writer, h Handler, o ServerOptions) error {
	o = o.withDefaults()
	c := &stdioConn{w: w, wake: make(chan struct{}, 1), broken: make(chan struct{}), written: make(chan struct{})}
	c.session = newSession(context.WithoutCancel(ctx), "", "", "", h)
	c.session.out = c
	go c.write()
	lines, readError := make(chan []byte), make(chan error, 1)
	done := make(chan struct{})
	go func() { readError <- readLines(r, o.MaxMessage, lines, done) }()

	var err error
	for open := true; open; {
		select {
		case line := <-lines:
			c.receive(line)
		case err = <-readError:
			open = false
		case <-c.broken:
			err, open = c.failure(), false
		case <-ctx.Done():
			err, open = context.Cause(ctx), false
		}
	}
	close(done)
	if ctx.Err() != nil {
		c.session.end(fmt.Errorf("%w: %w", ErrShutdown, context.Cause(ctx)))
	} else {
		c.session.end(errEnded)
	}
	c.session.close(true)
	c.finish(ctx)
	if err == nil {
		return c.failure()
	}
	closeIfCloser(r)
	closeIfCloser(w)
	return err
}

// maxQueue is how much may wait for a client that does not read, in bytes, before notifications are refused.
const maxQueue = 8 << 20

// stdioConn is the outlet of a connection. One goroutine writes, so that messages do not mix and nobody waits for the client but those who have
// an answer for it.
type stdioConn struct {
	session *Session
	w       io.Writer
	wake    chan struct{}
	broken  chan struct{} // closed when w has failed
	written chan struct{} // closed when write has returned

	mu     sync.Mutex
	queue  [][]byte
	queued int
	closed bool
	err    error
}

// put queues a message. An answer is taken in any case: there are not more of them than requests.
func (c *stdioConn) put(k messageKind, message []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case message == nil:
		return nil // nobody wants the answer
	case c.err != nil:
		return c.err
	case c.closed:
		return errEnded
	case k != kindAnswer && c.queued+len(message) > maxQueue:
		return errFull
	}
	c.queue = append(c.queue, append(onOneLine(message), '\n'))
	c.queued += len(message)
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return nil
}

// write writes what is queued until the queue is closed and empty, or w fails.
func (c *stdioConn) write() {
	defer close(c.written)
	for range c.wake {
		for {
			c.mu.Lock()
			if len(c.queue) == 0 {
				closed := c.closed
				c.mu.Unlock()
				if closed {
					return
				}
				break
			}
			line := c.queue[0]
			c.queue[0] = nil
			c.queue = c.queue[1:]
			c.queued -= len(line) - 1
			c.mu.Unlock()
			if _, err := c.w.Write(line); err != nil {
				c.mu.Lock()
				c.err = fmt.Errorf("writing to the MCP client: %w", err)
				c.mu.Unlock()
				close(c.broken)
				return
			}
		}
	}
}

func (c *stdioConn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// finish has the rest written, for which a context that is done does not wait.
func (c *stdioConn) finish(ctx context.Context) {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
	select {
	case <-c.written:
	case <-ctx.Done():
	}
}

func closeIfCloser(end any) {
	if closer, ok := end.(io.Closer); ok {
		_ = closer.Close() // there is nobody to tell
	}
}

// receive acts on a line: a message or a batch of them.
func (c *stdioConn) receive(line []byte) {
	messages, isBatch := splitBatch(line)
	if !isBatch {
		c.receiveOne(line, c, false)
		return
	}
	if len(messages) == 0 {
		_ = c.put(kindAnswer, errorMessage(nil, Errorf(CodeInvalidRequest, "an empty batch"))) // fails if the connection has
		return
	}
	b := &stdioBatch{outlet: c, open: 1}
	for _, m := range messages {
		b.expect()
		c.receiveOne(m, b, true)
	}
	b.close()
}

// receiveOne acts on one message. What it puts fails only if the connection has.
func (c *stdioConn) receiveOne(text []byte, out outlet, inBatch bool) {
	refuse := func(id []byte, e *Error) { _ = out.put(kindAnswer, errorMessage(id, e)) }
	m, err := parseMessage(text)
	switch {
	case err != nil:
		refuse(nil, invalidMessage(text))
		return
	case !m.isRequest():
		c.session.receive(m)
		if b, ok := out.(*stdioBatch); ok {
			b.close()
		}
		return
	}
	r := &Request{Session: c.session, Method: m.method, Params: m.params, ID: m.id, Era: Legacy, out: out}
	meta := serverMeta(m.params)
	era := c.session.Era()
	if version := meta.Text(MetaProtocolVersion); version != "" {
		if e, ok := EraOf(version); !ok || e == Modern {
			r.Era, r.Version = Modern, version
		}
	} else if era == Modern && m.method != MethodInitialize {
		r.Era = Modern
	}
	if era == "" {
		c.session.meet(r.Era)
	}
	if r.Era == Modern {
		invalid := checkMeta(r.Method, meta)
		if inBatch {
			invalid = Errorf(CodeInvalidRequest, "%s has no batches", Version2026_07_28)
		}
		if invalid != nil {
			refuse(r.ID, invalid)
			return
		}
	}
	if err := c.session.start(c.session.ctx, r); err != nil {
		refuse(r.ID, err)
	}
}

// meet notes the era of a connection's first request.
func (s *Session) meet(era Era) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.era = era; era == Modern {
		s.version = Version2026_07_28
	}
}

// stdioBatch collects the answers to the requests of a batch. Everything else goes its way at once.
type stdioBatch struct {
	outlet
	mu      sync.Mutex
	open    int
	answers [][]byte
}

func (b *stdioBatch) expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open++
}

// close counts one that needs no answer, and sends the answers if all have been counted.
func (b *stdioBatch) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open--; b.open == 0 && len(b.answers) > 0 {
		_ = b.outlet.put(kindAnswer, joinBatch(b.answers)) // fails if the connection has
	}
}

func (b *stdioBatch) put(k messageKind, message []byte) error {
	if k != kindAnswer {
		return b.outlet.put(k, message)
	}
	if message != nil {
		b.mu.Lock()
		b.answers = append(b.answers, message)
		b.mu.Unlock()
	}
	b.close()
	return nil
}

// joinBatch makes an array of messages.
func joinBatch(messages [][]byte) []byte {
	out := append([]byte{'['}, bytes.Join(messages, []byte{','})...)
	return append(out, ']')
}

// errLongLine is for a message that exceeds MaxMessage.
var errLongLine = errors.New("a message of the MCP client is too long")

// readLines sends the lines of r that are not empty, until done is closed or r ends; then it returns nil.
func readLines(r io.Reader, maxLine int, lines chan<- []byte, done <-chan struct{}) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxLine+1 {
			return fmt.Errorf("%w: more than %d bytes", errLongLine, maxLine)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			select {
			case lines <- text:
			case <-done:
				return nil
			}
		}
		line = nil
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading from the MCP client: %w", err)
		}
	}
}
