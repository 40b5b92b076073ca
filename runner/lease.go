package runner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/sandbox"
	"github.com/evalrun/evalrun/store"
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
				r.endAgents(nil, errLeaseLost)
			}
		}
	})
	return l
}

// renew renews once, and ends the agents of rollouts that were cancelled or that somebody else has taken over.
func (r *Runner) renew(ctx context.Context) error {
	r.mu.Lock()
	var ids []string
	for id := range r.held {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	held, cancelled, err := r.o.Store.Renew(ctx)
	if err != nil {
		return err
	}
	r.endAgents(cancelled, errCancelled)
	lost := slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(held, id) })
	if len(lost) > 0 {
		r.endAgents(lost, errLeaseLost)
	}
	return nil
}

// endAgents ends the agents of some rollouts, or of all if ids is nil.
func (r *Runner) endAgents(ids []string, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ids == nil && cause == errLeaseLost {
		for _, cancel := range r.held {
			cancel(cause)
		}
	}
	for _, id := range ids {
		if cancel := r.held[id]; cancel != nil {
			cancel(cause)
		}
	}
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
