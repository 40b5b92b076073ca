package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/report"
)

// formats are the formats of report.
var formats = []string{"uipath", "junit", "markdown", "csv", "table", "json"}

func reportCommand(g *globals) *cobra.Command {
	var format, output string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "report RUN|RESULTS.json",
		Short: "Convert results (--format uipath|junit|markdown|csv)",
		Long:  `Convert the results of a run. A results document is enough: its store need not be there.`,
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(formats, format) {
				return usageError("--format: expected one of %s, got %q%s", strings.Join(formats, ", "), format, input.Suggest(format, formats))
			}
			if err := refuseInput("output", output, args[0]); err != nil {
				return err
			}
			write := func(r *report.Report) error {
				convert := func(w io.Writer) error { return writeFormat(r, w, format, verbose) }
				if output != "" {
					return durable.WriteOutput(output, 0o644, convert)
				}
				return convert(stdout(cmd))
			}
			return g.withReport(cmd.Context(), args[0], write)
		},
	}
	f := cmd.Flags()
	f.StringVar(&format, "format", "markdown", "`FORMAT`: "+strings.Join(formats, ", "))
	f.StringVarP(&output, "output", "o", "", "write to `FILE` instead of stdout")
	f.BoolVar(&verbose, "verbose", false, "with --format uipath: include what the agents did")
	return cmd
}

func writeFormat(r *report.Report, w io.Writer, format string, verbose bool) error {
	switch format {
	case "uipath":
		return r.WriteUiPath(w, verbose)
	case "junit":
		return r.WriteJUnit(w)
	case "csv":
		return r.WriteCSV(w)
	case "table":
		return r.WriteTable(w, nil)
	case "json":
		return r.WriteResults(w)
	}
	return r.WriteMarkdown(w, nil)
}

// withReport opens the results that a name stands for: a results document as it is, or a run in the store.
func (g *globals) withReport(ctx context.Context, name string, f func(*report.Report) error) (err error) {
	if isFile(name) {
		r, err := report.Open(name)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		err = f(r)
		if errors.As(err, new(input.Problem)) {
			return &exitError{exitUsage, err} // of a rollout of the document
		}
		return internal(err)
	}
	s, runID, err := g.findRun(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, internal(s.Close())) }()
	red, err := redactorOf(ctx, s, runID)
	if err != nil {
		return err
	}
	return internal(report.FromStore(ctx, s, runID, red, f))
}
