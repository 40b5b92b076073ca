package acpagent

import (
	"sync"

	"github.com/evalrun/evalrun/internal/fault"
)

// limits ends the turn when a limit is reached. The first one counts.
type limits struct {
	reached chan *fault.Fault

	mu     sync.Mutex
	excess *fault.Fault
}

func newLimits() *limits { return &limits{reached: make(chan *fault.Fault, 1)} }

// reach ends the turn.
func (l *limits) reach(f *fault.Fault) {
	select {
	case l.reached <- f:
	default:
	}
}

// exceed records that the agent has said or sent too much, and ends the turn.
func (l *limits) exceed(f *fault.Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.excess == nil {
		l.excess = f
		l.reach(f)
	}
}

// exceeded returns the fault of an agent that has said or sent too much; nil if it has not.
func (l *limits) exceeded() *fault.Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.excess
}
