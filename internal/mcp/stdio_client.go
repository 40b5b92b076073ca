package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// clientBrokenGrace is how long a server that does not read any more may still answer what it has
// read.
const clientBrokenGrace = 2 * time.Second

// stdioLink is the connection to a process. Each message is a line.
type stdioLink struct {
	c       *Client
	rwc     io.ReadWriteCloser
	out     *jsonrpc.Writer
	release context.CancelFunc // of the context that the process was started with
}

// openStdio starts the process of a server.
func openStdio(ctx context.Context, c *Client, t Target) error {
	// The context is not bound to c.life: if the process is started with exec.CommandContext, it would
	// be killed before it is asked to end.
	life, release := context.WithCancel(context.WithoutCancel(ctx))
	c.detach = context.AfterFunc(ctx, release)
	rwc, err := t.Start(life)
	if err != nil {
		c.detach()
		release()
		return &clientStartError{err}
	}
	l := &stdioLink{c: c, rwc: rwc, release: release}
	l.out = jsonrpc.NewWriter(rwc, jsonrpc.WriterOptions{Spawn: c.life.spawn, Failed: l.broken})
	c.link = l
	c.life.spawn(l.read)
	return nil
}

func (l *stdioLink) close(bool) error {
	defer l.release()
	return l.rwc.Close()
}

// broken ends the connection a little later, because earlier messages may still be answered.
func (l *stdioLink) broken(err error) {
	l.c.life.spawn(func() {
		if l.c.o.wait(l.c.life.ctx, clientBrokenGrace) == nil {
			_ = l.c.end(clientUnread(err), false)
		}
	})
}

// clientUnread is the error of writing to a server that does not read any more.
func clientUnread(err error) error { return clientGone("it does not read: %w", err) }

// clientUnwritten is the error for a message of which only a part was written, if any.
func clientUnwritten(sent int, err error) error {
	if !errors.Is(err, ErrClosed) { // otherwise the connection has ended before
		err = clientUnread(err)
	}
	if sent == 0 {
		return clientUnsent(err)
	}
	return err
}

// request has the request of a call written. A failure settles the call.
func (l *stdioLink) request(p *clientCall) *jsonrpc.Line {
	m := p.message()
	line := jsonrpc.NewLine(m.Encode())
	line.Done = func(sent int, err error) {
		if err != nil {
			l.c.calls.settle(p, clientAnswer{err: clientUnwritten(sent, err)})
		}
	}
	p.line.Store(line)
	if err := l.out.Put(line); err != nil {
		line.Done(0, err)
	}
	return line
}

// end stops all writing, and gives the open calls the connection's error. It knows whether anything
// of them was sent.
func (l *stdioLink) end(calls map[int64]*clientCall) {
	l.out.Close(l.c.Err())
	for _, p := range calls {
		line := p.line.Load()
		err := l.c.Err()
		if line == nil || !l.out.Begun(line) {
			err = clientUnsent(err)
		}
		p.settle(clientAnswer{err: err})
	}
}

func (l *stdioLink) call(ctx context.Context, p *clientCall) (json.RawMessage, error) {
	line := l.request(p)
	select {
	case a := <-p.answers:
		return a.result, a.err
	case <-ctx.Done():
	}
	if l.out.Withdraw(line) {
		return nil, clientContextError(ctx)
	}
	return l.c.await(ctx, p)
}

func (l *stdioLink) send(ctx context.Context, m message) error {
	line, written := jsonrpc.NewLine(m.Encode()), make(chan error, 1)
	line.Done = func(sent int, err error) {
		if err != nil {
			err = clientUnwritten(sent, err)
		}
		written <- err
	}
	if err := l.out.Put(line); err != nil {
		return clientUnwritten(0, err)
	}
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		l.out.Withdraw(line)
		return clientContextError(ctx)
	case <-l.c.life.ctx.Done():
		return l.c.Err()
	}
}

// read handles the server's lines until there are no more.
func (l *stdioLink) read() {
	lines := jsonrpc.NewReader(l.rwc, l.c.o.MaxMessage)
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF):
			_ = l.c.end(clientGone("it has closed its stdout"), false) // callers have no use for an exit status
			return
		case errors.Is(err, jsonrpc.ErrTooLong):
			_ = l.c.end(clientGone("%w: more than %d bytes", errClientTooLong, l.c.o.MaxMessage), false)
			return
		case err != nil:
			_ = l.c.end(clientGone("%w", err), false)
			return
		case len(line) > 0:
			l.c.receiver.receive(nil, line)
		}
	}
}
