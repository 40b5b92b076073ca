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

// The times of displays.
const (
	// redrawAfter is the least time between two drawings of the live line.
	redrawAfter = 100 * time.Millisecond
	// lookAfter is the least time between two looks at what is waited for.
	lookAfter = time.Second
	// beatAfter is how long a log is silent before it says what it waits for, beatMost how long it is at
	// most as long as nothing happens: each time is twice the one before.
	beatAfter, beatMost = time.Minute, 8 * time.Minute
	// etaAfter is the number of finished rollouts from which the time left is estimated.
	etaAfter = 3
)

// ProgressOptions are what a display needs. The zero value is usable.
type ProgressOptions struct {
	Redact *redact.Redactor
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Width returns the width of the terminal; nil means the variable COLUMNS, or 80.
	Width func() int
	// Color makes a live display use colours.
	Color bool
	// Look returns what is worked on and waited for; nil if a display does not show it.
	Look func() (Standing, error)
	// Verbose makes a Log show starts and deliveries as well.
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
// use and has no goroutine: call Tick when it says.
type Live struct {
	mu sync.Mutex
	w  io.Writer
	o  ProgressOptions
	x  *Execution

	since    time.Time
	finished int // rollouts that had finished when it began
	drawn    time.Time
	standing Standing
	looked   time.Time
	// visible is set while the line is on the terminal, stale when it is out of date.
	visible, stale bool
	closed         bool
}

// NewLive makes a live display of the events that it is given, and adds them to x.
func NewLive(w io.Writer, x *Execution, o ProgressOptions) *Live {
	o = o.withDefaults()
	return &Live{w: w, o: o, x: x, since: o.Now(), finished: x.Finished()}
}

// Event adds an event and, if it is time, draws. A failure stays above the line.
func (l *Live) Event(e schemas.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	data, name := l.x.add(e)
	l.stale = true
	if e.Type == schemas.EventRolloutFinished && !l.closed {
		if text := l.failure(l.x.verdict(e.RunID, data), data, name); text != "" {
			return l.above([]byte(text + "\n"))
		}
	}
	return l.draw(false)
}

// failure describes a rollout that has failed in one line. It is empty if the rollout has not.
func (l *Live) failure(v verdict, data eventData, name string) string {
	text := v.mark() + " " + name + ": "
	switch {
	case v == failed:
		text += "failed, score " + formatScore(data.Score)
	case v == verdict(schemas.StateFaulted) && data.Fault != nil:
		text += faultLine(data.Fault)
	default:
		return ""
	}
	return Terminal{Color: l.o.Color}.paint(v, fit(redact.Line(l.o.Redact.String(text)), max(l.o.Width()-1, 1)))
}

// Tick draws, if something has changed or a second has passed. It returns when to call it next.
func (l *Live) Tick() (next time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.o.Now().Sub(l.drawn) >= time.Second {
		l.stale = true
	}
	return redrawAfter, l.draw(false)
}

// Write prints text, such as log lines, above the live line. The text must be whole lines.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(p), l.above(p)
}

// above prints text above the line.
func (l *Live) above(p []byte) error {
	if err := l.clear(); err != nil {
		return err
	}
	if _, err := l.w.Write(p); err != nil {
		return err
	}
	if !strings.HasSuffix(string(p), "\n") {
		return nil // the line comes back with the rest
	}
	l.stale = true
	return l.draw(true)
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
	if l.o.Look != nil && now.Sub(l.looked) >= lookAfter {
		standing, err := l.o.Look()
		if err != nil {
			return err
		}
		l.standing, l.looked = standing, now
	}
	l.drawn, l.stale, l.visible = now, false, true
	_, err := io.WriteString(l.w, "\r\x1b[K"+l.line(now, max(l.o.Width()-1, 1)))
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

// line is like "[103/200] ✓72 ✗11 ⏸12 ⚠5  4 running  5.9/s  14 s left". It drops what does not fit
// from the end.
func (l *Live) line(now time.Time, columns int) string {
	x, t := l.x, Terminal{Color: l.o.Color}
	parts := []string{fmt.Sprintf("[%d/%d]", x.Finished(), max(x.Total, x.Finished()))}
	used := cells(parts[0])
	add := func(gap, text string, v verdict) {
		if used += cells(gap + text); used <= columns {
			parts = append(parts, gap, t.paint(v, text))
		}
	}
	for _, c := range []struct {
		v verdict
		n int
	}{
		{passed, x.Passed}, {failed, x.Failed}, {unscored, x.Unscored},
		{verdict(schemas.StateSuspended), x.Suspended + x.Scoring},
		{verdict(schemas.StateFaulted), x.Faulted}, {verdict(schemas.StateCancelled), x.Cancelled},
	} {
		if c.n > 0 {
			add(" ", c.v.mark()+strconv.Itoa(c.n), c.v)
		}
	}
	for _, text := range l.pace(now) {
		gap := "  "
		if strings.HasPrefix(text, ";") {
			gap = ""
		}
		add(gap, text, "")
	}
	return strings.Join(parts, "")
}

// pace says what is worked on and how long that takes, or what is waited for.
func (l *Live) pace(now time.Time) (out []string) {
	running, scoring := l.x.Running, 0
	if l.o.Look != nil && !l.looked.IsZero() { // events do not say when an agent has ended
		running, scoring = l.standing.Running, l.standing.Scoring
	}
	if running > 0 {
		out = append(out, fmt.Sprintf("%d running", running))
	}
	if scoring > 0 {
		out = append(out, fmt.Sprintf("%d scoring", scoring))
	}
	if len(out) == 0 && l.standing.Awaited != (Awaited{}) {
		what, next, _ := strings.Cut(l.standing.waiting(now), ";")
		if out = append(out, what); next != "" {
			out = append(out, ";"+next)
		}
		return out
	}
	elapsed, done := now.Sub(l.since), l.x.Finished()-l.finished
	if left := l.x.Total - l.x.Finished() - l.x.Suspended - l.x.Scoring; done >= etaAfter && left > 0 && elapsed > 0 {
		out = append(out, rate(float64(done)/elapsed.Seconds())+"/s",
			shortDuration(elapsed/time.Duration(done)*time.Duration(left))+" left")
	}
	return out
}

func rate(perSecond float64) string {
	if perSecond < 100 {
		return strconv.FormatFloat(perSecond, 'f', 1, 64)
	}
	return strconv.FormatFloat(perSecond, 'f', 0, 64)
}
