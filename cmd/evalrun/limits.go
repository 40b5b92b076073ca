package main

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

func limitsCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "limits [SCOPE=N|SCOPE=none...]",
		Short: "Show or set how many agents and jobs run at once, over all processes of the store",
		Long: `Show the limits of the store, what is under them and what they hold back; with arguments, set
them first. SCOPE is all for the agents that run, agent:NAME for those of one name, source:NAME for
the jobs of a source (http, uipath, exec) that were started and have not ended.

A limit holds for all processes of the store, and each has besides its own --concurrency. What runs
goes on when a limit is lowered. With 0 nothing begins.`,
		Example: `  evalrun limits all=40 agent:claude=8 source:http=100
  evalrun limits agent:claude=none`,
		Args: between(0, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			var set []runner.Limit
			for _, arg := range args {
				l, err := runner.ParseLimit(arg)
				if err != nil {
					return usageError("%w", err)
				}
				set = append(set, l)
			}
			return g.withStore(cmd, len(set) > 0, func(s *runner.Store) error {
				if err := s.SetLimits(cmd.Context(), set...); err != nil {
					return err
				}
				limits, err := s.Limits(cmd.Context())
				switch {
				case err != nil:
				case g.json:
					err = printJSON(cmd, limits)
				case g.quiet:
				case len(limits) == 0:
					printf(stdout(cmd), "no limits\n")
				default:
					printf(stdout(cmd), "%-32s %8s %8s %8s\n", "limit", "most", "used", "waiting")
					for _, l := range limits {
						printf(stdout(cmd), "%-32s %8d %8d %8d\n", redact.Line(l.Scope), l.Most, l.Used, l.Waiting)
					}
				}
				return err
			})
		},
	}
}
