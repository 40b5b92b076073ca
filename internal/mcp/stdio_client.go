package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// clientBrokenGrace is how long a server that does not read any more may still answer what it has read.
const clientBrokenGrace = 2 * time.Second

// stdioLink is the connection to a process: a message a line.
type stdioLink struct {
	c       *Client
	rwc     io.ReadWriteCloser
	out     *lineWriter
	release context.CancelFunc // of the context that the process was started with
}

// openStdio starts the process of a server.
func openStdio(ctx context.Context, c *Client, t Target) error {
	// Not bound to c.ctx: who starts processes with exec.CommandContext would have this one killed before it is asked to end.
	life, release := context.WithCancel(context.WithoutCancel(ctx))
	c.detach = context.AfterFunc(ctx, release)
	rwc, err := t.Start(life)
	if err != nil {
		c.detach()
		release()
		return &clientStartError{err}
	}
	l := &stdioLink{c: c, rwc: rwc, release: release}
	l.out = newLineWriter(rwc, c.spawn, l.broken)
	c.link = l
	c.spawn(l.read)
	return nil
}

func (l *stdioLink) close(bool) error {
	defer l.release()
	return l.rwc.Close()
}

// broken ends the connection a little later: what was sent before may still be answered.
func (l *stdioLink) broken(err error) {
	l.c.spawn(func() {
		if l.c.o.wait(l.c.ctx, clientBrokenGrace) == nil {
			_ = l.c.end(clientUnread(err), false)
		}
	})
}

// clientUnread is the error of who writes to a server that does not read any more.
func clientUnread(err error) error { return clientGone("it does not read: %w", err) }

// clientUnwritten is the error for a message of which only a part was written, if any.
func clientUnwritten(sent int, err error) error {
	if !errors.Is(err, ErrClosed) { // else the connection has ended before
		err = clientUnread(err)
	}
	if sent == 0 {
		return clientUnsent(err)
	}
	return err
}

// request has the request of a call written. A failure settles the call.
func (l *stdioLink) request(p *clientCall) *outLine {
	m := p.message()
	line := newOutLine(&m)
	line.done = func(sent int, err error) {
		if err != nil {
			l.c.settle(p, clientAnswer{err: clientUnwritten(sent, err)})
		}
	}
	l.c.mu.Lock()
	p.line = line
	l.c.mu.Unlock()
	if err := l.out.put(line); err != nil {
		line.done(0, err)
	}
	return line
}

// end has nothing written any more, and gives the calls that were open the connection's error. Whether anything of them was sent is known.
func (l *stdioLink) end(calls map[int64]*clientCall) {
	begun := l.out.close(l.c.Err())
	for _, p := range calls {
		l.c.mu.Lock()
		line := p.line
		l.c.mu.Unlock()
		err := l.c.Err()
		if !begun(line) {
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
	if l.out.withdraw(line) {
		return nil, clientContextError(ctx)
	}
	return l.c.await(ctx, p)
}

func (l *stdioLink) send(ctx context.Context, m message) error {
	line, written := newOutLine(&m), make(chan error, 1)
	line.done = func(sent int, err error) {
		if err != nil {
			err = clientUnwritten(sent, err)
		}
		written <- err
	}
	if err := l.out.put(line); err != nil {
		return clientUnwritten(0, err)
	}
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		l.out.withdraw(line)
		return clientContextError(ctx)
	case <-l.c.ctx.Done():
		return l.c.Err()
	}
}

// read handles the server's lines until there are no more.
func (l *stdioLink) read() {
	lines := clientLines{bufio.NewReaderSize(l.rwc, lineBuffer), l.c.o.MaxMessage}
	for {
		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			_ = l.c.end(clientGone("it has closed its stdout"), false) // an exit status is of no interest to callers
			return
		case err != nil:
			_ = l.c.end(clientGone("%w", err), false)
			return
		case len(line) > 0:
			l.c.receive(nil, line)
		}
	}
}

// clientLines reads lines up to a length.
type clientLines struct {
	r   *bufio.Reader
	max int
}

// next returns the next line without its end. The last line may lack a line feed. The caller owns the line.
func (l *clientLines) next() ([]byte, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(bytes.TrimRight(part, "\r\n")) > l.max {
			return nil, fmt.Errorf("%w: more than %d bytes", errClientTooLong, l.max)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case len(line) > 0:
			return line, nil // the error comes again
		default:
			return nil, err
		}
	}
}
