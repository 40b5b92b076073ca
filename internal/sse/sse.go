// Package sse writes server-sent events: one stream on a connection, or several that share one. It
// knows nothing of their content.
package sse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pingInterval is how often a stream sends a ping, so that a lost connection is noticed.
	pingInterval = 15 * time.Second
	// writeTimeout is how long a client may take to read a piece.
	writeTimeout = time.Minute
)

// ErrTooMany means that the limit of streams is reached.
var ErrTooMany = errors.New("there are too many streams of events")

// Slots limits how many streams there are at once.
type Slots struct {
	// Most is how many there may be.
	Most int64
	n    atomic.Int64
}

// Taken is the number of streams.
func (s *Slots) Taken() int64 { return s.n.Load() }

// Event is one event. An empty ID or Name is left out.
type Event struct {
	ID, Name string
	// Data is one line.
	Data []byte
}

// Connection is an answer of server-sent events. Its headers are sent with the first piece.
type Connection struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

// Answer makes a connection of the answer to a request.
func Answer(w http.ResponseWriter) *Connection {
	return &Connection{w: w, control: http.NewResponseController(w)}
}

// Comment sends a comment, which clients ignore.
func (c *Connection) Comment(text string) error { return c.write([]byte(": " + text + "\n\n")) }

// Send sends an event that belongs to none of its streams.
func (c *Connection) Send(e Event) error { return c.send("", []Event{e}) }

func (c *Connection) send(prefix string, events []Event) error {
	var out bytes.Buffer
	for _, e := range events {
		if e.ID != "" {
			fmt.Fprintf(&out, "id: %s\n", e.ID)
		}
		if e.Name != "" {
			fmt.Fprintf(&out, "event: %s%s\n", prefix, e.Name)
		}
		fmt.Fprintf(&out, "data: %s\n\n", e.Data)
	}
	return c.write(out.Bytes())
}

func (c *Connection) write(data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		c.w.Header().Set("Content-Type", "text/event-stream")
		c.w.WriteHeader(http.StatusOK)
		c.begun = true
	}
	_ = c.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // only a test's writer has no deadlines
	if _, err := c.w.Write(data); err != nil {
		return err
	}
	return c.control.Flush()
}

// Stream is a stream of events on a connection. One goroutine uses it, and closes it.
type Stream struct {
	c     *Connection
	slots *Slots
	// prefix stands before the name of each event.
	prefix   string
	draining <-chan struct{}
	pings    *time.Ticker
}

// Open begins a stream that takes a slot; ErrTooMany if there is none. It ends when draining is
// closed. Nothing is sent yet. prefix, which may be empty, distinguishes streams that share a
// connection.
func (c *Connection) Open(slots *Slots, prefix string, draining <-chan struct{}) (*Stream, error) {
	if slots.n.Add(1) > slots.Most {
		slots.n.Add(-1)
		return nil, ErrTooMany
	}
	return &Stream{c, slots, prefix, draining, time.NewTicker(pingInterval)}, nil
}

// Close ends the stream.
func (s *Stream) Close() {
	s.pings.Stop()
	s.slots.n.Add(-1)
}

// Retry tells the client how long to wait before it comes again.
func (s *Stream) Retry(after time.Duration) error {
	return s.c.write(fmt.Appendf(nil, "retry: %d\n\n", after.Milliseconds()))
}

// Ping sends a ping.
func (s *Stream) Ping() error { return s.c.Comment("ping") }

// Send sends events.
func (s *Stream) Send(events ...Event) error { return s.c.send(s.prefix, events) }

// Wait returns when changed is closed and a pause is over, and reports whether to go on then.
// Meanwhile it sends pings. A nil channel is never closed.
func (s *Stream) Wait(ctx context.Context, changed <-chan struct{}, pause time.Duration) bool {
	var paused <-chan time.Time
	for {
		select {
		case <-changed:
			if pause == 0 {
				return true
			}
			changed, paused = nil, time.After(pause)
		case <-paused:
			return true
		case <-s.pings.C:
			if s.Ping() != nil {
				return false
			}
		case <-s.draining:
			return false
		case <-ctx.Done():
			return false
		}
	}
}
