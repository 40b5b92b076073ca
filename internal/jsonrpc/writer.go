package jsonrpc

import (
	"context"
	"io"
	"slices"
	"sync"
)

// joinedSize is about how much is written at once if several lines wait.
const joinedSize = 64 << 10

// Writer writes lines in the order in which they were put. A goroutine writes as long as there are
// any, so that nobody waits for the other side. It is safe for concurrent use.
type Writer struct {
	w io.Writer
	o WriterOptions

	mu      sync.Mutex
	queue   []*Line
	queued  int // bytes that have not begun to be written
	writing bool
	idle    chan struct{} // closed when nobody writes; nil if nobody waits for that
	err     error
}

// WriterOptions are the settings of a [Writer].
type WriterOptions struct {
	// Spawn runs a function on a goroutine, unless nothing may begin any more. If nil, one always
	// starts.
	Spawn func(f func()) bool
	// Writing is called with each line before it is written, without its line feed. It may be nil.
	Writing func(text []byte)
	// Failed is called once, when writing has failed. It may be nil.
	Failed func(err error)
}

// Line is a line on its way out.
type Line struct {
	// Done is called when the line is written, or will not be; sent says how much of it was. It must
	// not block. It may be nil.
	Done func(sent int, err error)

	text []byte // with its line feed
	open bool   // it has begun to be written
	sent int
}

// NewLine makes a line from the text of a message or a batch. It appends to the text.
func NewLine(text []byte) *Line { return &Line{text: append(OnOneLine(text), '\n')} }

// NewWriter returns a writer to w.
func NewWriter(w io.Writer, o WriterOptions) *Writer {
	if o.Spawn == nil {
		o.Spawn = func(f func()) bool { go f(); return true }
	}
	return &Writer{w: w, o: o}
}

// Put queues a line after those that were put before. The error is that of an earlier write, or of
// Close; then Done is not called.
func (w *Writer) Put(l *Line) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	w.queue = append(w.queue, l)
	w.queued += len(l.text)
	if !w.writing {
		w.writing = true
		w.o.Spawn(w.write)
	}
	return nil
}

// begin notes that a line is being written.
func (w *Writer) begin(l *Line) {
	l.open = true
	if w.o.Writing != nil {
		w.o.Writing(l.text[:len(l.text)-1])
	}
}

// write writes the queue, until nothing is left or a write fails.
func (w *Writer) write() {
	for {
		lines := w.next()
		if len(lines) == 0 {
			return
		}
		text := lines[0].text[lines[0].sent:]
		if len(lines) > 1 {
			text = slices.Clone(text)
			for _, l := range lines[1:] {
				text = append(text, l.text...)
			}
		}
		n, err := w.w.Write(text)
		for _, l := range lines {
			part := min(n, len(l.text)-l.sent)
			l.sent += part
			n -= part
		}
		if err != nil {
			w.fail(err)
			return
		}
		w.wrote(lines)
	}
}

// next begins the next lines to write, which stay in the queue. It returns none when everything is
// written.
func (w *Writer) next() []*Line {
	w.mu.Lock()
	defer w.mu.Unlock()
	size, n := 0, 0
	for ; n < len(w.queue) && size < joinedSize; n++ {
		l := w.queue[n]
		if size += len(l.text); !l.open {
			w.queued -= len(l.text)
			w.begin(l)
		}
	}
	if n == 0 {
		w.rest()
	}
	return slices.Clone(w.queue[:n])
}

// wrote removes written lines from the queue.
func (w *Writer) wrote(lines []*Line) {
	for _, l := range lines {
		l.done(nil)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = slices.Delete(w.queue, 0, len(lines))
}

func (l *Line) done(err error) {
	if l.Done != nil {
		l.Done(l.sent, err)
	}
}

// rest notes that no goroutine writes. The caller holds mu.
func (w *Writer) rest() {
	w.writing = false
	if w.idle != nil {
		close(w.idle)
		w.idle = nil
	}
}

// fail ends the writing, and reports the error to Failed and to every line in the queue.
func (w *Writer) fail(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	unsent := w.queue
	w.queue, w.queued = nil, 0
	w.rest()
	w.mu.Unlock()
	if w.o.Failed != nil {
		w.o.Failed(err)
	}
	for _, l := range unsent {
		l.done(err)
	}
}

// Withdraw takes back a line that has not begun to be written. It reports false if it has.
func (w *Writer) Withdraw(l *Line) bool {
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

// Close drops the lines that have not begun to be written. They, and lines that are put from now
// on, fail with the error. It does not close the underlying writer.
func (w *Writer) Close(err error) {
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	n := 0
	for n < len(w.queue) && w.queue[n].open {
		n++
	}
	dropped := slices.Clone(w.queue[n:])
	w.queue, w.queued = w.queue[:n], 0
	w.mu.Unlock()
	for _, l := range dropped {
		l.done(err)
	}
}

// Begun reports whether a line has begun to be written.
func (w *Writer) Begun(l *Line) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return l.open
}

// Queued returns how much has not begun to be written, in bytes.
func (w *Writer) Queued() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queued
}

// Flush waits until every line that was put is written, or cannot be, or the context is done.
func (w *Writer) Flush(ctx context.Context) {
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

// Err returns the error of a failed write, or the error of Close.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
