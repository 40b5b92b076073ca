package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// Conn is a connection to an agent. Its methods may be called concurrently, except from
// [Handler.Update].
type Conn struct {
	handler Handler
	opts    Options
	w       io.WriteCloser
	out     *jsonrpc.Writer
	server  *server

	ctx      context.Context // ends with the connection; the cause is Err
	cancel   context.CancelCauseFunc
	finished sync.WaitGroup

	recording sync.Mutex

	closing  sync.Once
	closeErr error // of w

	mu     sync.Mutex
	lastID uint64
	calls  map[uint64]chan answer // by our ids
}

// answer is the outcome of a call.
type answer struct {
	result json.RawMessage
	err    error
}

// NewConn makes a connection from an agent's stdin and stdout. The connection closes w when it
// ends. It reads r to its end, even after Close, so that an agent which is being ended is not
// stuck: end the process, then [Conn.Wait].
func NewConn(w io.WriteCloser, r io.Reader, h Handler, o Options) *Conn {
	if o.MaxLine == 0 {
		o.MaxLine = DefaultMaxLine
	}
	c := &Conn{
		handler: h,
		opts:    o,
		w:       w,
		calls:   map[uint64]chan answer{},
	}
	c.server = &server{c: c, handler: h, opts: o, requests: map[string]*request{}, stopped: map[string]bool{}}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.out = jsonrpc.NewWriter(w, jsonrpc.WriterOptions{
		Spawn:   func(f func()) bool { c.finished.Go(f); return true },
		Writing: func(line []byte) { c.record(ToAgent, line) },
	})
	c.finished.Go(func() { c.read(r) })
	return c
}

// Close ends the connection: stdin is closed, calls fail with ErrClosed, the contexts of handlers
// end. Updates that the agent still sends are still handled.
func (c *Conn) Close() error { return c.end(fmt.Errorf("%w by us", ErrClosed)) }

// Done is closed when the connection has ended, for whatever reason.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Err says why the connection has ended: an error that wraps ErrClosed or ErrLineTooLong. It is nil
// before that.
func (c *Conn) Err() error { return context.Cause(c.ctx) }

// Wait waits until the agent's stdout has ended and every handler has returned.
func (c *Conn) Wait() { c.finished.Wait() }

// Call sends a request and waits for its answer. Every update that precedes the answer on the wire
// is handled before Call returns. The error is an [*AgentError], a [*ProtocolError], one that wraps
// ErrClosed or ErrLineTooLong, or one that wraps the error of ctx; in the last case the agent is
// not told, and its late answer is recorded and dropped.
func (c *Conn) Call(ctx context.Context, method string, params any) (json.RawMessage, error) {
	if ctx.Err() != nil {
		return nil, contextError(ctx, method)
	}
	raw, err := marshal(params)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	answers := make(chan answer, 1)
	c.mu.Lock()
	c.lastID++
	id := c.lastID
	c.calls[id] = answers
	c.mu.Unlock()
	m := jsonrpc.Message{ID: strconv.AppendUint(nil, id, 10), Method: method, Params: raw}
	line := c.put(m, func(err error) {
		if err != nil {
			c.settle(id, answer{err: err})
		}
	})

	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		c.out.Withdraw(line)
		if c.settle(id, answer{}) {
			return nil, contextError(ctx, method)
		}
		a = <-answers // it came at the same time
	}
	if a.err != nil {
		var protocol *ProtocolError
		if errors.As(a.err, &protocol) {
			return nil, &ProtocolError{method, protocol.Reason}
		}
		return nil, fmt.Errorf("%s: %w", method, a.err)
	}
	return a.result, nil
}

// Notify sends a notification and waits until it is written.
func (c *Conn) Notify(ctx context.Context, method string, params any) error {
	if ctx.Err() != nil {
		return contextError(ctx, method)
	}
	raw, err := marshal(params)
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	sent := make(chan error, 1)
	line := c.put(jsonrpc.Message{Method: method, Params: raw}, func(err error) { sent <- err })
	select {
	case err = <-sent:
		if err != nil {
			err = fmt.Errorf("%s: %w", method, err)
		}
		return err
	case <-ctx.Done():
		c.out.Withdraw(line)
		return contextError(ctx, method)
	}
}

