package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
)

// leases keeps the leases of the rollouts that this process works on.
type leases struct {
	o *Options
	// checking adds the claims of the triggers and batches that are being checked, which are
	// renewed as well.
	checking func(*store.Tokens)

	mu sync.Mutex
	// held maps the claims of rollouts to the functions that end their agents.
	held map[store.Token]context.CancelCauseFunc
}

func newLeases(o *Options, checking func(*store.Tokens)) *leases {
	return &leases{o: o, checking: checking, held: map[store.Token]context.CancelCauseFunc{}}
}

func (l *leases) add(t store.Token, cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[t] = cancel
}

func (l *leases) remove(t store.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, t)
}

func (l *leases) rollouts() []store.Token {
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
			if err := l.renew(ctx); err == nil {
				renewed = l.o.Now()
			} else {
				l.o.Logger.Warn("the leases could not be renewed", "error", err)
			}
			if l.o.Now().Sub(renewed) >= l.o.Lease*2/3 {
				l.endAgents(rollout.ErrLeaseLost, func(store.Token) bool { return true })
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
	t := store.Tokens{Rollouts: l.rollouts()}
	l.checking(&t)
	if len(t.Rollouts)+len(t.Triggers)+len(t.Batches) == 0 {
		return nil
	}
	held, cancelled, err := l.o.Store.Renew(ctx, t)
	if err != nil {
		return err
	}
	l.endAgents(rollout.ErrCancelled, func(t store.Token) bool { return slices.Contains(cancelled, t.RolloutID) })
	// Some of the missing rollouts have just been committed: their agents have ended. Rollouts that
	// were claimed meanwhile were not asked for.
	lost := slices.DeleteFunc(t.Rollouts, func(t store.Token) bool { return slices.Contains(held, t.RolloutID) })
	l.endAgents(rollout.ErrLeaseLost, func(t store.Token) bool { return slices.Contains(lost, t) })
	return nil
}

// endAgents ends the agents of some rollouts.
func (l *leases) endAgents(cause error, of func(store.Token) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t, cancel := range l.held {
		if of(t) {
			cancel(cause)
		}
	}
}
