package mcp

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/nowait"
)

// lineBuffer is the size of the buffer for what is read from a connection of lines: most lines are shorter.
const lineBuffer = 128 << 10

// lineWriter writes messages on lines, in the order in which they were put. Nobody waits for the other side: what cannot be written at once, a
// goroutine writes.
type lineWriter struct {
	w   io.Writer
	now *nowait.Writer // writes to w without waiting; nil where that is not possible
	// spawn runs a function on a goroutine, unless nothing must be begun any more. failed is called once, when w has failed.
	spawn  func(f func()) bool
	failed func(err error)

	mu      sync.Mutex
	queue   []*outLine
	room    [4]*outLine // of queue, as long as it is short
	queued  int         // bytes that have not begun to be written
	writing bool
	idle    chan struct{} // closed when nobody writes; nil if nobody waits for that
	err     error
}

// outLine is a message on its way out.
type outLine struct {
	text  net.Buffers // what is left to be written of it
	space [3][]byte   // of text
	size  int
	// done is called when it is written, or will not be: sent says how much of it was. nil: nobody wants to know. It must not block.
	done func(sent int64, err error)
	sent int64
	open bool // it was begun to be written
}

func newLineWriter(w io.Writer, spawn func(f func()) bool, failed func(err error)) *lineWriter {
	return &lineWriter{w: w, now: nowait.NewWriter(w), spawn: spawn, failed: failed}
}

// maxJoined is up to which length the body of a message is copied to be written with the rest of it.
const maxJoined = 16 << 10

// newOutLine makes a line of a message, whose body is not copied if it is long.
func newOutLine(m *message) *outLine {
	if len(m.params)+len(m.result)+len(m.err) <= maxJoined {
		return newTextLine(m.encode())
	}
	head, body := m.head(0)
	return newLine(head, onOneLine(body), []byte("}\n"))
}

// newTextLine makes a line of the text of a message or a batch of them.
func newTextLine(text []byte) *outLine { return newLine(append(onOneLine(text), '\n')) }

func newLine(parts ...[]byte) *outLine {
	l := &outLine{}
	l.text = append(l.space[:0], parts...)
	for _, part := range parts {
		l.size += len(part)
	}
	return l
}

// put has a line written after those that were put before. The error is that of an earlier write.
func (w *lineWriter) put(l *outLine) error {
	w.mu.Lock()
	if w.err != nil {
		defer w.mu.Unlock()
		return w.err
	}
	w.queue = append(w.queue, l)
	w.queued += l.size
	first := !w.writing
	w.writing = true
	w.mu.Unlock()
	if first && (w.now == nil || !w.write(true)) {
		w.spawn(func() { w.write(false) })
	}
	return nil
}

// write writes what is queued, or what of it needs no waiting; then it reports false if there is something left. The caller is the one who writes.
func (w *lineWriter) write(now bool) bool {
	w.mu.Lock()
	for len(w.queue) > 0 {
		l := w.queue[0]
		if !l.open {
			l.open = true
			w.queued -= l.size
		}
		w.mu.Unlock()
		err := l.write(w, now)
		if errors.Is(err, nowait.ErrWouldWait) {
			return false
		}
		if err != nil {
			w.fail(err)
			return true
		}
		if l.done != nil {
			l.done(l.sent, nil)
		}
		w.mu.Lock()
		w.queue[0] = nil
		if w.queue = w.queue[1:]; len(w.queue) == 0 {
			w.queue = w.room[:0]
		}
	}
	w.rest()
	w.mu.Unlock()
	return true
}

func (l *outLine) write(w *lineWriter, now bool) (err error) {
	var n int64
	if now {
		n, err = w.now.Write(&l.text)
	} else {
		n, err = l.text.WriteTo(w.w)
	}
	l.sent += n
	return err
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
	w.queued -= l.size
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
