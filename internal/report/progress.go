package report

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/schemas"
)

// redrawAfter is the least time between two drawings of the live line, etaAfter the least number of
// finished rollouts from which the time left is estimated.
const (
	redrawAfter = 100 * time.Millisecond
	etaAfter    = 3
)

// ProgressOptions are what a display needs. The zero value is usable.
type ProgressOptions struct {
	Redact *redact.Redactor
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Width gives the width of the terminal; nil means the variable COLUMNS, or 80.
	Width func() int
	// Verbose has a Log show starts and deliveries as well.
	Verbose bool
}

func (o ProgressOptions) withDefaults() ProgressOptions {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Width == nil {
		o.Width = columns
	}
	return o
}

func columns() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	return 80
}

// Live shows one line on a terminal, redrawn at most ten times a second. It is safe for concurrent
// use and has no goroutine: call Tick from time to time.
type Live struct {
	mu sync.Mutex
	w  io.Writer
	o  ProgressOptions
	x  *Execution

	since    time.Time
	finished int // when it began
	drawn    time.Time
	// visible says that the line is on the terminal, stale that it is out of date.
	visible, stale bool
	name           string
	closed         bool
}

// NewLive makes a live display of the events that it is given, and adds them to x.
func NewLive(w io.Writer, x *Execution, o ProgressOptions) *Live {
	o = o.withDefaults()
	return &Live{w: w, o: o, x: x, since: o.Now(), finished: x.Finished()}
}

// Event adds an event and, if it is time, draws.
func (l *Live) Event(e schemas.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, name := l.x.add(e); name != "" {
		l.name = name
	}
	l.stale = true
	return l.draw(false)
}

// Tick draws, if something has changed or a second has passed.
func (l *Live) Tick() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.o.Now().Sub(l.drawn) >= time.Second {
		l.stale = true
	}
	return l.draw(false)
}

// Write prints text, such as log lines, above the live line. The text must be whole lines.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.clear(); err != nil {
		return 0, err
	}
	if n, err := l.w.Write(p); err != nil {
		return n, err
	}
	if !strings.HasSuffix(string(p), "\n") {
		return len(p), nil // the line comes back with the rest
	}
	l.stale = true
	return len(p), l.draw(true)
}

// Close clears the line. Nothing is drawn after it.
func (l *Live) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.clear()
}

func (l *Live) draw(atOnce bool) error {
	now := l.o.Now()
	if l.closed || !l.stale || !atOnce && now.Sub(l.drawn) < redrawAfter {
		return nil
	}
	l.drawn, l.stale, l.visible = now, false, true
	_, err := io.WriteString(l.w, "\r\x1b[K"+shorten(l.line(now), max(l.o.Width()-1, 1)))
	return err
}

func (l *Live) clear() error {
	if !l.visible {
		return nil
	}
	l.visible = false
	_, err := io.WriteString(l.w, "\r\x1b[K")
	return err
}

func (l *Live) line(now time.Time) string {
	parts := []string{fmt.Sprintf("[%d/%d]", l.x.Finished(), max(l.x.Total, l.x.Finished()))}
	for _, c := range []struct {
		n    int
		what string
	}{{l.x.Running, "running"}, {l.x.Suspended, "suspended"}, {l.x.Faulted, "faulted"}, {l.x.Cancelled, "cancelled"}} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	elapsed, done := now.Sub(l.since), l.x.Finished()-l.finished
	if left := l.x.Total - l.x.Finished() - l.x.Suspended; done >= etaAfter && left > 0 && elapsed > 0 {
		parts = append(parts, fmt.Sprintf("%s/s", rate(float64(done)/elapsed.Seconds())),
			"about "+formatDuration((elapsed/time.Duration(done)*time.Duration(left)).Round(time.Second))+" left")
	}
	if l.name != "" {
		parts = append(parts, redact.Line(l.o.Redact.String(l.name)))
	}
	return strings.Join(parts, "  ")
}

func rate(perSecond float64) string {
	if perSecond < 10 {
		return strconv.FormatFloat(perSecond, 'f', 2, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}
