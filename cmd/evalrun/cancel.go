package main

import (
	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/runner"
)

func cancelCommand(g *globals) *cobra.Command {
	var o runner.CancelOptions
	cmd := &cobra.Command{
		Use:   "cancel RUN|ROLLOUT",
		Short: "Cancel the unfinished rollouts of a run, or one rollout",
		Long: `Cancel a run or one rollout. Suspended rollouts are cancelled at once; running ones are ended by the
process that runs them. evalrun tries once to cancel the jobs that they were waiting for, if the
source can cancel. Local jobs keep running, unless --jobs is given.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd, false, func(s *runner.Store) error {
				n, err := s.Cancel(cmd.Context(), args[0], o)
				if err != nil {
					return err
				}
				if g.json {
					return printJSON(cmd, map[string]int{"cancelled": n})
				}
				what := "rollouts"
				if n == 1 {
					what = "rollout"
				}
				printf(stdout(cmd), "%d %s cancelled\n", n, what)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&o.Jobs, "jobs", false, "also end the local jobs that the rollouts are waiting for")
	return cmd
}
