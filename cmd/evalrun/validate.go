package main

import (
	"math"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

func validateCommand(g *globals) *cobra.Command {
	var o runner.ValidateOptions
	var oracle oracleFlags
	var dataset runner.FetchOptions
	cmd := &cobra.Command{
		Use:   "validate PATH...",
		Short: "Check eval sets, evaluators, tasks, registries and results documents",
		Long: `Check files and task directories without running anything: eval sets, evaluator files, results
documents, and task.toml with what belongs to it. Every problem names file, line, key and what was
expected. With --strict, warnings (such as unknown keys) count as problems. Evaluators in Python are
loaded, and asked whether they know their criteria.

With --oracle the tasks are run after all: the oracle, which is a task's own solution, must get the
reward 1 and an agent that does nothing 0.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && dataset.Dataset == "" {
				return between(1, math.MaxInt)(cmd, args)
			}
			_, args, err := fetch(cmd, g, args, dataset)
			if err != nil {
				return err
			}
			if o.Variables, err = oracle.watch.variables(); err != nil {
				return err
			}
			wrong := 0
			all := []runner.Checked{}
			var dirs []string
			runner.Validate(args, o, func(c runner.Checked) {
				if c.Err != nil {
					wrong++
				} else if c.Task != nil {
					dirs = append(dirs, c.Path)
				}
				all = append(all, c)
				if !g.json {
					printChecked(cmd, c, g.quiet)
				}
			})
			if g.json {
				if err := printJSON(cmd, all); err != nil {
					return err
				}
			}
			if wrong > 0 {
				return usageError("not valid: %d of %s", wrong, counted(len(all), "file"))
			}
			if oracle.wanted {
				return oracle.run(cmd, g, dirs)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Strict, "strict", false, "treat warnings as errors")
	f.BoolVar(&o.AllowCode, "allow-code", false, allowCodeUsage)
	registerDataset(f, &dataset)
	f.BoolVar(&oracle.wanted, "oracle", false,
		"run the tasks with their own solutions, and with an agent that does nothing")
	oracle.register(cmd)
	return cmd
}

// printChecked prints errors and warnings on stderr, and success on stdout.
func printChecked(cmd *cobra.Command, c runner.Checked, quiet bool) {
	if c.Warnings != "" {
		printf(cmd.ErrOrStderr(), "%s\n", c.Warnings)
	}
	if c.Err != nil {
		text := c.Err.Error()
		if prefix(c.Err) != "" { // problems are harmless already, and have a line each
			text = redact.Line(text)
		}
		printf(cmd.ErrOrStderr(), "%s\n", text)
		return
	}
	if quiet {
		return
	}
	printf(stdout(cmd), "%s: %s, ok\n", redact.Line(c.Path), c.Kind)
	for _, gap := range c.Gaps {
		printf(stdout(cmd), "  cannot be run here: %s\n", redact.Line(gap.String()))
	}
	for _, m := range c.Missing {
		printf(stdout(cmd), "  needs ${%s}, in %s: pass it with --env %s\n", m.Name, redact.Line(m.Key), m.Name)
	}
	if c.Task != nil && len(c.Gaps) == 0 && len(c.Missing) == 0 {
		printf(stdout(cmd), "  runs here\n")
	}
	for _, note := range c.Notes {
		printf(stdout(cmd), "  note: %s\n", redact.Line(note.String()))
	}
}
