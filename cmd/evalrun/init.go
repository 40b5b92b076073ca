package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/starter"
)

func initCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a first eval set, its agent and a workflow for CI",
		Long: `Write a first eval set with its data, an agent in Python and a workflow for GitHub into a folder, by
default this one. All of it runs as it is; put your own agent and cases in their place. Nothing is
overwritten: if one of the files is there already, nothing is written and the exit code is 2.`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			files, err := starter.Write(dir)
			var wrong *fs.PathError
			switch {
			case errors.Is(err, starter.ErrThere), errors.As(err, &wrong):
				return usageError("%v", err)
			case err != nil:
				return err
			}
			if g.json {
				return printJSON(cmd, files)
			}
			if g.quiet {
				return nil
			}
			for _, name := range files {
				printf(stdout(cmd), "wrote %s\n", filepath.Join(dir, name))
			}
			where := ""
			if dir != "." {
				where = fmt.Sprintf("cd %s && ", dir)
			}
			printf(stdout(cmd), "\nRun it: %sevalrun run evals/evalset.yaml\n", where)
			return nil
		},
	}
}
