package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
)

func executorCommand(g *globals) *cobra.Command {
	var w workFlags
	var once bool
	cmd := &cobra.Command{
		Use:     "executor",
		Aliases: []string{"worker"},
		Short:   "Poll every suspended run of the store and resume; --once for cron and serverless",
		Long: `Watch what the suspended rollouts of all runs wait for, resume them as soon as they can go on, and keep the results
documents in the store up to date. It costs next to nothing while nothing is due.

With --once every source is asked once, what can be resumed is, and the command ends.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(w.checkConcurrency(), w.refuseInputs()); err != nil {
				return err
			}
			env, err := w.environment()
			if err != nil {
				return err
			}
			return g.withStore(func(s *store.SQLite) error { return w.execute(cmd, g, s, env, once) })
		},
	}
	f := cmd.Flags()
	f.IntVarP(&w.concurrency, "concurrency", "j", 4, "run `N` agents at once")
	f.BoolVar(&once, "once", false, "ask every source once, resume what can be resumed, and end")
	w.registerEvents(cmd)
	return cmd
}

func (w *workFlags) execute(cmd *cobra.Command, g *globals, s *store.SQLite, env environment, once bool) error {
	out, err := w.newOutput(cmd, g, s, redact.New(env.secrets()))
	if err != nil {
		return err
	}
	out.redactRun = func(runID string) (*redact.Redactor, error) {
		plan, err := planOf(context.Background(), s, runID)
		return plan.Redactor(env.secrets(), env.resolve), err
	}
	documents := &documents{output: out, changed: map[string]bool{}, errs: map[string]error{}}
	out.onEvent = documents.note
	if err := out.showProgress(cmd.Context(), store.Run{}); err != nil {
		return err
	}
	r, err := w.newRunner(g, s, "", env, out)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	stop := onSignals(func(count int) {
		switch count {
		case 1:
			out.say("stopping: letting the running agents finish; once more ends them")
			r.Stop()
		case 2:
			cancel()
		default:
			os.Exit(exitInterrupted)
		}
	})
	defer stop()
	until := engine.UntilStopped
	if once {
		until = engine.UntilIdle
		if err := r.CheckNow(ctx); err != nil {
			return internal(err)
		}
	}
	err = r.Run(ctx, until)
	if errors.Is(err, store.ErrMoved) {
		return internal(err) // there is nothing to write to any more
	}
	return internal(errors.Join(err, documents.close(), out.close()))
}

// documentDelay is how long the executor waits after a change before it writes a results document.
const documentDelay = time.Second

// documents keeps the results documents of the store's runs up to date.
type documents struct {
	output *output

	mu      sync.Mutex
	changed map[string]bool
	timer   *time.Timer
	closed  bool
	// errs are the errors of the runs whose document is not up to date.
	errs map[string]error
	// saving is held while documents are written.
	saving sync.Mutex
}

// note remembers that a run has changed, and sees to it that its document will be written.
func (d *documents) note(e store.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed[e.RunID] = true
	if d.timer == nil && !d.closed {
		d.timer = time.AfterFunc(documentDelay, d.save)
	}
}

// save writes the documents of what has changed. The next time is not before ten times as long has passed as this has taken.
func (d *documents) save() {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.mu.Lock()
	runs := d.changed
	d.changed = map[string]bool{}
	d.mu.Unlock()
	began := time.Now()
	for id := range runs {
		d.saved(id, d.output.saveDocument(context.Background(), id, ""))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer = nil
	if len(d.changed) > 0 && !d.closed {
		d.timer = time.AfterFunc(max(documentDelay, 10*time.Since(began)), d.save)
	}
}

// saved keeps the error of a run until its document is written, and says the first one at once. An executor may run for months.
func (d *documents) saved(runID string, err error) {
	before := d.errs[runID]
	if err == nil || errors.Is(err, store.ErrNotFound) { // a run that was removed in the meantime has no document
		delete(d.errs, runID)
		return
	}
	d.errs[runID] = err
	if before == nil {
		d.output.say("%v", err)
	}
}

// close writes what is left, and returns the errors of the runs whose document could not be written.
func (d *documents) close() error {
	d.mu.Lock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
	d.mu.Unlock()
	d.save()
	return errors.Join(slices.Collect(maps.Values(d.errs))...)
}

// onSignals calls f for each SIGINT or SIGTERM with its number until the returned function is called.
func onSignals(f func(count int)) (stop func()) {
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for count := 1; ; count++ {
			select {
			case <-signals:
				f(count)
			case <-quit:
				return
			}
		}
	})
	return func() {
		signal.Stop(signals)
		close(quit)
		done.Wait()
	}
}
