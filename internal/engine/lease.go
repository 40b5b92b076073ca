package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/store"
)

var (
	errCancelled = errors.New("the rollout was cancelled")
	errLeaseLost = errors.New("the lease could not be renewed")
)

// leases renews what the runner holds, every third of a lease.
type leases struct {
	quit chan struct{}
	done sync.WaitGroup
}

func (l *leases) stop() {
	close(l.quit)
	l.done.Wait()
}

// keepLeases renews until it is stopped. Agents whose lease could not be renewed for two thirds of its length are ended, before
// somebody else may start them.
func (r *Runner) keepLeases(ctx context.Context) *leases {
	l := &leases{quit: make(chan struct{})}
	l.done.Go(func() {
		ctx := context.WithoutCancel(ctx) // agents are still being ended after ctx is done
		ticker := time.NewTicker(r.o.Lease / 3)
		defer ticker.Stop()
		renewed := r.o.Now()
		for {
			select {
			case <-l.quit:
				return
			case <-ticker.C:
			}
			r.mu.Lock()
			holds := len(r.held) > 0 || r.asking > 0
			r.mu.Unlock()
			if !holds {
				renewed = r.o.Now()
				continue
			}
			if err := r.renew(ctx); err == nil {
				renewed = r.o.Now()
			} else {
				r.o.Logger.Warn("the leases could not be renewed", "error", err)
			}
			if r.o.Now().Sub(renewed) >= r.o.Lease*2/3 {
				r.endAgents(r.heldIDs(), errLeaseLost)
			}
		}
	})
	return l
}

// renew renews once, and ends the agents of rollouts that were cancelled or that somebody else has taken over.
func (r *Runner) renew(ctx context.Context) error {
	ids := r.heldIDs() // before the store is asked: what is claimed meanwhile is not missing from its answer
	held, cancelled, err := r.o.Store.Renew(ctx)
	if err != nil {
		return err
	}
	r.endAgents(cancelled, errCancelled)
	// Of those that are missing some have just been committed: their agents have ended.
	r.endAgents(slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(held, id) }), errLeaseLost)
	return nil
}

// endAgents ends the agents of some rollouts.
func (r *Runner) endAgents(ids []string, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if cancel := r.held[id]; cancel != nil {
			cancel(cause)
		}
	}
}

// heldIDs are the ids of the rollouts that this process works on.
func (r *Runner) heldIDs() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.held))
}

// endLeftovers ends the processes of rollouts that were taken over from a process that is gone.
func (r *Runner) endLeftovers(claims []store.Claim) error {
	var ids []string
	for _, c := range claims {
		if c.TakenOver {
			ids = append(ids, r.marker(c.RolloutID))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ended, err := sandbox.Sweep(ids...)
	if ended > 0 {
		r.o.Logger.Warn("ended processes that a crashed evalrun left behind", "processes", ended, "rollouts", ids)
	}
	return err
}

// marker is what the processes of a rollout bear, so that whoever takes it over finds them.
func (r *Runner) marker(rolloutID string) string { return r.o.Store.ID() + "/" + rolloutID }
