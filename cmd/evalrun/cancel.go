package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/store"
)

func cancelCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel RUN|ROLLOUT",
		Short: "Cancel what has not ended of a run, or one rollout",
		Long: `Cancel a run or one rollout. Rollouts that wait are cancelled at once, those that are running are ended by the process that
runs them. The jobs that they waited for are cancelled, once and as far as their source can, by the next command that works on the
store.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(func(s *store.SQLite) error {
				n, err := cancelNamed(cmd.Context(), s, args[0])
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
}

func cancelNamed(ctx context.Context, s *store.SQLite, name string) (int, error) {
	n, err := s.Cancel(ctx, name)
	if !errors.Is(err, store.ErrNotFound) {
		return n, internal(err)
	}
	id, err := runByPrefix(ctx, s, name)
	if err != nil {
		return 0, usageError("there is no run or rollout %q in the store %s", name, s.Dir())
	}
	n, err = s.Cancel(ctx, id)
	return n, internal(err)
}
