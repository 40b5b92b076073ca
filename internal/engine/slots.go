package engine

import (
	"context"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/rollout"
)

// shortAgent is how long agents may take for the next rollouts to be claimed and prepared while
// they still run. With longer agents a claim in advance would gain nothing, and would keep a
// rollout from other processes.
const shortAgent = 50 * time.Millisecond

// maxAhead is how long a rollout that was claimed in advance waits for a slot before it is given
// back.
const maxAhead = 10 * shortAgent

// aheadPerSlot is how many rollouts are claimed in advance for each slot.
const aheadPerSlot = 4

// slots limits how many agents run at once.
type slots struct {
	taken chan struct{}
	mu    sync.Mutex
	// pace is how long agents have taken lately; 0 if that is not known yet.
	pace time.Duration
}

func newSlots(n int) *slots { return &slots{taken: make(chan struct{}, n)} }

// available returns how many rollouts to claim. active counts the claimed rollouts whose agent has
// not ended. Claims in advance are made several at a time.
func (s *slots) available(active int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := cap(s.taken) - active
	if s.pace == 0 || s.pace > shortAgent {
		return free
	}
	if waiting := active - len(s.taken); waiting >= cap(s.taken) {
		return 0 // enough are claimed
	}
	return free + aheadPerSlot*cap(s.taken)
}

// acquire waits for a slot. It gives up if none becomes free soon, because the running agents take
// longer than expected.
func (s *slots) acquire(ctx context.Context, stop <-chan struct{}) error {
	select {
	case s.taken <- struct{}{}:
		return nil
	default:
	}
	patience := time.NewTimer(maxAhead)
	defer patience.Stop()
	select {
	case s.taken <- struct{}{}:
		return nil
	case <-patience.C:
		s.mu.Lock()
		s.pace = max(s.pace, shortAgent+1)
		s.mu.Unlock()
	case <-stop:
	case <-ctx.Done():
	}
	return rollout.ErrNoSlot
}

// release gives a slot back. took is how long the agent had it.
func (s *slots) release(took time.Duration) {
	<-s.taken
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pace == 0 {
		s.pace = took
	}
	s.pace = (3*s.pace + took) / 4
}

// agentSlot is the slot of one rollout; it implements [rollout.Slot].
type agentSlot struct {
	r *Runner
	// acquired is when the rollout got its slot, zero if it has none.
	acquired time.Time
	released sync.Once
}

func (a *agentSlot) Acquire(ctx context.Context) error {
	err := a.r.slots.acquire(ctx, a.r.stop)
	if err == nil {
		a.acquired = time.Now()
	}
	return err
}

func (a *agentSlot) Release() {
	a.released.Do(func() {
		if !a.acquired.IsZero() {
			a.r.slots.release(time.Since(a.acquired))
		}
		a.r.agentEnded()
	})
}
