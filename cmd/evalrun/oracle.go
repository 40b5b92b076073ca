package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// oracleCheck is validate --oracle.
type oracleCheck struct {
	wanted bool
	place  placeFlags
	work   workFlags
}

func (o *oracleCheck) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.place.isolation, "isolation", "bwrap", "with --oracle: run the tasks in `KIND`, bwrap or process")
	f.BoolVar(&o.place.ignoreDockerfile, "ignore-dockerfile", false, "take tasks that name an image, or have a Dockerfile, for ones that can be run with what this machine has instead")
	f.IntVarP(&o.work.concurrency, "concurrency", "j", 4, "with --oracle: run `N` tasks at once")
	f.StringArrayVar(&o.work.env, "env", nil, "with --oracle: pass the environment variable `NAME` (repeatable)")
	f.StringArrayVar(&o.work.envFiles, "env-file", nil, "with --oracle: pass the variables of `FILE` (repeatable)")
}

// run runs the tasks in a store that is thrown away. A task that cannot be run here is told and is no error.
func (o *oracleCheck) run(cmd *cobra.Command, g *globals, dirs []string) (err error) {
	if len(dirs) == 0 {
		return usageError("--oracle: there is no task among what was given")
	}
	if err := o.work.checkConcurrency(); err != nil {
		return err
	}
	env, err := o.work.environment()
	if err != nil {
		return err
	}
	var req plans.Request
	if req.WorkDir, err = os.Getwd(); err != nil {
		return internal(err)
	}
	req.BaseDir, req.Env = req.WorkDir, env.passed
	if req.Set, err = taskSet(dirs); err != nil {
		return err
	}
	r := &input.Reader{}
	if err := addTasks(r, &req, dirs, o.place.capabilities(), env.lookup); err != nil {
		return err
	}
	if err := r.Problems.Err(false); err != nil {
		return &exitError{exitUsage, err}
	}
	if req.Environment, _, err = o.place.place(true, env.lookup); err != nil {
		return err
	}
	req.Hidden = hidden(req.Set, false)
	for _, name := range []string{agent.TypeOracle, agent.TypeNop} {
		e, _ := agent.Registered(name)
		req.Agents = append(req.Agents, e)
	}
	dir, err := os.MkdirTemp("", "evalrun-oracle-")
	if err != nil {
		return internal(err)
	}
	defer func() { err = errors.Join(err, internal(os.RemoveAll(dir))) }()
	s, err := openStore(dir, false)
	if err != nil {
		return err
	}
	outside := filepath.Join(workspace.StateDir(), s.ID()) // of what runs without isolation
	defer func() { err = errors.Join(err, internal(os.RemoveAll(outside))) }()
	defer func() { err = errors.Join(err, internal(s.Close())) }()
	plan, err := plans.New(req, s.Dir())
	if err != nil {
		return internal(err)
	}
	if _, err := s.CreateRun(cmd.Context(), plan); err != nil {
		return internal(err)
	}
	out, err := o.work.newOutput(cmd, &globals{quiet: true, logLevel: g.logLevel}, s, nil)
	if err != nil {
		return err
	}
	interrupted, err := o.work.runUntil(cmd, g, s, plan.RunID, env, engine.UntilFinal, false, out)
	if err != nil {
		return internal(err)
	}
	if interrupted {
		return &exitError{exitInterrupted, nil}
	}
	return o.judge(cmd, g, s, plan.RunID)
}

// judge says of each task whether its own solution solves it, and nothing does not.
func (o *oracleCheck) judge(cmd *cobra.Command, g *globals, s store.Store, runID string) error {
	wrong, total := 0, 0
	err := s.Snapshot(cmd.Context(), runID, func(v store.View) error {
		return v.Rollouts(func(r store.RolloutView) error {
			want := map[string]float64{agent.TypeOracle: 1}[r.Agent]
			total++
			switch {
			case r.Fault != nil && r.Fault.Category == fault.NotRunnable:
				printf(cmd.ErrOrStderr(), "%s: cannot be run here: %s\n", r.EvaluationName, r.Fault.Message)
				total--
			case r.Fault != nil:
				printf(cmd.ErrOrStderr(), "%s: with %s: %s: %s\n", r.EvaluationName, r.Agent, r.Fault.Category, r.Fault.Message)
				wrong++
			case r.Score == nil || *r.Score != want:
				printf(cmd.ErrOrStderr(), "%s: with %s the reward is %s, expected %v\n", r.EvaluationName, r.Agent, scoreText(r.Score), want)
				wrong++
			case !g.quiet && !g.json:
				printf(stdout(cmd), "%s: with %s the reward is %v, ok\n", r.EvaluationName, r.Agent, want)
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return internal(err)
	case wrong > 0:
		return &exitError{exitThreshold, fmt.Errorf("%d of %d rollouts were not as they should be", wrong, total)}
	case total == 0:
		return &exitError{exitFaulted, errors.New("no task could be run")}
	}
	return nil
}

func scoreText(score *float64) string {
	if score == nil {
		return "none"
	}
	return fmt.Sprint(*score)
}
