package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

func packCommand(g *globals) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "pack RUN... -o FILE",
		Short: "Pack runs into one file, to go on with them elsewhere",
		Long: `Pack runs into one file with everything that belongs to them, also while they are suspended:
what the store knows of them, results, logs, workspaces and homes. evalrun unpack puts them into
another store. The runs stay here as they are; go on with them in one place only, or what one of
the two has started may be started by the other, too. A run that another process works on is
refused. The file is for its owner only: what agents were given and have left is in it as it is.`,
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return usageError("pack: say where to, with -o FILE")
			}
			return g.withStore(cmd, false, func(s *runner.Store) error {
				var chosen []runner.Run
				for _, name := range args {
					run, err := s.Find(cmd.Context(), name)
					if err != nil {
						return err
					}
					if !slices.ContainsFunc(chosen, func(r runner.Run) bool { return r.ID == run.ID }) {
						chosen = append(chosen, run)
					}
				}
				notice := func(text string) { printf(cmd.ErrOrStderr(), "evalrun: %s\n", redact.Line(text)) }
				if err := s.Pack(cmd.Context(), chosen, file, notice); err != nil {
					return err
				}
				return g.sayRuns(cmd, s, chosen, "packed")
			})
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "the `FILE` to write, such as run.tar.zst; it must not exist")
	return cmd
}

func unpackCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "unpack FILE",
		Short: "Put packed runs into a store",
		Long: `Put the runs of a file that evalrun pack has written into the store, which is made if it is not
there. Nothing is replaced: if one of the runs is in the store already, nothing is unpacked. A
file that was cut or changed is refused. A new store gets the id of the one that the runs were
in. Unpack only what you trust: resuming a run starts the commands of its agents.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := g.openOptions(cmd)
			if err != nil {
				return err
			}
			out, err := runner.Unpack(cmd.Context(), cmp.Or(g.storeDir(), runner.DefaultDir), args[0], o)
			if err != nil {
				return internal(err)
			}
			g.store = out.Dir
			return g.withStore(cmd, false, func(s *runner.Store) error {
				var runs []runner.Run
				for _, id := range out.Runs {
					run, err := s.Find(cmd.Context(), id)
					if err != nil {
						return err
					}
					runs = append(runs, run)
				}
				return g.sayRuns(cmd, s, runs, "unpacked")
			})
		},
	}
}

// sayRuns prints what was done with runs, and how to resume those that are not final.
func (g *globals) sayRuns(cmd *cobra.Command, s *runner.Store, runs []runner.Run, what string) error {
	if g.json {
		out := []runJSON{}
		for _, run := range runs {
			out = append(out, newRunJSON(run))
		}
		return printJSON(cmd, out)
	}
	for _, run := range runs {
		if g.quiet {
			continue
		}
		printf(stdout(cmd), "%s %s  %s  %s\n", what, run.ID, run.Status, redact.Line(run.EvaluationSetName))
		if what == "unpacked" && !run.Final {
			printf(stdout(cmd), "%s\n", fmt.Sprint("  ", resumeLine(s, run.ID)))
		}
	}
	return nil
}
