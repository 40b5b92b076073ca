package acpagent

import (
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
)

// pendingRequests holds a turn's requests to people, and the work that it has started.
type pendingRequests struct {
	// grace is how long the turn may go on after the first request.
	grace time.Duration
	// suspendGraceOver is closed when the turn has gone on for longer than that.
	suspendGraceOver chan struct{}

	mu         sync.Mutex
	requests   []request
	graceTimer *time.Timer
	// arrived holds the calls whose work has brought its result after all.
	arrived map[string]bool
}

func newPendingRequests(grace time.Duration) *pendingRequests {
	return &pendingRequests{grace: grace, suspendGraceOver: make(chan struct{}), arrived: map[string]bool{}}
}

// add adds a request, unless it is there already.
func (p *pendingRequests) add(r request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.requests, func(other request) bool { return other.Interrupt == r.Interrupt }) {
		return
	}
	p.requests = append(p.requests, r)
	if p.graceTimer == nil {
		p.graceTimer = time.AfterFunc(p.grace, func() { close(p.suspendGraceOver) })
	}
}

// workArrived notes that a call has brought the result of pending work.
func (p *pendingRequests) workArrived(w wait.Work) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arrived[w.CallID] = true
	p.requests = slices.DeleteFunc(slices.Clone(p.requests), p.hasArrived)
	if len(p.requests) == 0 && p.graceTimer != nil {
		p.graceTimer.Stop()
		p.graceTimer = nil
	}
}

// list returns the requests of this turn, and those of earlier ones whose result has not arrived.
func (p *pendingRequests) list(earlier []request) (now, left []request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests), slices.DeleteFunc(slices.Clone(earlier), p.hasArrived)
}

// hasArrived reports whether pending work has brought its result. The caller holds mu.
func (p *pendingRequests) hasArrived(r request) bool {
	return r.Call != nil && p.arrived[r.Call.CallID]
}

// stop stops the timer when the turn is over.
func (p *pendingRequests) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.graceTimer != nil {
		p.graceTimer.Stop()
	}
}
