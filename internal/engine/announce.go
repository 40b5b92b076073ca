package engine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// maxLacks is how many reasons a worker tells for which it could not go on with rollouts.
const maxLacks = 5

// announce tells the store, until it is stopped, that this process looks after all runs. Nothing depends
// on that but what people are told.
func (r *Runner) announce(ctx context.Context) (stop func()) {
	name := fmt.Sprintf("%s/%d", store.ThisMachine().Name, os.Getpid())
	ctx = context.WithoutCancel(ctx)
	tell := func() {
		r.mu.Lock()
		lacks := slices.Clone(r.lacks)
		r.mu.Unlock()
		if err := r.o.Store.Announce(ctx, store.Worker{Name: name, Version: r.o.Version, Lacks: lacks}); err != nil {
			r.o.Logger.Warn("the worker could not be announced", "error", err)
		}
	}
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		ticker := time.NewTicker(store.WorkerKept / 2)
		defer ticker.Stop()
		for {
			tell()
			select {
			case <-quit:
				return
			case <-ticker.C:
			case <-r.lacking:
			}
		}
	})
	return func() {
		close(quit)
		done.Wait()
		if err := r.o.Store.Leave(ctx); err != nil && !store.IsBroken(err) {
			r.o.Logger.Warn("the worker is still on the list of workers", "error", err)
		}
	}
}

// lack notes why a rollout cannot be gone on with here.
func (r *Runner) lack(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.lacks, why) {
		return
	}
	r.lacks = append(r.lacks, why)
	r.lacks = r.lacks[max(0, len(r.lacks)-maxLacks):]
	select {
	case r.lacking <- struct{}{}:
	default:
	}
}

// sayHeldBack tells the user of a run why nothing happens.
func (r *Runner) sayHeldBack(ctx context.Context, b store.Backlog) {
	if r.o.RunID == "" || b.Runnable > 0 {
		return
	}
	if b.Limited > 0 && !r.saidLimited {
		r.o.Logger.Warn("rollouts wait for a place that others have; evalrun limits shows how many may run at once", "rollouts", b.Limited)
	}
	if b.Unfit > 0 && !r.saidUnfit {
		queues, err := r.o.Store.Queues(ctx)
		workers, err1 := r.o.Store.Workers(ctx)
		if err != nil || err1 != nil {
			return // the store's own errors are told elsewhere
		}
		if unmet := store.Unmet(queues, workers); len(unmet) > 0 {
			var sets []string
			for _, tags := range unmet {
				sets = append(sets, strings.Join(tags, ","))
			}
			r.o.Logger.Warn("rollouts wait for a worker with their tags, and there is none: evalrun worker --tag TAG,... starts one",
				"rollouts", b.Unfit, "tags", strings.Join(sets, " or "))
		} else {
			r.o.Logger.Info("rollouts wait for a worker with their tags", "rollouts", b.Unfit)
		}
	}
	r.saidLimited, r.saidUnfit = b.Limited > 0, b.Unfit > 0
}
