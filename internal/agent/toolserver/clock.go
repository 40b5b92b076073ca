package toolserver

import (
	"context"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// Clock ends a segment that works for too long. It stops while a call is held, because the
// segment waits then.
type Clock struct {
	mu    sync.Mutex
	holds int
	since time.Time // the time at which the clock stopped, if holds is not 0
	held  time.Duration
	// timer, if there is a limit, ends the segment at due.
	timer *time.Timer
	due   time.Time
}

// NewClock starts a clock. Its context ends after the limit with the fault; 0 means no limit.
// The caller must call stop.
func NewClock(ctx context.Context, limit time.Duration, f *fault.Fault) (
	_ context.Context, c *Clock, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c = &Clock{}
	if limit > 0 {
		c.due = time.Now().Add(limit)
		c.timer = time.AfterFunc(limit, func() { cancel(f) })
	}
	return ctx, c, func() {
		if c.timer != nil {
			c.timer.Stop()
		}
		cancel(nil)
	}
}

// Hold notes that a call is held from now on, or not any more.
func (c *Clock) Hold(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case on:
		if c.holds++; c.holds == 1 {
			if c.since = now; c.timer != nil {
				c.timer.Stop() // a timer that has fired has ended the segment
			}
		}
	default:
		if c.holds--; c.holds == 0 {
			c.held += now.Sub(c.since)
			if c.timer != nil {
				c.due = c.due.Add(now.Sub(c.since))
				c.timer.Reset(c.due.Sub(now))
			}
		}
	}
}

// Deadline returns when the segment ends if it works from now on; zero if there is no limit.
func (c *Clock) Deadline() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return time.Time{}
	}
	if c.holds > 0 {
		return c.due.Add(time.Since(c.since))
	}
	return c.due
}

// Waited returns how long the clock has been stopped.
func (c *Clock) Waited() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds > 0 {
		return c.held + time.Since(c.since)
	}
	return c.held
}
