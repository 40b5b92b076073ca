package sandbox

import (
	"errors"
	"io"
	"os"
	"sync"
)

// interactive is the stdout of an interactive process.
type interactive struct {
	mu    sync.Mutex // held while r is read, which keeps what drain reads in its order
	r     io.Reader  // a pipe
	rest  []byte     // what was read ahead when the process had ended
	ended bool
}

// maxRest is as much as a pipe can hold by default when somebody who escaped goes on writing.
const maxRest = 1 << 20

func (i *interactive) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.ended {
		n, err := i.r.Read(p)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = io.EOF
		}
		return n, err
	}
	if len(i.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// drain takes what is left in the pipe, so that the pipe can be closed however slow the reader is. A deadline must be set.
func (i *interactive) drain() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rest, _ = io.ReadAll(io.LimitReader(i.r, maxRest)) // only the deadline can fail
	i.ended = true
}

// tail passes on what is written and keeps the end of it.
type tail struct {
	w   io.Writer // may be nil
	mu  sync.Mutex
	end []byte
}

// maxTail is how much of an output an error carries.
const maxTail = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.end = append(t.end, p[max(0, len(p)-maxTail):]...)
	t.end = t.end[max(0, len(t.end)-maxTail):]
	t.mu.Unlock()
	if t.w == nil {
		return len(p), nil
	}
	return t.w.Write(p)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}
