package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/starter"
)

func initCommand(g *globals) *cobra.Command {
	var template string
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a first eval set, its agent and a workflow for CI",
		Long: "Write a first eval set, an agent and a workflow for GitHub into a folder, by default this one.\n\n" +
			"What is written suits what is there. --template chooses it:\n" + templateList() + `
Put your own cases in the place of those that are written. The workflow installs evalrun with
evals/install.sh, from a checkout or a release: its variable EVALRUN_FROM says where that is.

Nothing is overwritten: if one of the files is there already, nothing is written and the exit code
is 2.`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			project, err := starter.Choose(dir, template)
			if err != nil {
				return usageError("%v", err)
			}
			err = project.Write(dir)
			var wrong *fs.PathError
			switch {
			case errors.Is(err, starter.ErrThere), errors.As(err, &wrong):
				return usageError("%v", err)
			case err != nil:
				return err
			}
			if g.json {
				return printJSON(cmd, project.Files)
			}
			if g.quiet {
				return nil
			}
			printProject(cmd, dir, project)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&template, "template", "",
		"what to write: `NAME` is one of the list above; by default what suits the folder")
	return cmd
}

// printProject lists the files that were written, and the next steps.
func printProject(cmd *cobra.Command, dir string, p *starter.Project) {
	if p.Why != "" {
		printf(stdout(cmd), "%s: the template is %s\n", p.Why, p.Template)
	}
	if len(p.Also) > 0 {
		printf(stdout(cmd), "also there: %s\n", strings.Join(p.Also, ", "))
	}
	if p.Entrypoint != "" {
		printf(stdout(cmd), "the agent is %s, run by %s\n", p.Entrypoint, p.Program)
	}
	for _, name := range p.Files {
		printf(stdout(cmd), "wrote %s\n", filepath.Join(dir, name))
	}
	where, agent := "", ""
	if dir != "." {
		where = fmt.Sprintf("cd %s && ", dir)
	}
	if p.Agent != "" {
		agent = " --agent " + p.Agent
	}
	printf(stdout(cmd), "\nRun it: %sevalrun run %s%s\n", where, p.EvalSet, agent)
	if len(p.OtherSets) > 0 {
		printf(stdout(cmd), "The workflow runs this set alone, of %d.\n", 1+len(p.OtherSets))
	}
	printf(stdout(cmd), "In CI: evals/install.sh says where the workflow takes evalrun from.\n")
}

func templateList() string {
	var b strings.Builder
	for _, t := range starter.Templates {
		fmt.Fprintf(&b, "  %-13s %s\n", t.Name, t.For)
	}
	return b.String()
}
