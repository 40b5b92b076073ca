package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
)

// scoreFlags are the flags of score.
type scoreFlags struct {
	workFlags
	score runner.ScoreOptions
}

func scoreCommand(g *globals) *cobra.Command {
	var f scoreFlags
	cmd := &cobra.Command{
		Use:   "score RUN|RESULTS.json",
		Short: "Score the stored outputs of a run again (--evaluators: with other evaluators)",
		Long: `Score the completed rollouts of a run again: evaluators see the stored outputs, traces and files,
and their results replace the earlier ones, one rollout at a time. No agent and no job is started,
and no person is asked again. The run is judged by the new results, with the exit codes of run. If
the command is interrupted, the same command continues it.

--evaluators names an evaluator file, whose evaluator replaces the one with the same id or is added,
or an eval set, whose evaluators and criteria replace all; its evaluations are found by their ids.
Without it the evaluators are those of the run's plan.`,
		Example: `  evalrun score latest
  evalrun score latest --evaluators evalset.json
  evalrun score latest --evaluators evaluators/tone.json
  evalrun score latest --failed
  evalrun score latest --verifier`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, g, args[0]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.score.Evaluators, "evaluators", "",
		"score with the evaluator of a `FILE|EVALSET`, or with the evaluators and criteria of an eval set")
	fl.BoolVar(&f.score.AllowCode, "allow-code", false, allowCodeUsage)
	fl.BoolVar(&f.score.Failed, "failed", false, "ask only evaluators that have failed or were not run")
	fl.BoolVar(&f.score.Verifier, "verifier", false,
		"run only the verifiers of tasks again, with the tests as they are now, on what the agents have left (run --keep-workspaces)")
	fl.BoolVar(&f.score.Completed, "completed", false, "of a run that is not final, score the rollouts that are completed")
	fl.BoolVar(&f.score.WithoutWorkspaces, "without-workspaces", false,
		"ask command evaluators although the workspaces of the agents were not kept")
	titled(fl, titleWhat)
	fl.StringVar(&f.score.JudgeModel, "judge-model", "",
		"ask the model `NAME` if a judge has no model of its own and the agent's model is not known (default: $EVALRUN_JUDGE_MODEL)")
	fl.BoolVar(&f.score.NoJudgeCache, "no-judge-cache", false, "ask judges again what they were asked before")
	titled(fl, titleJudges)
	fl.IntVarP(&f.concurrency, "concurrency", "j", runner.DefaultConcurrency, "score `N` rollouts at once")
	f.registerEnv(cmd, "")
	titled(fl, titleAgents)
	f.registerVerdict(cmd)
	return cmd
}

func (f *scoreFlags) run(cmd *cobra.Command, g *globals, name string) error {
	o, err := f.options()
	if err := errors.Join(err, f.refuseInputs(f.score.Evaluators)); err != nil {
		return err
	}
	if cmd.Flags().Changed("evaluators") && f.score.Evaluators == "" {
		return usageError("--evaluators: expected an evaluator file or an eval set")
	}
	if o.Variables, err = f.variables(); err != nil {
		return err
	}
	return g.withRun(cmd, name, func(s *runner.Store, run runner.Run) error {
		if f.output == "" && run.ID != name && input.IsFile(name) {
			f.output = name
		}
		out, err := f.newOutput(cmd, g, s, o.Variables)
		if err != nil {
			return err
		}
		ctx, drain, stop := out.endOnSignals(cmd.Context(),
			"interrupted: letting the running evaluators finish; once more ends them, the same command goes on either way",
			"ending the running evaluators")
		defer stop()
		f.score.Concurrency, f.score.Variables, f.score.Accept, f.score.FailUnder, f.score.Document =
			o.Concurrency, o.Variables, o.Accept, o.FailUnder, f.output
		f.score.Drain, f.score.Notice, f.score.Log = drain, out.say, out
		scored, err := s.Score(ctx, run.ID, f.score)
		if errors.Is(err, runner.ErrMoved) || errors.As(err, new(*runner.InputError)) {
			return internal(errors.Join(err, out.close())) // there is nothing to report
		}
		verdict := verdictError(scored.Judgement, "")
		if scored.Verdict == runner.Interrupted {
			verdict = &exitError{exitInterrupted, errors.New("interrupted; the same command goes on with it")}
		}
		if err := out.finish(run.ID, &f.workFlags, o.FailUnder, scored.Judgement, verdict, err); err != nil {
			return internal(err)
		}
		if scored.Number > 0 && !g.quiet {
			printf(cmd.ErrOrStderr(), "rescoring %d: %d of %s scored again\n", scored.Number, scored.Scored,
				counted(scored.Scored+scored.NotScored+scored.Due, "rollout"))
		}
		if verdict != nil && out.showsTable() {
			return &exitError{codeOf(verdict), nil} // the table has shown the reason
		}
		return verdict
	})
}
