package main

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
)

func reportCommand(g *globals) *cobra.Command {
	var format, output string
	var verbose bool
	var failures failuresFlag
	cmd := &cobra.Command{
		Use:   "report RUN|RESULTS.json",
		Short: "Convert results (--format uipath|junit|markdown|csv)",
		Long:  `Convert the results of a run. A results document is enough: its store need not be there.`,
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(runner.Formats, format) {
				return usageError("--format: expected one of %s, got %q%s", strings.Join(runner.Formats, ", "), format, input.Suggest(format, runner.Formats))
			}
			if err := refuseInput("output", output, args[0]); err != nil {
				return err
			}
			write := func(r *runner.Report) error {
				r.Verbose, r.Failures = verbose, failures.n
				present(r, nil, "", stdout(cmd))
				convert := func(w io.Writer) error { return r.Write(w, format) }
				if output != "" {
					return durable.WriteOutput(output, 0o644, convert)
				}
				return convert(stdout(cmd))
			}
			return g.withReport(cmd, args[0], write)
		},
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "markdown", "`FORMAT`: "+strings.Join(runner.Formats, ", "))
	f.StringVarP(&output, "output", "o", "", "write to `FILE` instead of stdout")
	failures.register(cmd)
	f.BoolVar(&verbose, "verbose", false, "with --format uipath: include what the agents did")
	return cmd
}

// withReport opens the results that a name stands for: a results document as it is, or a run in the
// store.
func (g *globals) withReport(cmd *cobra.Command, name string, f func(*runner.Report) error) error {
	if input.IsFile(name) {
		return internal(runner.OpenReport(name, f))
	}
	return g.withRun(cmd, name, func(s *runner.Store, run runner.Run) error {
		return s.Report(cmd.Context(), run.ID, runner.Variables{}, f)
	})
}
