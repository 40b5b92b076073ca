package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

func showCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN|RESULTS.json [ROLLOUT]",
		Short: "Show a run, or one of its rollouts",
		Long: `Show a run as it stands in the store: its table, or with --json its results document. With a rollout, named by its id, a
unique beginning of it, or the id of its evaluation, that rollout alone.`,
		Args: between(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withRun(cmd, args[0], func(s *runner.Store, run runner.Run) error {
				return s.Report(cmd.Context(), run.ID, runner.Variables{}, func(r *runner.Report) error {
					switch {
					case len(args) == 2:
						return showRollout(cmd, r, args[1])
					case g.json:
						return r.Write(stdout(cmd), "json")
					}
					r.ResumeCommand = resumeLine(s, run.ID)
					return r.Write(stdout(cmd), "table")
				})
			})
		},
	}
}

// showRollout shows one rollout as it stands in the results document.
func showRollout(cmd *cobra.Command, r *runner.Report, name string) error {
	found := false
	err := r.Rollouts(func(o *schemas.Rollout) error {
		if !strings.HasPrefix(o.RolloutID, name) && o.EvaluationID != name {
			return nil
		}
		found = true
		return printJSON(cmd, o)
	})
	if err == nil && !found {
		return usageError("run %s has no rollout %q", r.Head().RunID, name)
	}
	return err
}
