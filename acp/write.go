package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
)

// batchSize is about how much is written at once where several lines wait.
const batchSize = 64 << 10

// outgoing is a line to be sent.
type outgoing struct {
	line []byte      // ends with a line feed
	sent func(error) // called once, when the line was written or never will be, unless it was withdrawn
}

// queue holds what is to be sent. One goroutine writes it, so that no caller is caught in a write that an agent which
// does not read would never let return. It does not grow without limit: whoever puts a line into it waits for what
// comes of it, and takes it out again when he stops waiting.
type queue struct {
	mu     sync.Mutex
	lines  []*outgoing
	wake   chan struct{} // holds a token while there is something to do
	closed error
}

func (q *queue) put(o *outgoing) {
	q.mu.Lock()
	closed := q.closed
	if closed == nil {
		q.lines = append(q.lines, o)
	}
	q.mu.Unlock()
	if closed != nil {
		o.sent(closed)
		return
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// withdraw takes a line back, if it is not being written yet.
func (q *queue) withdraw(o *outgoing) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines = slices.DeleteFunc(q.lines, func(other *outgoing) bool { return other == o })
}

// close fails what is left and whatever is put later.
func (q *queue) close(err error) {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = err
	}
	lines := q.lines
	q.lines = nil
	q.mu.Unlock()
	for _, o := range lines {
		o.sent(err)
	}
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what to write next; ok is false once the queue is closed.
func (q *queue) take(batch []*outgoing) (_ []*outgoing, ok bool) {
	for {
		q.mu.Lock()
		size, n := 0, 0
		for n < len(q.lines) && size < batchSize {
			size += len(q.lines[n].line)
			n++
		}
		batch = append(batch, q.lines[:n]...)
		q.lines = slices.Delete(q.lines, 0, n)
		closed := q.closed
		q.mu.Unlock()
		if closed != nil || len(batch) > 0 {
			return batch, closed == nil
		}
		<-q.wake
	}
}

// run writes until the queue is closed or a write fails, which closes it. What was sent before may still be answered, so
// a failed write does not end the connection: the end of the agent's stdout does.
func (q *queue) run(w io.Writer, record func([]byte)) {
	var batch []*outgoing
	var buf []byte
	for {
		var ok bool
		if batch, ok = q.take(batch[:0]); !ok {
			return
		}
		buf = buf[:0]
		for _, o := range batch {
			record(o.line[:len(o.line)-1])
			if len(batch) > 1 {
				buf = append(buf, o.line...)
			}
		}
		if len(batch) == 1 {
			_, err := w.Write(batch[0].line)
			q.wrote(batch, err)
		} else {
			_, err := w.Write(buf)
			q.wrote(batch, err)
		}
		clear(batch)
	}
}

func (q *queue) wrote(batch []*outgoing, err error) {
	if err != nil {
		err = fmt.Errorf("%w: it does not read: %w", ErrClosed, err)
		q.close(err)
	}
	for _, o := range batch {
		o.sent(err)
	}
}

// encode returns a value as a line of JSON. Unlike json.Marshal it leaves <, > and & as they are.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}
