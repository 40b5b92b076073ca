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
	limit time.Duration
	timer *time.Timer

	mu     sync.Mutex
	paused int
	over   bool
}

func newWatch(limit time.Duration, end context.CancelCauseFunc) *watch {
	return &watch{limit: limit, timer: time.AfterFunc(limit, func() { end(fmt.Errorf("%w: %v", errTimeout, limit)) })}
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
		w.timer.Stop()
	} else {
		w.timer.Reset(w.limit)
	}
}

// heard begins the time anew.
func (w *watch) heard() { w.set(0, false) }

// pause stops the time until resume is called, as often as it was.
func (w *watch) pause() { w.set(1, false) }

func (w *watch) resume() { w.set(-1, false) }

func (w *watch) stop() { w.set(0, true) }
