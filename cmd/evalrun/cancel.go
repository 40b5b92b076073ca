package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

func cancelCommand(g *globals) *cobra.Command {
	var jobs bool
	cmd := &cobra.Command{
		Use:   "cancel RUN|ROLLOUT",
		Short: "Cancel what has not ended of a run, or one rollout",
		Long: `Cancel a run or one rollout. Rollouts that wait are cancelled at once, those that are running are ended by the process that
runs them. The jobs that they waited for are cancelled, once and as far as their source can; local jobs go on, unless --jobs is given.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(func(s *store.SQLite) error { return g.cancel(cmd, s, args[0], jobs) })
		},
	}
	cmd.Flags().BoolVar(&jobs, "jobs", false, "also end the local jobs that are waited for")
	return cmd
}

func (g *globals) cancel(cmd *cobra.Command, s *store.SQLite, name string, jobs bool) error {
	ctx := cmd.Context()
	var keep []string
	if !jobs {
		keep = []string{wait.SourceExec}
	}
	runID, err := s.RunOf(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		if runID, err = runByPrefix(ctx, s, name); err != nil {
			return usageError("there is no run or rollout %q in the store %s", name, s.Dir())
		}
		name = runID
	}
	if err != nil {
		return internal(err)
	}
	n, err := s.Cancel(ctx, name, keep...)
	if err != nil {
		return internal(err)
	}
	var w workFlags
	if name == runID {
		w.concurrency = 1 // no agent is left to be started, but those of a process that is gone are to be ended
	}
	if err := g.settle(ctx, cmd, s, runID, w); err != nil {
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
}

// settle looks once after what is due of a run, starting no agent unless w says so, and brings its events and its results document up to date.
func (g *globals) settle(ctx context.Context, cmd *cobra.Command, s *store.SQLite, runID string, w workFlags) error {
	red, err := redactorOf(ctx, s, runID)
	if err != nil {
		return err
	}
	out := &output{store: s, redact: red, stderr: cmd.ErrOrStderr(), stdout: stdout(cmd), quiet: true}
	r, err := w.newRunner(g, s, runID, environment{}, out)
	if err != nil {
		return err
	}
	return internal(errors.Join(r.Run(ctx, engine.UntilIdle), engine.Tidy(ctx, s, runID), out.saveDocument(ctx, runID, "")))
}
