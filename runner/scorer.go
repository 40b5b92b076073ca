package runner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
)

// scorer runs a rescoring. Some goroutines ask evaluators, and one stores all results that have
// arrived.
type scorer struct {
	*rescoring
	again  *rollout.Rescoring
	number int
}

// maxStored is how many rollouts share a transaction, maxRead how many are read at once.
const (
	maxStored = 256
	maxRead   = 32
)

func (s *scorer) run(ctx context.Context, ids []string, concurrency int, drain <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo, done := make(chan *store.Rescorable), make(chan store.Rescored, maxStored)
	go func() {
		defer close(todo)
		for some := range slices.Chunk(ids, maxRead) {
			all, err := s.st.Rescorables(ctx, s.number, some...)
			if err != nil {
				cancel(err)
				return
			}
			for i := range all {
				select {
				case <-drain:
					return
				case <-ctx.Done():
					return
				case todo <- &all[i]:
				}
			}
		}
	}()
	var workers sync.WaitGroup
	for range concurrency {
		workers.Go(func() {
			for rollout := range todo {
				one, err := s.one(ctx, rollout)
				if err != nil {
					cancel(err)
					continue
				}
				done <- one
			}
		})
	}
	go func() {
		workers.Wait()
		close(done)
	}()
	err := s.store(done, cancel)
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) &&
		!errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	return err
}

// one scores a rollout.
func (s *scorer) one(ctx context.Context, one *store.Rescorable) (store.Rescored, error) {
	if s.unmatched[one.EvaluationID] {
		return store.Rescored{RolloutID: one.ID,
			Unscored: fmt.Sprintf("%s has no evaluation %s", filepath.Base(s.with.File), one.EvaluationID)}, nil
	}
	return s.again.Score(ctx, one)
}

// store stores results until done is closed.
func (s *scorer) store(done <-chan store.Rescored, cancel context.CancelCauseFunc) (err error) {
	for one := range done {
		batch := []store.Rescored{one}
	more:
		for len(batch) < maxStored {
			select {
			case one, ok := <-done:
				if !ok {
					break more
				}
				batch = append(batch, one)
			default:
				break more
			}
		}
		if err != nil {
			continue // the workers are ending
		}
		failpoint.Hit("rescore.storing")
		if err = s.st.Rescore(context.Background(), s.runID, s.number, batch...); err != nil {
			cancel(err)
		}
		failpoint.Hit("rescore.stored")
	}
	return err
}
