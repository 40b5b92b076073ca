package main

import (
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

func logsCommand(g *globals) *cobra.Command {
	var o runner.LogOptions
	cmd := &cobra.Command{
		Use:   "logs RUN|RESULTS.json EVALUATION|ROLLOUT",
		Short: "Print the logs of an evaluation's agent (-f: follow them until it has ended)",
		Long: `Print the logs of the rollouts of an evaluation, or of one rollout: what its agent, its setup and
its verifier have printed, segment by segment. With --all it prints every file of its segments.`,
		Args: exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if g.json {
				return usageError("logs are text; evalrun show RUN EVALUATION --json names their files")
			}
			return g.withRun(cmd, args[0], func(s *runner.Store, run runner.Run) error {
				var ids []string
				if err := s.Report(cmd.Context(), run.ID, runner.Variables{}, func(r *runner.Report) error {
					isNamed, err := named(r, args[1])
					if err != nil {
						return err
					}
					if err := r.Rollouts(func(one *schemas.Rollout) error {
						if isNamed(one) {
							ids = append(ids, one.RolloutID)
						}
						return nil
					}); err != nil {
						return err
					}
					if len(ids) == 0 {
						return noRollout(r, args[1])
					}
					return nil
				}); err != nil {
					return err
				}
				ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
				defer stop()
				o.Notice = func(text string) { printf(cmd.ErrOrStderr(), "evalrun: %s\n", redact.Line(text)) }
				return s.Logs(ctx, stdout(cmd), run.ID, ids, o)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "go on with what is added until the rollouts have ended")
	f.BoolVar(&o.All, "all", false, "print every file, not only what was printed")
	return cmd
}
