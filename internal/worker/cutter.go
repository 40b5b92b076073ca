package worker

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"time"
)

// maxBetween is how much stderr is kept that a worker prints while it has no job.
const maxBetween = 64 << 10

// cutter cuts a worker's stderr into the parts of its jobs. A worker marks where one begins and ends
// by a line of its own: "\n\x1e", the nonce, " begin ID\n" or " end ID\n". Without marks all that
// comes while a worker has a job belongs to that job.
type cutter struct {
	mark []byte

	mu      sync.Mutex
	sink    io.Writer
	held    []byte // may become a mark
	between []byte // was printed without a job; the next one gets it
	// begun and ended are the last ids of the marks; changed is closed and replaced with each.
	begun, ended string
	changed      chan struct{}
}

func newCutter(nonce string) *cutter {
	return &cutter{mark: []byte("\n\x1e" + nonce + " "), changed: make(chan struct{})}
}

// to leads what comes from now on to w; nil keeps it for the next.
func (c *cutter) to(w io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sink = w; w != nil && len(c.between) > 0 {
		c.emit(c.between)
		c.between = nil
	}
}

// Write implements io.Writer. It never fails, as the worker is not to suffer from a full disk; the
// log of the job remembers its error.
func (c *cutter) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = append(c.held, p...)
	for {
		i := bytes.Index(c.held, c.mark)
		if i < 0 {
			break
		}
		c.emit(c.held[:i])
		c.held = c.held[i:]
		end := bytes.IndexByte(c.held[len(c.mark):], '\n')
		if end < 0 {
			return len(p), nil // the rest of the mark is still to come
		}
		c.marked(string(c.held[len(c.mark) : len(c.mark)+end]))
		c.held = c.held[len(c.mark)+end+1:]
	}
	keep := 0
	for n := min(len(c.mark)-1, len(c.held)); n > 0 && keep == 0; n-- {
		if bytes.HasSuffix(c.held, c.mark[:n]) {
			keep = n
		}
	}
	c.emit(c.held[:len(c.held)-keep])
	c.held = append([]byte(nil), c.held[len(c.held)-keep:]...)
	return len(p), nil
}

// add adds what is no stderr, but belongs there.
func (c *cutter) add(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emit(p)
}

func (c *cutter) emit(p []byte) {
	if len(p) == 0 {
		return
	}
	if c.sink != nil {
		_, _ = c.sink.Write(p) // see Write
		return
	}
	c.between = append(c.between, p...)
	c.between = c.between[max(0, len(c.between)-maxBetween):]
}

func (c *cutter) marked(text string) {
	switch kind, id, _ := strings.Cut(text, " "); kind {
	case "begin":
		c.begun = id
	case "end":
		c.ended = id
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// flush writes what was held back, when nothing more comes.
func (c *cutter) flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emit(c.held)
	c.held = nil
}

// hasBegun reports whether the mark of a job's begin has come.
func (c *cutter) hasBegun(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun == id
}

// await waits for the mark of a job's end, but not for ever. It reports whether the mark has come.
func (c *cutter) await(id string, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for {
		c.mu.Lock()
		changed, ended := c.changed, c.ended == id
		c.mu.Unlock()
		if ended {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		}
	}
}
