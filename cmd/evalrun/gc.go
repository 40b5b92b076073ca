package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/runner"
)

func gcCommand(g *globals) *cobra.Command {
	older := age(24 * time.Hour)
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove files of rollouts that no open rollout needs from the store",
		Long: `Remove stored files of rollouts (EVALRUN_PORTABLE) that no open rollout needs and nobody has asked
for since --older. An executor does that by itself every hour. What a suspension that is in progress
has stored is younger than a day: give a lesser age only if no process works on the store.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd, false, func(s *runner.Store) error {
				n, err := s.PruneFiles(cmd.Context(), time.Duration(older))
				switch {
				case err != nil:
				case g.json:
					err = printJSON(cmd, map[string]int{"removedBlocks": n})
				case !g.quiet:
					printf(stdout(cmd), "removed %s of files\n", counted(n, "block"))
				}
				return err
			})
		},
	}
	cmd.Flags().Var(&older, "older", "remove what nobody has asked for since `AGE` (30d, 2w, 12h)")
	return cmd
}
