package main

import (
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

// preview prints the rollouts that a run would have (--dry-run). It opens a store only to find
// another run in it.
func (f *runFlags) preview(cmd *cobra.Command, g *globals, set *runner.EvalSet) error {
	show := func(s *runner.Store) error {
		planned, selected, err := set.Preview(cmd.Context(), s, f.create)
		if err != nil {
			return internal(err)
		}
		if g.json {
			return printJSON(cmd, planned)
		}
		t := tabwriter.NewWriter(stdout(cmd), 0, 0, 2, ' ', 0)
		printf(t, "EVALUATION\tAGENT\tEPOCH\tTAGS\tNAME\n")
		for _, p := range planned {
			name := redact.Line(p.EvaluationName)
			if p.NotRunnable != "" {
				name += " (not runnable: " + redact.Line(p.NotRunnable) + ")"
			}
			printf(t, "%s\t%s\t%s\t%s\t%s\n", redact.Line(p.EvaluationID), redact.Line(p.Agent), strconv.Itoa(p.Epoch),
				redact.Line(strings.Join(p.Tags, ",")), name)
		}
		if err := t.Flush(); err != nil || g.quiet {
			return err
		}
		if selected != "" {
			printf(cmd.ErrOrStderr(), "selected: %s\n", selected)
		}
		printf(cmd.ErrOrStderr(), "%s would run; nothing was stored or started\n", counted(len(planned), "rollout"))
		return nil
	}
	if f.create.RetryOf == "" && f.create.FailedOf == "" && !f.create.LastFailed && !set.NamesRuns() {
		return show(nil)
	}
	return g.withStore(cmd, false, show)
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
