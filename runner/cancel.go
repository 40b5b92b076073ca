package runner

import (
	"context"
	"errors"

	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// CancelOptions say what a cancellation reaches.
type CancelOptions struct {
	// Jobs also ends the local jobs that are waited for.
	Jobs bool
	// Leave leaves the consequences to an executor: it cancels jobs, and writes events and results
	// documents.
	Leave bool
}

// Cancel cancels the rest of a run, named as [Store.Find] knows it, or of one rollout, named by its
// id. It returns the number of rollouts that it has cancelled. The process that runs a rollout ends
// it. It is an [InputError] if all of them have ended already, unless [CancelOptions.Leave] is set.
func (s *Store) Cancel(ctx context.Context, name string, o CancelOptions) (int, error) {
	var keep []string
	if !o.Jobs {
		keep = wait.LocalSources()
	}
	runID, err := s.st.RunOf(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		run, err := s.Find(ctx, name)
		if errors.Is(err, errNoRun) {
			return 0, inputError("there is no run or rollout %q in the store %s", name, s.Name())
		}
		if err != nil {
			return 0, err
		}
		runID, name = run.ID, run.ID
	} else if err != nil {
		return 0, err
	}
	n, err := s.st.Cancel(ctx, name, keep...)
	if err != nil {
		return 0, err
	}
	s.Wake(runID)
	if o.Leave {
		return n, nil
	}
	agents := 0
	if name == runID {
		agents = 1 // no agent is left to be started, but the agents of a dead process are to be ended
	}
	if err := s.settle(ctx, runID, agents); err != nil || n > 0 {
		return n, err
	}
	// An earlier cancel may have left work undone, which settle has now done.
	return 0, s.nothingToCancel(ctx, runID, name)
}

// nothingToCancel returns the error that a run or a rollout has ended already.
func (s *Store) nothingToCancel(ctx context.Context, runID, name string) error {
	if name != runID {
		one, err := s.st.Rollout(ctx, name)
		if err != nil {
			return err
		}
		return inputError("rollout %s has ended already (%s); nothing was cancelled", name, one.State)
	}
	run, err := s.Find(ctx, runID)
	if err != nil {
		return err
	}
	return inputError("run %s has ended already (%s); nothing was cancelled", runID, run.Status)
}

// settle handles once what is due in a run, starting at most so many agents at once, and brings its
// events and its results document up to date.
func (s *Store) settle(ctx context.Context, runID string, agents int) error {
	p, err := readPlanned(ctx, s.st, runID, Variables{})
	if err != nil {
		return err
	}
	e, err := work{s: s, o: Options{}, red: p.red}.engine(p.runID, agents, false)
	if err != nil {
		return err
	}
	return errors.Join(e.Run(ctx, engine.UntilIdle), engine.Tidy(ctx, s.st, p.runID), p.save(ctx))
}
