package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/rollout"
)

// leases are those of the rollouts that this process works on.
type leases struct {
	o *Options
	// checking reports whether sources are being asked: claims of triggers are renewed as well.
	checking func() bool

	mu sync.Mutex
	// held are the ids of the rollouts, with what ends their agent.
	held map[string]context.CancelCauseFunc
}

func newLeases(o *Options, checking func() bool) *leases {
	return &leases{o: o, checking: checking, held: map[string]context.CancelCauseFunc{}}
}

func (l *leases) add(rolloutID string, cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[rolloutID] = cancel
}

func (l *leases) remove(rolloutID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, rolloutID)
}

func (l *leases) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.held))
}

// keep renews every third of a lease until it is stopped. Agents whose lease could not be renewed
// for two thirds of its length are ended, before somebody else may start them.
func (l *leases) keep(ctx context.Context) (stop func()) {
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ctx := context.WithoutCancel(ctx) // agents are still being ended after ctx is done
		ticker := time.NewTicker(l.o.Lease / 3)
		defer ticker.Stop()
		renewed := l.o.Now()
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			if len(l.ids()) == 0 && !l.checking() {
				renewed = l.o.Now()
				continue
			}
			if err := l.renew(ctx); err == nil {
				renewed = l.o.Now()
			} else {
				l.o.Logger.Warn("the leases could not be renewed", "error", err)
			}
			if l.o.Now().Sub(renewed) >= l.o.Lease*2/3 {
				l.endAgents(l.ids(), rollout.ErrLeaseLost)
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
	}
}

// renew renews once, and ends the agents of rollouts that were cancelled or that somebody else has
// taken over.
func (l *leases) renew(ctx context.Context) error {
	ids := l.ids() // before the store is asked: what is claimed meanwhile is not missing from its answer
	held, cancelled, err := l.o.Store.Renew(ctx)
	if err != nil {
		return err
	}
	l.endAgents(cancelled, rollout.ErrCancelled)
	// Of those that are missing some have just been committed: their agents have ended.
	l.endAgents(slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(held, id) }), rollout.ErrLeaseLost)
	return nil
}

// endAgents ends the agents of some rollouts.
func (l *leases) endAgents(ids []string, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if cancel := l.held[id]; cancel != nil {
			cancel(cause)
		}
	}
}
