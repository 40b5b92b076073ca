package runner

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// DefaultConcurrency is how many agents run at once if nobody says otherwise.
const DefaultConcurrency = 4

// Options say how rollouts are worked on, and who watches.
type Options struct {
	// Concurrency is how many agents run at once; 0 means DefaultConcurrency.
	Concurrency int
	// Variables are those that agents and jobs may name.
	Variables Variables
	// Drain, when it is closed, lets the running agents finish and starts no other. A context that
	// ends ends them at once. Either way the run can be resumed.
	Drain <-chan struct{}
	// Events, if not nil, is called with every event of what is worked on, redacted, in order and
	// from one goroutine, whichever process made it.
	Events func(schemas.Event)
	// Notice, if not nil, is called with what a person should know at once. It may be called from
	// several goroutines.
	Notice func(text string)
	// Log, if not nil, gets the log lines in place of OpenOptions.Log.
	Log io.Writer
	// PublicURL is where jobs reach the server of this process, if it has one: they are given a
	// webhook there by which they may answer.
	PublicURL string
	// Notifications are whom a service tells of the events of all runs, beside the targets of eval
	// sets.
	Notifications Notifications
}

// RunOptions are the options of [Store.Run] and [Store.Resume].
type RunOptions struct {
	Options
	// Wait goes on until the run is final; otherwise the call ends when nothing can go on without
	// waiting.
	Wait bool
	// WaitTimeout ends the waiting; 0 means never.
	WaitTimeout time.Duration
	// Stay waits for results that their sources will forget, even without Wait.
	Stay bool
	// Document is a file that the results document is also written to.
	Document string
	// Accept says what a run may lack and still pass.
	Accept Accept
}

// Result is how a run stands when the work on it has ended.
type Result struct {
	RunID   string
	Verdict Verdict
	// Reason says why the verdict is what it is, if it needs a reason.
	Reason string
}

// Run works on a run until nothing can go on without waiting, or with Wait until it is final, and
// brings its results document up to date.
func (s *Store) Run(ctx context.Context, runID string, o RunOptions) (Result, error) {
	return s.work(ctx, runID, o, false)
}

// Resume first asks once for everything that the run waits for, and then does what Run does.
func (s *Store) Resume(ctx context.Context, runID string, o RunOptions) (Result, error) {
	return s.work(ctx, runID, o, true)
}

func (s *Store) work(ctx context.Context, runID string, o RunOptions, askFirst bool) (Result, error) {
	result := Result{RunID: runID}
	plan, err := s.planOf(ctx, runID)
	if err != nil {
		return result, err
	}
	run, err := s.st.Run(ctx, runID)
	if err != nil {
		return result, err
	}
	if !run.Final() {
		if err := o.Variables.check(plan.Agents); err != nil {
			return result, err
		}
	}
	red := o.Variables.Redactor(plan)
	interrupted, workErr := s.runUntil(ctx, runID, o, red, askFirst)
	if errors.Is(workErr, store.ErrMoved) {
		return result, workErr // there is nothing to write to any more
	}
	ctx = context.WithoutCancel(ctx) // what was reached is written after an interruption, too
	if err := errors.Join(workErr, s.saveDocument(ctx, runID, o.Document, red)); err != nil {
		return result, err
	}
	result.Verdict, result.Reason, err = s.verdict(ctx, runID, plan, red, o.Accept, interrupted)
	return result, err
}

// runUntil runs the engine, and reports whether somebody ended the work before its time.
func (s *Store) runUntil(ctx context.Context, runID string, o RunOptions, red *redact.Redactor, askFirst bool) (interrupted bool, err error) {
	until := engine.UntilIdle
	if o.Wait {
		until = engine.UntilFinal
	}
	e, err := s.newEngine(runID, o.concurrency(), o.Options, red, o.Stay)
	if err != nil {
		return false, err
	}
	if askFirst {
		if err := e.CheckNow(ctx); err != nil {
			return false, err
		}
	}
	if o.Wait && o.WaitTimeout > 0 {
		timer := time.AfterFunc(o.WaitTimeout, func() {
			o.notice("--wait-timeout: %v have passed", o.WaitTimeout)
			e.Stop()
		})
		defer timer.Stop()
	}
	drained, err := s.runEngine(ctx, e, o.Options, until)
	return drained || ctx.Err() != nil, err
}

// runEngine runs the engine until it ends, and stops it when Drain is closed.
func (s *Store) runEngine(ctx context.Context, e *engine.Runner, o Options, until engine.Until) (drained bool, err error) {
	defer s.notifying(ctx, o)()
	var stopped atomic.Bool
	ended, watching := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-o.Drain:
			stopped.Store(true)
			e.Stop()
		case <-ended:
		}
	}()
	s.engines.add(e)
	err = e.Run(ctx, until)
	s.engines.remove(e)
	close(ended)
	<-watching
	return stopped.Load(), err
}

func (o Options) concurrency() int { return cmp.Or(o.Concurrency, DefaultConcurrency) }

// newEngine makes the engine of a run, or if runID is empty of the whole store, that runs so many
// agents at once. Without agents it only looks after triggers.
func (s *Store) newEngine(runID string, agents int, o Options, red *redact.Redactor, stay bool) (*engine.Runner, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	events := func(e store.Event) {
		if o.Events != nil {
			e.Data = red.JSON(e.Data)
			o.Events(report.EventOf(e))
		}
	}
	webhooks, err := s.webhooks(o.PublicURL)
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Options{WebhookURL: webhooks, Store: s.st, RunID: runID, Concurrency: agents, WorkDir: dir,
		Executable: s.opts.Executable, Version: s.opts.Version, Resolve: o.Variables.resolve, Secrets: o.Variables.secrets(),
		Events: events, Logger: s.logger(o, red), Lease: s.opts.Lease, Stay: stay}), nil
}

// logger logs where the options say, else where those of the store do.
func (s *Store) logger(o Options, red *redact.Redactor) *slog.Logger {
	to := o.Log
	if to == nil {
		to = s.opts.Log
	}
	if to == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(redactedWriter{to, red}, &slog.HandlerOptions{Level: s.opts.LogLevel}))
}
