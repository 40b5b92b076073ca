package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/runner"
)

func reportCommand(g *globals) *cobra.Command {
	var format, output, agent string
	var verbose bool
	var page htmlFlags
	var failures failuresFlag
	cmd := &cobra.Command{
		Use:   "report RUN|RESULTS.json",
		Short: "Convert results (--format html|uipath|junit|markdown|csv|inspect|atif)",
		Long: `Convert the results of a run. A results document is enough: its store need not be there.

The format html is one file that a browser opens without a server or a network: the page of the run,
with all of its rollouts and what came of them.

The format inspect is a log that Inspect's viewer and read_eval_log open (-o FILE.eval). The format
atif is a trajectory for each rollout: with -o DIR a file for each in that folder, with -o
FILE.jsonl or without -o one a line. Both have what agents said only if the store is there.

The format mocks has the calls of MCP tools with what they got: evalrun run --mocks FILE answers the
same calls in the same way, and makes no other.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if g.json && !cmd.Flags().Changed("format") {
				format = "json"
			}
			if g.json && format != "json" {
				return usageError("expected either --json or --format %s, got both", format)
			}
			if !slices.Contains(reportFormats, format) {
				return usageError("--format: expected one of %s, got %q%s", strings.Join(reportFormats, ", "), format,
					input.Suggest(format, reportFormats))
			}
			if err := page.check(format); err != nil {
				return err
			}
			if err := refuseInput("output", output, args[0]); err != nil {
				return err
			}
			if format == runner.FormatInspect && output == "" {
				return usageError("--format inspect is no text: name its file with -o FILE.eval")
			}
			if agent != "" && format != runner.FormatInspect {
				return usageError("--agent has a meaning only with --format inspect")
			}
			write := func(r *runner.Report) error {
				r.Verbose, r.Failures, r.Agent = verbose, failures.n, agent
				if format == runner.FormatATIF && output != "" && filepath.Ext(output) != ".jsonl" {
					return writeTrajectories(cmd, r, output)
				}
				present(r, nil, "", stdout(cmd))
				convert := func(w io.Writer) error { return r.Write(w, format) }
				if format == formatHTML {
					convert = func(w io.Writer) error { return page.write(cmd, g, w, r) }
				}
				if output != "" {
					return durable.WriteOutput(output, 0o644, convert)
				}
				return durable.WriteWhole(stdout(cmd), convert)
			}
			if input.IsFile(args[0]) {
				page.Missing = "It was made from a results document, which has no logs of its own: they are shown as far as the store is beside it."
			}
			return g.withReport(cmd, args[0], write)
		},
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "markdown", "`FORMAT`: "+strings.Join(reportFormats, ", "))
	f.StringVarP(&output, "output", "o", "", "write to `FILE` instead of stdout (with --format atif also a folder)")
	failures.register(cmd)
	page.register(f)
	f.StringVar(&agent, "agent", "", "with --format inspect: the rollouts of the agent `NAME`, if the run has several")
	f.BoolVar(&verbose, "verbose", false, "with --format uipath: include what the agents did")
	return cmd
}

// writeTrajectories writes a file for each rollout that has begun.
func writeTrajectories(cmd *cobra.Command, r *runner.Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for others, as a results document
		return usageError("--output: %w", err)
	}
	pending, err := r.Trajectories(func(rolloutID string, trajectory json.RawMessage) error {
		return durable.WriteOutput(filepath.Join(dir, rolloutID+".json"), 0o644, func(w io.Writer) error {
			_, err := w.Write(append(trajectory, '\n'))
			return err
		})
	})
	if pending > 0 {
		printf(cmd.ErrOrStderr(), "%s without a trajectory, not begun yet\n", counted(pending, "rollout"))
	}
	return err
}

// withReport opens the results that a name refers to: a results document, or a run in the store.
func (g *globals) withReport(cmd *cobra.Command, name string, f func(*runner.Report) error) error {
	if input.IsFile(name) {
		return internal(runner.OpenReport(name, f))
	}
	return g.withRun(cmd, name, func(s *runner.Store, run runner.Run) error {
		return s.Report(cmd.Context(), run.ID, runner.Variables{}, f)
	})
}
