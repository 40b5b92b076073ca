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

// stdioLink is the connection to a process: a message a line. One goroutine reads, and one writes, so that no caller is caught in a
// write that a server which does not read would never let return.
type stdioLink struct {
	c       *Client
	rwc     io.ReadWriteCloser
	lines   chan clientLine
	release context.CancelFunc // of the context that the process was started with
}

// clientLine is a line that is to be written.
type clientLine struct {
	text    []byte     // ends with a line feed
	written chan error // holds one
	quiet   bool       // only an error is of interest
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
	l := &stdioLink{c, rwc, make(chan clientLine), release}
	c.link = l
	c.spawn(l.write)
	c.spawn(l.read)
	return nil
}

func (l *stdioLink) close(bool) error {
	defer l.release()
	return l.rwc.Close()
}

func (l *stdioLink) call(ctx context.Context, p *clientCall) (json.RawMessage, error) {
	line := newClientLine(p.message())
	line.quiet = true // the answer says enough
	if err := l.put(ctx, line); err != nil {
		return nil, err
	}
	select {
	case err := <-line.written:
		if !p.answered() {
			return nil, err
		}
	case a := <-p.answers:
		return a.result, a.err
	case <-ctx.Done():
	}
	return l.c.await(ctx, p)
}

func (l *stdioLink) send(ctx context.Context, m message) error {
	line := newClientLine(m)
	if err := l.put(ctx, line); err != nil {
		return err
	}
	select {
	case err := <-line.written:
		return err
	case <-ctx.Done():
		return clientContextError(ctx)
	case <-l.c.ctx.Done():
		return l.c.Err()
	}
}

func newClientLine(m message) clientLine {
	return clientLine{text: append(onOneLine(m.encode()), '\n'), written: make(chan error, 1)}
}

// put hands a line to the one who writes, who will have written it, if only in part, unless this fails.
func (l *stdioLink) put(ctx context.Context, line clientLine) error {
	select {
	case l.lines <- line:
		return nil
	case <-ctx.Done():
		return clientContextError(ctx)
	case <-l.c.ctx.Done():
		return clientUnsent(l.c.Err())
	}
}

// write writes lines until the connection ends. What was sent before a write that fails may still be answered, so the connection
// ends a little later.
func (l *stdioLink) write() {
	var broken error
	for {
		select {
		case line := <-l.lines:
			n := 0
			if broken == nil {
				var err error
				if n, err = l.rwc.Write(line.text); err != nil {
					broken = clientGone("it does not read: %w", err)
					l.c.spawn(func() {
						if l.c.o.wait(l.c.ctx, clientBrokenGrace) == nil {
							_ = l.c.end(broken, false)
						}
					})
				}
			}
			switch {
			case broken != nil && n == 0:
				line.written <- clientUnsent(broken)
			case broken != nil || !line.quiet:
				line.written <- broken
			}
		case <-l.c.ctx.Done():
			return
		}
	}
}

// read handles the server's lines until there are no more.
func (l *stdioLink) read() {
	lines := clientLines{bufio.NewReaderSize(l.rwc, 64<<10), l.c.o.MaxMessage}
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
