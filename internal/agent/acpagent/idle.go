package acpagent

import (
	"sync"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/modelproxy"
)

// idleTimer ends a turn in which nothing happens for too long. A running tool or terminal, a
// thinking model and every request of the agent count as activity.
type idleTimer struct {
	limit  time.Duration
	now    func() time.Time
	calls  *callRecorder
	model  *modelproxy.Session // nil if the agent talks to its provider itself
	terms  *acp.Terminals      // nil if the agent is offered none
	limits *limits

	mu sync.Mutex
	// active is when something happened last. timer is nil outside the turn.
	active time.Time
	timer  *time.Timer
}

// reset notes activity.
func (t *idleTimer) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active = t.now()
}

// start starts the timer at the beginning of a turn. stop must be called.
func (t *idleTimer) start() (stop func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(t.limit, t.check)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.timer.Stop()
		t.timer = nil
	}
}

// check ends the turn if the agent has been idle for the whole limit. Otherwise it restarts the
// timer.
func (t *idleTimer) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.timer == nil {
		return // the turn has just ended
	}
	now := t.now()
	switch {
	case t.calls.running(), t.terms != nil && t.terms.Running(), t.model != nil && t.model.Busy():
		t.active = now
	case t.model != nil:
		for _, call := range t.model.Calls() {
			if end := call.Time.Add(time.Duration(call.LatencyMs) * time.Millisecond); end.After(t.active) {
				t.active = end
			}
		}
	}
	if rest := t.limit - now.Sub(t.active); rest > 0 {
		t.timer.Reset(rest)
		return
	}
	t.limits.reach(fault.Newf(fault.Idle, "nothing came from the agent for %v (idleTimeout)", t.limit))
}
