package main

import (
	"math"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/tasks"
)

func taskCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "task",
		Short: "Convert the tasks of other benchmarks to task directories",
		Args:  exactly(0),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(migrateCommand(g))
	return cmd
}

func migrateCommand(g *globals) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "migrate FOLDER... -o FOLDER",
		Short: "Convert tasks of Terminal-Bench 1 to tasks with a task.toml",
		Long: `Convert tasks of Terminal-Bench 1, which have a task.yaml, a docker-compose.yaml and a run-tests.sh,
to tasks with a task.toml. A FOLDER is a task or contains tasks. Each task gets a folder of its name
in the folder -o; nothing is overwritten. If a task cannot be converted, the message names file and
key, and nothing is written for it.`,
		Example: `  evalrun task migrate -o tasks terminal-bench/original-tasks
  evalrun validate --oracle tasks`,
		Args: between(1, math.MaxInt),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return usageError("task migrate: expected the folder for the new tasks, with -o FOLDER")
			}
			made, wrong := 0, 0
			for _, arg := range args {
				dirs, err := tasks.FindOld(arg)
				if err != nil {
					return usageError("%w", err)
				}
				for _, dir := range dirs {
					absolute, err := filepath.Abs(dir)
					if err != nil {
						return err
					}
					target := filepath.Join(to, filepath.Base(absolute))
					problems, err := tasks.Migrate(dir, target)
					if len(problems) > 0 {
						printf(cmd.ErrOrStderr(), "%s\n", problems)
					}
					if err != nil {
						return usageError("%s: %w", dir, err)
					}
					if problems.Err(false) != nil {
						wrong++
						continue
					}
					made++
					if !g.quiet {
						printf(stdout(cmd), "%s: made of %s\n", redact.Line(target), redact.Line(dir))
					}
				}
			}
			if wrong > 0 {
				return usageError("not migrated: %d of %s", wrong, counted(made+wrong, "task"))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&to, "output", "o", "", "make the tasks in `FOLDER`")
	return cmd
}
