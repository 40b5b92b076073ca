package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/runner"
)

// work works on a run, prints the reports, and returns the verdict on the run as an error.
func (w *workFlags) work(cmd *cobra.Command, g *globals, s *runner.Store, runID string, o runner.RunOptions,
	resume bool) error {
	out, err := w.newOutput(cmd, g, s, o.Variables)
	if err != nil {
		return err
	}
	run, err := s.Find(cmd.Context(), runID)
	if err != nil {
		return internal(err)
	}
	if err := out.showProgress(cmd.Context(), run); err != nil {
		return err
	}
	ctx, drain, stop := out.endOnSignals(cmd.Context(),
		"interrupted: letting the running agents finish; once more ends them, the run can be resumed either way",
		"ending the running agents")
	defer stop()
	o.Drain, o.Events, o.Notice, o.Log = drain, out.event, out.say, out
	work := s.Run
	if resume {
		work = s.Resume
	}
	stopTicking := out.ticking()
	result, err := work(ctx, runID, o)
	stopTicking()
	if errors.Is(err, runner.ErrMoved) || errors.As(err, new(*runner.InputError)) {
		return internal(errors.Join(err, out.close())) // there is nothing to report
	}
	verdict := verdictError(result.Judgement, resumeLine(s, runID))
	if err := out.finish(runID, w, o.FailUnder, result.Judgement, verdict, err); err != nil {
		return internal(err)
	}
	if verdict != nil && out.showsTable() {
		return &exitError{codeOf(verdict), nil} // the table has shown the reason
	}
	return verdict
}

// endOnSignals lets the running agents finish at the first SIGINT or SIGTERM, and ends them at the
// second. It prints the text for each, unless that is empty. The third ends the process at once.
func (o *output) endOnSignals(parent context.Context, first,
	second string) (ctx context.Context, drain <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	draining := make(chan struct{})
	stopSignals := onSignals(func(count int) {
		switch count {
		case 1:
			o.say(first)
			close(draining)
		case 2:
			if second != "" {
				o.say(second)
			}
			cancel()
		default:
			os.Exit(exitInterrupted) // the user is in a hurry; the store is as after a crash
		}
	})
	return ctx, draining, func() {
		stopSignals()
		cancel()
	}
}

// onSignals calls f for each SIGINT or SIGTERM with its number until the returned function is
// called.
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
