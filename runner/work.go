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

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/telemetry"
	"github.com/evalrun/evalrun/schemas"
)

// DefaultConcurrency is how many agents run at once by default.
const DefaultConcurrency = 4

// Options say how rollouts are worked on, and where events and logs go.
type Options struct {
	// Concurrency is how many agents run at once; 0 means DefaultConcurrency.
	Concurrency int
	// Variables are the variables that agents and jobs may name.
	Variables Variables
	// Drain, when it is closed, lets the running agents finish and starts no other. The end of the
	// context ends them at once. Either way the run can be resumed.
	Drain <-chan struct{}
	// Events, if not nil, is called with every event of the runs that are worked on, redacted, in
	// order and from one goroutine, whichever process made it.
	Events func(schemas.Event)
	// Notice, if not nil, is called with messages that the user should see at once. It may be called
	// from several goroutines.
	Notice func(text string)
	// Log, if not nil, gets the log lines in place of OpenOptions.Log.
	Log io.Writer
	// PublicURL is where jobs reach the server of this process, if it has one. They get the URL of a
	// webhook there by which they may answer.
	PublicURL string
	// Notifications are targets that a service tells of the events of all runs, beside the targets of
	// eval sets.
	Notifications Notifications
	// Telemetry, if not nil, is the collector of traces and metrics.
	Telemetry *Telemetry
}

// RunOptions are the options of [Store.Run] and [Store.Resume].
type RunOptions struct {
	Options
	// Wait goes on until the run is final. Otherwise the call ends when nothing can go on without
	// waiting.
	Wait bool
	// WaitJobs goes on until the run is final, or waits for people alone.
	WaitJobs bool
	// WaitTimeout ends the waiting; 0 means never.
	WaitTimeout time.Duration
	// Stay waits for results that their sources will forget, even without Wait.
	Stay bool
	// Document is a file that the results document is also written to.
	Document string
	// Accept says what a run may lack and still pass.
	Accept Accept
	// FailUnder are thresholds by which [Store.Resume] judges the run this time. They replace those of
	// its plan for the same figures.
	FailUnder eval.FailUnder
}

// Result describes a run when the work on it has ended.
type Result struct {
	RunID string
	Judgement
}

// Run works on a run until nothing can go on without waiting, or with Wait or WaitJobs for longer,
// and brings its results document up to date.
func (s *Store) Run(ctx context.Context, runID string, o RunOptions) (Result, error) {
	return s.work(ctx, runID, o, false)
}

// Resume first asks once for everything that the run waits for, and then works like Run.
func (s *Store) Resume(ctx context.Context, runID string, o RunOptions) (Result, error) {
	return s.work(ctx, runID, o, true)
}

func (s *Store) work(ctx context.Context, runID string, o RunOptions, askFirst bool) (Result, error) {
	result := Result{RunID: runID}
	p, err := readPlanned(ctx, s.st, runID, o.Variables)
	if err != nil {
		return result, err
	}
	if err := o.FailUnder.Check(&p.plan.Set); err != nil {
		return result, inputError("--fail-under: %w", err)
	}
	run, err := s.st.Run(ctx, runID)
	if err != nil {
		return result, err
	}
	if !run.Final() {
		if err := errors.Join(o.Variables.check(p.plan.Agents), o.Variables.checkJudges(p.plan)); err != nil {
			return result, err
		}
	}
	interrupted, workErr := work{s: s, o: o.Options, red: p.red}.until(ctx, runID, o, askFirst)
	if errors.Is(workErr, store.ErrMoved) {
		return result, workErr // there is nothing to write to any more
	}
	ctx = context.WithoutCancel(ctx) // results are written after an interruption, too
	result.Judgement, err = p.saveAndJudge(ctx, o.Document, judging{o.Accept, o.FailUnder}, interrupted)
	return result, errors.Join(workErr, err)
}

// work is the work of this process on runs of a store, with its options and its redactor.
type work struct {
	s   *Store
	o   Options
	red *redact.Redactor
	// exporter sends traces and metrics; nil if there is no telemetry.
	exporter *telemetry.Exporter
}

// until works on a run for as long as the options say, and reports whether it was interrupted.
func (w work) until(ctx context.Context, runID string, o RunOptions, askFirst bool) (interrupted bool, err error) {
	w, finish := w.exporting(ctx, runID)
	defer finish()
	until := engine.UntilIdle
	switch {
	case o.Wait:
		until = engine.UntilFinal
	case o.WaitJobs:
		until = engine.UntilAsked
	}
	e, err := w.engine(runID, w.o.concurrency(), o.Stay)
	if err != nil {
		return false, err
	}
	if askFirst {
		if err := e.CheckNow(ctx); err != nil {
			return false, err
		}
	}
	if (o.Wait || o.WaitJobs) && o.WaitTimeout > 0 {
		timer := time.AfterFunc(o.WaitTimeout, func() {
			w.o.notice("--wait-timeout: %v have passed", o.WaitTimeout)
			e.Stop()
		})
		defer timer.Stop()
	}
	drained, err := w.run(ctx, e, until)
	return drained || ctx.Err() != nil, err
}

// run runs the engine until it ends, and stops it when Drain is closed.
func (w work) run(ctx context.Context, e *engine.Runner, until engine.Until) (drained bool, err error) {
	defer w.notifying(ctx)()
	var stopped atomic.Bool
	ended, watching := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-w.o.Drain:
			stopped.Store(true)
			e.Stop()
		case <-ended:
		}
	}()
	w.s.engines.add(e)
	err = e.Run(ctx, until)
	w.s.engines.remove(e)
	close(ended)
	<-watching
	return stopped.Load(), err
}

func (o Options) concurrency() int { return cmp.Or(o.Concurrency, DefaultConcurrency) }

// engine makes the engine of a run, or of the whole store if runID is empty, with so many agents at
// once. Without agents it only looks after triggers.
func (w work) engine(runID string, agents int, stay bool) (*engine.Runner, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	webhooks, err := w.webhooks()
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Options{WebhookURL: webhooks, Store: w.s.st, RunID: runID, Concurrency: agents, WorkDir: dir,
		Executable: w.s.opts.Executable, Version: w.s.opts.Version, Resolve: w.o.Variables.resolve,
		Secrets: w.o.Variables.secrets(), Events: w.tell, Logger: w.logger(w.red), Lease: w.s.opts.Lease, Stay: stay}), nil
}

// tell passes an event to the exporter and to Options.Events.
func (w work) tell(e store.Event) {
	if w.exporter != nil {
		w.exporter.Changed(e.RunID)
	}
	if w.o.Events != nil {
		e.Data = w.red.JSON(e.Data)
		w.o.Events(report.EventOf(e))
	}
}

// logger returns the logger of the options, or else of the store.
func (w work) logger(red *redact.Redactor) *slog.Logger {
	to := w.o.Log
	if to == nil {
		to = w.s.opts.Log
	}
	if to == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(redactedWriter{to, red}, &slog.HandlerOptions{Level: w.s.opts.LogLevel}))
}