func contextError(ctx context.Context, method string) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%s: %w: %w", method, ctx.Err(), cause)
	}
	return fmt.Errorf("%s: %w", method, ctx.Err())
}

// settle gives a call its answer. It reports false if the call has one already.
func (c *Conn) settle(id uint64, a answer) bool {
	c.mu.Lock()
	answers, ok := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	if ok {
		answers <- a
	}
	return ok
}

// end ends the connection, once.
func (c *Conn) end(err error) error {
	c.cancel(err) // the first cause stays
	err = c.Err()
	c.out.Close(err)
	c.mu.Lock()
	calls := c.calls
	c.calls = map[uint64]chan answer{}
	c.mu.Unlock()
	for _, answers := range calls {
		answers <- answer{err: err}
	}
	c.closing.Do(func() { c.closeErr = c.w.Close() })
	return c.closeErr
}

// read handles the agent's lines until there are no more.
func (c *Conn) read(r io.Reader) {
	lines, d := jsonrpc.NewReader(r, c.opts.MaxLine), decoder{}
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, jsonrpc.ErrTooLong):
			_ = c.end(fmt.Errorf("%w: more than %d bytes", ErrLineTooLong, c.opts.MaxLine))
			_, _ = io.Copy(io.Discard, r)
			return
		case errors.Is(err, io.EOF):
			_ = c.end(fmt.Errorf("%w: it closed its stdout", ErrClosed)) // closing a stdin that the agent has left may fail
			return
		case err != nil:
			_ = c.end(fmt.Errorf("%w: %w", ErrClosed, err))
			return
		case len(line) > 0:
			c.receive(&d, line)
		}
	}
}

func (c *Conn) receive(d *decoder, line []byte) {
	c.record(FromAgent, line)
	messages := d.decode(line)
	if len(messages) == 0 && c.opts.Noise != nil {
		c.opts.Noise(line)
	}
	for _, m := range messages {
		switch {
		case m.Method == "":
			c.receiveAnswer(m)
		case m.ID != nil:
			c.server.receive(m)
		case m.Method == "session/update":
			if u, ok := parseUpdate(m.Params); ok {
				c.handler.Update(u)
			}
		case m.Method == "$/cancel_request":
			c.server.receiveCancel(m.Params)
		}
	}
}

// receiveAnswer hands a response to the call that waits for it. A response for which no call waits
// came too late, or answers no request.
func (c *Conn) receiveAnswer(m jsonrpc.Message) {
	id, err := strconv.ParseUint(string(m.ID), 10, 64)
	if err != nil {
		return
	}
	a := answer{result: m.Result}
	switch {
	case m.Result == nil && m.Error == nil:
		a.err = &ProtocolError{Reason: "the agent's answer has neither result nor error"}
	case m.Error != nil && !jsonobj.IsNull(m.Result):
		a.err = &ProtocolError{Reason: "the agent's answer has both result and error"}
	case m.Error != nil:
		agentError := &AgentError{}
		if a.err = agentError; decode(m.Error, agentError) != nil {
			a.err = &ProtocolError{Reason: "the error that the agent answered is no object"}
		}
	}
	c.settle(id, a)
}

func (c *Conn) record(dir Direction, line []byte) {
	if c.opts.Record != nil {
		c.recording.Lock()
		defer c.recording.Unlock()
		c.opts.Record(dir, line)
	}
}

// put queues a message. sent is called once, when the message is written or never will be, unless
// the line is withdrawn. A failed write does not end the connection, because earlier messages may
// still be answered: the end of the agent's stdout does.
func (c *Conn) put(m jsonrpc.Message, sent func(error)) *jsonrpc.Line {
	line := jsonrpc.NewLine(m.Encode())
	line.Done = func(_ int, err error) { sent(writeError(err)) }
	if err := c.out.Put(line); err != nil {
		sent(writeError(err))
	}
	return line
}

// writeError returns the error that a caller gets for a message that was not written.
func writeError(err error) error {
	if err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrLineTooLong) {
		return err
	}
	return fmt.Errorf("%w: it does not read: %w", ErrClosed, err)
}

// marshal returns a value as JSON. Unlike json.Marshal it leaves <, > and & as they are.
func marshal(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), err
}
