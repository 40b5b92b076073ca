package runner

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/store"
)

// Remove removes a run from the store with all its files. A run that is not final is cancelled
// first, and so are jobs that nobody waits for any more. With dryRun it only checks whether it
// would.
func (s *Store) Remove(ctx context.Context, run Run, dryRun bool) error {
	if run.Held > 0 {
		return inputError("run %s: another process works on it; end that first", run.ID)
	}
	if dryRun {
		return nil
	}
	if !run.Final {
		if _, err := s.st.Cancel(ctx, run.ID); err != nil {
			return err
		}
	}
	left, err := s.st.Backlog(ctx, run.ID)
	if err != nil {
		return err
	}
	if !run.Final || left.Due > 0 {
		if err := s.settle(ctx, run.ID, 1); err != nil {
			return err
		}
	}
	err = engine.Remove(ctx, s.st, run.ID)
	if errors.Is(err, store.ErrNotFinal) {
		return inputError("run %s: another process has begun to work on it; it is cancelled, so try again when that has ended",
			run.ID)
	}
	return err
}

// PruneFiles removes blocks of files of suspended rollouts that no open rollout needs, and which nobody
// has asked for since the given age. It returns how many they were.
func (s *Store) PruneFiles(ctx context.Context, age time.Duration) (blocks int, err error) {
	return s.st.PruneBlocks(ctx, age)
}

// CheckFiles makes sure that files of suspended rollouts can be kept and had. It returns where they are kept.
func (s *Store) CheckFiles(ctx context.Context) (place string, err error) {
	return s.st.CheckBlobs(ctx)
}

// About returns what a server says of itself that has the store: its version, standbys, what is wrong with its clock
// and its leases. It is empty for a store in a folder.
func (s *Store) About(ctx context.Context) (string, error) { return s.st.About(ctx) }

// Old says which runs are old enough to be removed.
type Old struct {
	// Before, if not zero, is the time before which a run must have become final.
	Before time.Time
	// Keep is the number of newest runs that stay, however old they are.
	Keep int
	// Open also chooses runs that are not final, if they were created before Before.
	Open bool
}

// OldRuns returns the runs that are old.
func (s *Store) OldRuns(ctx context.Context, o Old) ([]Run, error) {
	runs, err := s.Runs(ctx) // the newest first
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(runs[min(o.Keep, len(runs)):], func(r Run) bool {
		since := r.FinishedAt
		if !r.Final {
			since = r.CreatedAt
		}
		return !r.Final && !o.Open || !o.Before.IsZero() && since.After(o.Before)
	}), nil
}
