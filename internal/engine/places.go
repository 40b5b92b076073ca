package engine

import (
	"context"
	"errors"
	"sync"
	"time"
)

// shortAgent is how long agents take at most for whom the next rollouts are claimed and prepared while they still run. Where they take longer
// a claim in advance would gain nothing, and would keep a rollout from other processes.
const shortAgent = 50 * time.Millisecond

// maxAhead is how long a rollout that was claimed in advance waits for a place before it is given back.
const maxAhead = 10 * shortAgent

// errNoPlace says that a rollout was claimed in advance and is to be given back.
var errNoPlace = errors.New("there was no place for the agent")

// places are for the agents that run at once.
type places struct {
	taken chan struct{}
	mu    sync.Mutex
	// pace is how long agents have taken lately; 0 as long as nothing is known.
	pace time.Duration
}

func newPlaces(n int) *places { return &places{taken: make(chan struct{}, n)} }

// take waits for a place. One that was not found soon is not waited for: the agents that run have turned out to be long ones.
func (p *places) take(ctx context.Context, stop <-chan struct{}) error {
	select {
	case p.taken <- struct{}{}:
		return nil
	default:
	}
	patience := time.NewTimer(maxAhead)
	defer patience.Stop()
	select {
	case p.taken <- struct{}{}:
		return nil
	case <-patience.C:
		p.mu.Lock()
		p.pace = max(p.pace, shortAgent+1)
		p.mu.Unlock()
	case <-stop:
	case <-ctx.Done():
	}
	return errNoPlace
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

// aheadPerPlace is how many rollouts are claimed in advance for each place.
const aheadPerPlace = 4

// room says how many rollouts to claim when so many have been claimed whose agent has not ended. Claims in advance are made several at a time.
func (p *places) room(active int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := cap(p.taken) - active
	if p.pace == 0 || p.pace > shortAgent {
		return free
	}
	if waiting := active - len(p.taken); waiting >= cap(p.taken) {
		return 0 // there are enough
	}
	return free + aheadPerPlace*cap(p.taken)
}
