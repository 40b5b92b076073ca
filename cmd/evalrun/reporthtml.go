package main

import (
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
)

// formatHTML is the format that package web writes.
const formatHTML = "html"

// reportFormats are the formats that the command report can write.
var reportFormats = append([]string{formatHTML}, runner.Formats...)

// htmlFlags are the flags of a report for a browser.
type htmlFlags struct{ web.ReportOptions }

func (o *htmlFlags) register(f *pflag.FlagSet) {
	f.BoolVar(&o.Full, "full", false, "with --format html: leave long values whole")
	f.BoolVar(&o.FailedOnly, "failed-only", false,
		"with --format html: details only of rollouts that have not passed, or in which an evaluator failed")
	f.BoolVar(&o.RedactIO, "redact-io", false,
		"with --format html: leave out inputs and outputs of the agents, and what evaluators say of them")
}

func (o *htmlFlags) check(format string) error {
	if format != formatHTML && (o.Full || o.FailedOnly || o.RedactIO) {
		return usageError("--full, --failed-only and --redact-io have a meaning only with --format html")
	}
	return nil
}

// write writes a report for a browser, and warns if it has become large.
func (o *htmlFlags) write(cmd *cobra.Command, g *globals, w io.Writer, r *runner.Report) error {
	out := &counter{w: w}
	if err := web.WriteReport(out, r, o.ReportOptions); err != nil {
		return err
	}
	if out.n > web.LargeReport && !g.quiet {
		more := ""
		if o.Full {
			more = ", and so does leaving out --full"
		}
		printf(cmd.ErrOrStderr(), "the report has %d MB; --failed-only and --redact-io make it smaller%s\n", out.n>>20, more)
	}
	return nil
}

// counter counts the bytes that are written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
