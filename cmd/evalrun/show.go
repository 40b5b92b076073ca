package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

func showCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN|RESULTS.json [ROLLOUT]",
		Short: "Show a run, or one of its rollouts",
		Long: `Show a run as it stands in the store: its table, or with --json its results document. With a rollout, named by its id, a
unique beginning of it, or the id of its evaluation, that rollout alone.`,
		Args: between(1, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s, runID, err := g.findRun(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, internal(s.Close())) }()
			red, err := redactorOf(cmd.Context(), s, runID)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return showRollout(cmd, s, runID, red, args[1])
			}
			return internal(report.FromStore(cmd.Context(), s, runID, red, func(r *report.Report) error {
				if g.json {
					return r.WriteResults(stdout(cmd))
				}
				return r.WriteTable(stdout(cmd), func(*schemas.Rollout) string { return resumeLine(s, runID) })
			}))
		},
	}
}

// redactorOf takes out of what is shown of a run what this process can know to be secret.
func redactorOf(ctx context.Context, s store.Store, runID string) (*redact.Redactor, error) {
	plan, err := planOf(ctx, s, runID)
	if err != nil {
		return nil, err
	}
	return plan.Redactor(redact.FromEnviron(os.Environ(), plan.Env), os.LookupEnv), nil
}

// showRollout shows one rollout as it stands in the results document.
func showRollout(cmd *cobra.Command, s *store.SQLite, runID string, red *redact.Redactor, name string) error {
	found := false
	err := report.FromStore(cmd.Context(), s, runID, red, func(r *report.Report) error {
		return r.Rollouts(func(o *schemas.Rollout) error {
			if !strings.HasPrefix(o.RolloutID, name) && o.EvaluationID != name {
				return nil
			}
			found = true
			return printJSON(cmd, o)
		})
	})
	if err == nil && !found {
		return usageError("run %s has no rollout %q", runID, name)
	}
	return internal(err)
}
