package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrTimeout ends a call that was silent for too long.
var ErrTimeout = errors.New("nothing was heard of the call for too long")

// IdleTimer ends a call that is silent for too long. The time in which a client is asked does not
// count. A nil IdleTimer does nothing.
type IdleTimer struct {
	limit *time.Timer
	after time.Duration

	mu     sync.Mutex
	paused int
	over   bool
}

// StartIdleTimer starts the timer of a call. It ends the call with the cause when the call was
// silent for the time of the limit.
func StartIdleTimer(limit time.Duration, end context.CancelCauseFunc) *IdleTimer {
	w := &IdleTimer{after: limit}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = time.AfterFunc(w.after, func() {
		if w.runs() { // it may have been stopped when the time had just passed
			end(fmt.Errorf("%w: %v", ErrTimeout, w.after))
		}
	})
	return w
}

func (w *IdleTimer) set(pause int, over bool) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.paused += pause
	w.over = w.over || over
	if w.paused > 0 || w.over {
		w.limit.Stop()
	} else {
		w.limit.Reset(w.after)
	}
}

func (w *IdleTimer) runs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused == 0 && !w.over
}

// Reset begins the time anew.
func (w *IdleTimer) Reset() { w.set(0, false) }

// Pause stops the time until Resume has been called as often as Pause.
func (w *IdleTimer) Pause() { w.set(1, false) }

// Resume lets the time go on after Pause.
func (w *IdleTimer) Resume() { w.set(-1, false) }

// Stop is called when the call has ended.
func (w *IdleTimer) Stop() { w.set(0, true) }
