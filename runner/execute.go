package runner

import (
	"context"
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// ExecuteOptions are the options of [Store.Execute].
type ExecuteOptions struct {
	Options
	// Once asks every source once, resumes the rollouts that can go on, and ends.
	Once bool
}

// Execute looks after all runs of the store: it watches the sources of their triggers, resumes
// rollouts that can go on, and keeps their results documents up to date. It goes on until its
// context ends or Drain is closed. It costs next to nothing while nothing is due. When the server of
// a database is away for longer than a lease, others take over what this process has worked on;
// it says so, and goes on when the server answers again.
func (s *Store) Execute(ctx context.Context, o ExecuteOptions) error {
	if o.Once {
		return s.execute(ctx, o.Options, engine.UntilIdle, true)
	}
	for {
		err := s.execute(ctx, o.Options, engine.UntilStopped, false)
		if !store.IsAway(err) {
			return err
		}
		o.notice("%v; this process goes on when the store can be written to again; others may take over what it worked on", err)
		select {
		case <-time.After(awayPause):
		case <-o.Drain:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// awayPause is how long a process waits before it tries again to work on a store whose server is
// away, beyond the lease for which it has tried already.
const awayPause = 5 * time.Second

// execute looks after all runs of the store. With askFirst it asks every source at once.
func (s *Store) execute(ctx context.Context, o Options, until engine.Until, askFirst bool) error {
	docs := newDocuments(func(ctx context.Context, runID string) error {
		p, err := readPlanned(ctx, s.st, runID, o.Variables)
		if err != nil {
			return err
		}
		return p.save(ctx)
	}, func(err error) { o.notice("%v", err) })
	watch := o.Events
	o.Events = func(e schemas.Event) {
		if watch != nil {
			watch(e)
		}
		docs.changedRun(e.RunID)
	}
	w, finish := work{s: s, o: o, red: redact.New(o.Variables.secrets())}.exporting(ctx, "")
	defer finish()
	e, err := w.engine("", o.concurrency(), false)
	if err != nil {
		return err
	}
	if err := w.tellOfAllRuns(ctx); err != nil {
		return unlessEnded(ctx, err)
	}
	if askFirst {
		if err := e.CheckNow(ctx); err != nil {
			return unlessEnded(ctx, err)
		}
	}
	_, err = w.run(ctx, e, until)
	if errors.Is(err, store.ErrMoved) {
		return err // there is nothing to write to any more
	}
	return errors.Join(err, docs.close())
}

// unlessEnded returns the error, or nil if it only says that the context has ended. Ending an
// executor is intended, even when it has hardly begun.
func unlessEnded(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && errors.Is(err, cause) {
		return nil
	}
	return err
}
