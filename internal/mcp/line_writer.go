package mcp

import (
	"context"
	"io"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// lineBuffer is the size of the buffer for what is read from a connection of lines: most lines are shorter.
const lineBuffer = 128 << 10

// lineWriter writes messages on lines, in the order in which they were put. Nobody waits for the other
// side: what a pipe does not take at once, a goroutine writes.
type lineWriter struct {
	w    io.Writer
	conn syscall.RawConn // of w, if writing to it can be tried without waiting; else nil
	// spawn runs a function on a goroutine, unless nothing must be begun any more. failed is called once,
	// when w has failed.
	spawn  func(f func()) bool
	failed func(err error)

	mu      sync.Mutex
	queue   []*outLine
	queued  int // bytes that have not begun to be written
	writing bool
	idle    chan struct{} // closed when nobody writes; nil if nobody waits for that
	err     error
}

// outLine is a message on its way out.
type outLine struct {
	text []byte
	// done is called when the line is written, or will not be; sent says how much of it was. It must not
	// block. nil: nobody wants to know.
	done func(sent int, err error)
	open bool // it was begun to be written
	sent int
}

func newLineWriter(w io.Writer, spawn func(f func()) bool, failed func(err error)) *lineWriter {
	return &lineWriter{w: w, conn: rawConn(w), spawn: spawn, failed: failed}
}

// rawConn is the connection of a file that does not block; nil if w is none.
func rawConn(w io.Writer) syscall.RawConn {
	file, ok := w.(syscall.Conn)
	if !ok {
		return nil
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	flags := 0
	if err := conn.Control(func(fd uintptr) { flags, _ = unix.FcntlInt(fd, unix.F_GETFL, 0) }); err != nil || flags&unix.O_NONBLOCK == 0 {
		return nil
	}
	return conn
}

// newOutLine makes a line of a message.
func newOutLine(m *message) *outLine { return newTextLine(m.encode()) }

// newTextLine makes a line of the text of a message or a batch of them.
func newTextLine(text []byte) *outLine { return &outLine{text: append(onOneLine(text), '\n')} }

// put has a line written after those that were put before. The error is that of an earlier write.
func (w *lineWriter) put(l *outLine) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if w.conn != nil && !w.writing && w.tryWrite(l) {
		if l.done != nil {
			l.done(l.sent, nil)
		}
		return nil
	}
	w.queue = append(w.queue, l)
	if !l.open {
		w.queued += len(l.text)
	}
	if !w.writing {
		w.writing = true
		w.spawn(w.write)
	}
	return nil
}

// tryWrite writes what the other side takes at once, and reports whether that was the whole line. It saves
// a small message two switches of goroutines, which take longer than writing it. The caller holds mu.
func (w *lineWriter) tryWrite(l *outLine) bool {
	_ = w.conn.Write(func(fd uintptr) bool { // an error comes again when the goroutine writes
		if n, err := unix.Write(int(fd), l.text); err == nil {
			l.open, l.sent = true, n
		}
		return true
	})
	return l.sent == len(l.text)
}

// write writes what is queued.
func (w *lineWriter) write() {
	w.mu.Lock()
	for len(w.queue) > 0 {
		l := w.queue[0]
		if !l.open {
			l.open = true
			w.queued -= len(l.text)
		}
		w.mu.Unlock()
		n, err := w.w.Write(l.text[l.sent:])
		l.sent += n
		if err != nil {
			w.fail(err)
			return
		}
		if l.done != nil {
			l.done(l.sent, nil)
		}
		w.mu.Lock()
		w.queue[0] = nil
		w.queue = w.queue[1:]
	}
	w.rest()
	w.mu.Unlock()
}

// rest notes that nobody writes. The caller holds mu.
func (w *lineWriter) rest() {
	w.writing = false
	if w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// fail tells everybody that nothing is written any more.
func (w *lineWriter) fail(err error) {
	w.mu.Lock()
	w.err = err
	unsent := w.queue
	w.queue, w.queued = nil, 0
	w.rest()
	w.mu.Unlock()
	w.failed(err)
	for _, l := range unsent {
		if l.done != nil {
			l.done(l.sent, err)
		}
	}
}

// withdraw takes back a line that has not begun to be written. It reports false if it has.
func (w *lineWriter) withdraw(l *outLine) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.queue, l)
	if i < 0 || l.open {
		return false
	}
	w.queue = slices.Delete(w.queue, i, i+1)
	w.queued -= len(l.text)
	return true
}

// close has nothing written any more but what has begun, and reports of a line whether that has. The error is that of lines that are put from now on.
func (w *lineWriter) close(err error) (begun func(l *outLine) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	if len(w.queue) > 0 {
		w.queue = w.queue[:1]
		if !w.queue[0].open {
			w.queue = nil
		}
	}
	return func(l *outLine) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return l != nil && l.open
	}
}

// waiting is how much has not begun to be written, in bytes.
func (w *lineWriter) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued
}

// wait waits until everything is written that was put, or cannot be, or the context is done.
func (w *lineWriter) wait(ctx context.Context) {
	w.mu.Lock()
	if !w.writing {
		w.mu.Unlock()
		return
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle := w.idle
	w.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// failure is what writing has failed with.
func (w *lineWriter) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
