package engine

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/internal/rollout"
)

// While agents are short, rollouts are claimed in advance; while they are long or not known, only
// for free slots.
func TestShortAgentsAreClaimedInAdvance(t *testing.T) {
	for _, test := range []struct {
		name          string
		pace          time.Duration
		active, taken int
		wantAvailable int
	}{
		{"nothing is known yet", 0, 1, 1, 1},
		{"long agents", time.Second, 1, 1, 1},
		{"short agents", time.Millisecond, 1, 1, 1 + 2*aheadPerSlot},
		{"short agents, and enough that wait", time.Millisecond, 4, 2, 0},
	} {
		s := newSlots(2)
		s.pace = test.pace
		for range test.taken {
			s.taken <- struct{}{}
		}
		if got := s.available(test.active); got != test.wantAvailable {
			t.Errorf("%s: %d are available, want %d", test.name, got, test.wantAvailable)
		}
	}
}

// A slot that does not become free soon is not waited for, and from then on agents count as long
// ones.
func TestASlotIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		if err := s.acquire(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := s.acquire(t.Context(), nil); !errors.Is(err, rollout.ErrNoSlot) || time.Since(began) != maxAhead {
			t.Errorf("after %v: %v, want ErrNoSlot after %v", time.Since(began), err, maxAhead)
		}
		if s.pace <= shortAgent {
			t.Errorf("the pace is %v, want more than %v", s.pace, shortAgent)
		}
		stop := make(chan struct{})
		close(stop)
		if err := s.acquire(t.Context(), stop); !errors.Is(err, rollout.ErrNoSlot) {
			t.Errorf("after the stop: %v, want ErrNoSlot", err)
		}
		s.release(time.Millisecond)
		if err := s.acquire(t.Context(), stop); err != nil {
			t.Errorf("the released slot: %v", err)
		}
	})
}
