package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

func executorCommand(g *globals) *cobra.Command {
	var w workFlags
	var o runner.ExecuteOptions
	var once onceFlags
	var drain time.Duration
	var tags string
	cmd := &cobra.Command{
		Use:     "executor",
		Aliases: []string{"worker"},
		Short:   "Watch all runs of the store and resume them; --once for cron and serverless",
		Long: `Watch the suspended rollouts of all runs, resume each one as soon as its results are there, and keep
the results documents in the store up to date. It uses next to no CPU while nothing is due.

SIGTERM and Ctrl-C let the running agents finish, and start no others. With --drain they may go on
for at most this time: then they are ended, and whatever process claims their rollouts next repeats
their segments, at once and without counting that as a failure. Give it less than the time after
which the process is killed, such as terminationGracePeriodSeconds of Kubernetes.

With --once it asks every source once, resumes what can be resumed, and ends. It says the verdict on
each run that has ended meanwhile; with --exit-code that is its exit code, too. --json lists these
runs. Runs that still wait count for nothing.

With --once --max-time it asks only the sources that are due, works for at most this time, and says
when the next call is worth it: for places where no process may live between two calls. Agents that
run at the end of the time are ended, and the next call repeats their segments.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			judging, err := w.options()
			if drain < 0 {
				err = errors.Join(err, usageError("--drain %s: expected a time of at least 0", drain))
			}
			var tagsErr error
			if cmd.Flags().Changed("tag") {
				if g.tags, tagsErr = workerTags("--tag", tags); g.tags == nil {
					g.tags = []string{}
				}
			}
			if err := errors.Join(tagsErr, once.check(cmd, o.Once), err, w.refuseInputs()); err != nil {
				return err
			}
			o.Options = judging.Options
			if o.Variables, err = w.variables(); err != nil {
				return err
			}
			o.Telemetry, judging.Variables = judging.Telemetry, o.Variables
			return g.withStore(cmd, false, func(s *runner.Store) error {
				var of worked
				left, err := w.execute(cmd, g, s, o, once.maxTime, drain, of.event)
				if err != nil || !o.Once {
					return err
				}
				return once.ended(cmd, g, s, &w, judging, &of, left)
			})
		},
	}
	w.watchFlags.register(cmd)
	w.registerReports(cmd)
	w.registerAccept(cmd)
	once.register(cmd)
	cmd.Flags().BoolVar(&o.Once, "once", false, "ask every source once, resume what can be resumed, and end")
	cmd.Flags().StringVar(&tags, "tag", "",
		"also run what asks for the tags `TAG,...` of workers, which this machine has (default: $EVALRUN_TAGS)")
	cmd.Flags().DurationVar(&drain, "drain", 0,
		"after SIGTERM or Ctrl-C, let the running agents go on for at most `DURATION`, such as 5m; 0: until they finish")
	return cmd
}

// execute works on the runs of the store, and with maxTime as a tick. Agents that still run drainTime
// after the first signal are ended, if it is not zero.
func (w *workFlags) execute(cmd *cobra.Command, g *globals, s *runner.Store, o runner.ExecuteOptions, maxTime, drainTime time.Duration,
	seen func(schemas.Event)) (left runner.Ticked, err error) {
	out, err := w.newOutput(cmd, g, s, o.Variables)
	if err != nil {
		return left, err
	}
	if err := out.showProgress(cmd.Context(), runner.Run{}); err != nil {
		return left, err
	}
	if !g.quiet {
		standing, err := out.standing("")
		if err != nil {
			return left, internal(err)
		}
		out.say(standing.Watching(time.Now()))
	}
	ctx, drain, stop := out.endOnSignals(cmd.Context(), "stopping: letting the running agents finish; once more ends them",
		"")
	defer stop()
	if drainTime > 0 {
		drained, end := context.WithCancel(ctx)
		defer end()
		ctx = drained
		go func() {
			select {
			case <-drain:
			case <-drained.Done():
				return
			}
			select {
			case <-time.After(drainTime):
				out.say(fmt.Sprintf("ending the agents that still run after %s; others repeat their segments", drainTime))
				end()
			case <-drained.Done():
			}
		}()
	}
	o.Drain, o.Notice, o.Log = drain, out.say, out
	o.Events = func(e schemas.Event) {
		seen(e)
		out.event(e)
	}
	keeping, stopKeeping := context.WithCancel(ctx)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		jobs.Keep(keeping, service.New(s, service.Config{}, service.Options{}), 0, slog.New(slog.NewTextHandler(out, nil)))
	}()
	stopTicking := out.ticking()
	if maxTime > 0 {
		left, err = s.Tick(ctx, o.Options, maxTime)
	} else {
		err = s.Execute(ctx, o)
	}
	stopTicking()
	stopKeeping()
	<-kept
	if errors.Is(err, runner.ErrMoved) {
		return left, internal(err)
	}
	return left, internal(errors.Join(err, out.close()))
}
