package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// errTimeout ends a call of which nothing was heard for too long.
var errTimeout = errors.New("nothing was heard of the call for too long")

// watch ends a call of which nothing is heard for too long. The time in which a client is asked does not count. A watch that is nil watches nothing.
type watch struct {
	limit *time.Timer
	after time.Duration

	mu     sync.Mutex
	paused int
	over   bool
}

// watch begins to watch a call, which is ended with the cause.
func (e *Endpoint) watch(end context.CancelCauseFunc) *watch {
	w := &watch{after: e.server.timeout()}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = time.AfterFunc(w.after, func() {
		if w.runs() { // it may have been stopped when the time had just passed
			end(fmt.Errorf("%w: %v", errTimeout, w.after))
		}
	})
	return w
}

func (w *watch) set(pause int, over bool) {
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

func (w *watch) runs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused == 0 && !w.over
}

// heard begins the time anew.
func (w *watch) heard() { w.set(0, false) }

// pause stops the time until resume is called, as often as it was.
func (w *watch) pause() { w.set(1, false) }

func (w *watch) resume() { w.set(-1, false) }

func (w *watch) stop() { w.set(0, true) }
