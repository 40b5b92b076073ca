package runner

import (
	"context"
	"errors"
	"sync"
	"time"
)

// shortAgent is how long agents take at most for whom the next rollouts are claimed and prepared while they still run. Where they take longer
// a claim in advance would gain nothing, and would keep a rollout from other processes.
const shortAgent = 50 * time.Millisecond

// errNoPlace says that a rollout was claimed in advance and is not to be begun any more.
var errNoPlace = errors.New("stopped before the agent was started")

// places are for the agents that run at once.
type places struct {
	taken chan struct{}
	mu    sync.Mutex
	// pace is how long agents have taken lately; 0 as long as nothing is known.
	pace time.Duration
}

func newPlaces(n int) *places { return &places{taken: make(chan struct{}, n)} }

// take waits for a place.
func (p *places) take(ctx context.Context, stop <-chan struct{}) error {
	select {
	case p.taken <- struct{}{}:
		return nil
	case <-stop:
		return errNoPlace
	case <-ctx.Done():
		return errNoPlace
	}
}

// free gives a place back that an agent had for so long.
func (p *places) free(took time.Duration) {
	<-p.taken
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pace == 0 {
		p.pace = took
	}
	p.pace = (3*p.pace + took) / 4
}

// ahead is how many rollouts may be claimed beyond those for which there are places.
func (p *places) ahead() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pace == 0 || p.pace > shortAgent {
		return 0
	}
	return cap(p.taken)
}
