package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

// oracleFlags are the flags of validate --oracle.
type oracleFlags struct {
	wanted  bool
	sandbox runner.SandboxOptions
	watch   watchFlags
}

func (o *oracleFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.sandbox.Isolation, "isolation", runner.IsolationAuto,
		"with --oracle: run the tasks in `KIND`: "+strings.Join(runner.Isolations, ", "))
	f.IntVarP(&o.watch.concurrency, "concurrency", "j", runner.DefaultConcurrency, "with --oracle: run `N` tasks at once")
	o.watch.registerEnv(cmd, "with --oracle: ")
}

// run runs the tasks. For each it reports whether its own solution solves it, and whether doing
// nothing fails. A task that cannot be run here is reported and is not an error.
func (o *oracleFlags) run(cmd *cobra.Command, g *globals, dirs []string) error {
	if len(dirs) == 0 {
		return usageError("--oracle: there is no task among what was given")
	}
	err := o.watch.checkConcurrency()
	if err != nil {
		return err
	}
	opts := runner.Options{Concurrency: o.watch.concurrency}
	if opts.Variables, err = o.watch.variables(); err != nil {
		return err
	}
	open, err := g.openOptions(cmd)
	if err != nil {
		return err
	}
	open.MustExist = false
	out := &output{stderr: cmd.ErrOrStderr(), quiet: true}
	ctx, drain, stop := out.endOnSignals(cmd.Context(),
		"interrupted: letting the running agents finish; once more ends them, the run can be resumed either way",
		"ending the running agents")
	defer stop()
	opts.Drain, opts.Log, opts.Notice = drain, out, out.say
	checks, err := runner.CheckTasks(ctx, dirs, o.sandbox, open, opts)
	if errors.Is(err, runner.ErrInterrupted) {
		return &exitError{exitInterrupted, nil}
	}
	if err != nil {
		return internal(err)
	}
	return judge(cmd, g, checks)
}

func judge(cmd *cobra.Command, g *globals, checks []runner.OracleCheck) error {
	wrong, total := 0, 0
	for _, c := range checks {
		c.Task, c.NotRunnable, c.Fault = redact.Line(c.Task), redact.Line(c.NotRunnable), redact.Line(c.Fault)
		if c.NotRunnable != "" {
			printf(cmd.ErrOrStderr(), "%s: cannot be run here: %s\n", c.Task, c.NotRunnable)
			continue
		}
		total++
		if c.Suspicious != "" {
			printf(cmd.ErrOrStderr(), "%s: with %s: suspicious 0, the tests may have lacked what they need: %s\n", c.Task,
				c.Agent, redact.Line(c.Suspicious))
		}
		switch {
		case c.OK():
			if !g.quiet && !g.json {
				printf(stdout(cmd), "%s: with %s the reward is %v, ok\n", c.Task, c.Agent, c.Want)
			}
			continue
		case c.Fault != "":
			printf(cmd.ErrOrStderr(), "%s: with %s: %s\n", c.Task, c.Agent, c.Fault)
		default:
			printf(cmd.ErrOrStderr(), "%s: with %s the reward is %s, expected %v\n", c.Task, c.Agent, c.RewardText(), c.Want)
		}
		wrong++
	}
	switch {
	case wrong > 0:
		return &exitError{exitThreshold, fmt.Errorf("%d of %s did not end as expected", wrong, counted(total, "rollout"))}
	case total == 0:
		return &exitError{exitFaulted, errors.New("no task could be run")}
	}
	return nil
}
