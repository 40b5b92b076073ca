package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/runner"
)

func executorCommand(g *globals) *cobra.Command {
	var w workFlags
	var o runner.ExecuteOptions
	cmd := &cobra.Command{
		Use:     "executor",
		Aliases: []string{"worker"},
		Short:   "Watch all runs of the store and resume them; --once for cron and serverless",
		Long: `Watch the suspended rollouts of all runs, resume each one as soon as its results are there, and keep
the results documents in the store up to date. It uses next to no CPU while nothing is due.

With --once it asks every source once, resumes what can be resumed, and ends.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := errors.Join(w.checkConcurrency(), w.refuseInputs())
			if err != nil {
				return err
			}
			if o.Variables, err = w.variables(); err != nil {
				return err
			}
			if o.Telemetry, err = w.telemetry(); err != nil {
				return err
			}
			o.Concurrency = w.concurrency
			return g.withStore(cmd, false, func(s *runner.Store) error { return w.execute(cmd, g, s, o) })
		},
	}
	w.watchFlags.register(cmd)
	cmd.Flags().BoolVar(&o.Once, "once", false, "ask every source once, resume what can be resumed, and end")
	return cmd
}

func (w *workFlags) execute(cmd *cobra.Command, g *globals, s *runner.Store, o runner.ExecuteOptions) error {
	out, err := w.newOutput(cmd, g, s, o.Variables)
	if err != nil {
		return err
	}
	if err := out.showProgress(cmd.Context(), runner.Run{}); err != nil {
		return err
	}
	if !g.quiet {
		standing, err := out.standing("")
		if err != nil {
			return internal(err)
		}
		out.say(standing.Watching(time.Now()))
	}
	ctx, drain, stop := out.endOnSignals(cmd.Context(), "stopping: letting the running agents finish; once more ends them", "")
	defer stop()
	o.Drain, o.Events, o.Notice, o.Log = drain, out.event, out.say, out
	keeping, stopKeeping := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		jobs.Keep(keeping, s, 0, slog.New(slog.NewTextHandler(out, nil)))
	}()
	stopTicking := out.ticking()
	err = s.Execute(ctx, o)
	stopTicking()
	stopKeeping()
	<-kept
	if errors.Is(err, runner.ErrMoved) {
		return internal(err)
	}
	return internal(errors.Join(err, out.close()))
}
