package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

func showCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN|RESULTS.json [ROLLOUT]",
		Short: "Show a run, or one of its rollouts",
		Long: `Show a run as it stands in the store, or a results document, whose store need not be there: its table, or with --json its
results document. With a rollout, named by its id, a
unique beginning of it, or the id of its evaluation, that rollout alone.`,
		Args: between(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			show := func(r *runner.Report, s *runner.Store, name string) error {
				switch {
				case len(args) == 2:
					return showRollout(cmd, r, args[1])
				case g.json:
					return r.Write(stdout(cmd), "json")
				}
				present(r, s, name, stdout(cmd))
				return r.Write(stdout(cmd), "table")
			}
			if input.IsFile(args[0]) {
				return internal(runner.OpenReport(args[0], func(r *runner.Report) error { return show(r, nil, args[0]) }))
			}
			return g.withRun(cmd, args[0], func(s *runner.Store, run runner.Run) error {
				err := s.Report(cmd.Context(), run.ID, runner.Variables{}, func(r *runner.Report) error { return show(r, s, run.ID) })
				if err != nil || g.json || len(args) == 2 {
					return err
				}
				return showUndelivered(cmd, s, run.ID)
			})
		},
	}
}

// showUndelivered shows what targets were to be told of a run and were not.
func showUndelivered(cmd *cobra.Command, s *runner.Store, runID string) error {
	all, err := s.Undelivered(cmd.Context(), runID)
	if err != nil {
		return err
	}
	for _, n := range all {
		text, next := "not tried yet", "given up"
		if n.LastError != "" {
			text = n.LastError
		}
		if !n.Next.IsZero() {
			next = "tried again at " + n.Next.Local().Format(time.DateTime)
		}
		printf(stdout(cmd), "not notified of %s: %s (attempts: %d; %s)\n", n.Event, text, n.Attempts, next)
	}
	return nil
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
