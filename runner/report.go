package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/export"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// Formats are the formats that [Report.Write] can write.
var Formats = []string{"uipath", "junit", "markdown", "csv", "table", "json", FormatInspect, FormatATIF, FormatMocks}

// Formats of other programs: a log of Inspect, which is no text, and trajectories, one a line.
const (
	FormatInspect = "inspect"
	FormatATIF    = "atif"
)

// FormatMocks has the calls of MCP tools with what they got, as mocks that play them again.
const FormatMocks = "mocks"

// Report is a run at one moment.
type Report struct {
	// ResumeCommand and TriggersCommand, if not empty, are the commands that resume the run and that
	// list its triggers.
	ResumeCommand   string
	TriggersCommand string
	// Failures is how many failures the table and the Markdown describe at length, at first 10; below
	// 0 all.
	Failures int
	// Dir is the folder that the paths of the failures' logs are relative to; empty for the store's
	// own.
	Dir string
	// Width is how many columns the table may have, 0 any number; Color has it use colours.
	Width int
	Color bool
	// Last, if not empty, holds lines that the table has before its summary.
	Last string
	// Judgement is the verdict in the report; nil for that of a run that may lack nothing.
	Judgement *Judgement
	// Accept is what the run may lack.
	Accept Accept
	// Verbose has the format uipath include the actions of the agents.
	Verbose bool
	// Agent chooses the agent whose rollouts the format inspect has, if there are several.
	Agent string

	r *report.Report
}

// Report calls f with the report of a run. It holds only during the call. If the connection with the
// store's database is lost while f reads, f is called again and must begin anew.
func (s *Store) Report(ctx context.Context, runID string, v Variables, f func(*Report) error) error {
	return s.ReportUnder(ctx, runID, v, nil, f)
}

// ReportUnder is Report with thresholds that replace those of the run's plan for the same figures.
func (s *Store) ReportUnder(ctx context.Context, runID string, v Variables, under eval.FailUnder,
	f func(*Report) error) error {
	p, err := readPlanned(ctx, s.st, runID, v)
	if err != nil {
		return err
	}
	return report.FromStoreUnder(ctx, s.st, runID, p.red, under, func(r *report.Report) error { return f(newReport(r)) })
}

// OpenReport calls f with the report of a results document. Its store need not be there.
func OpenReport(path string, f func(*Report) error) error {
	r, err := report.Open(path)
	if err != nil {
		return &InputError{Err: err}
	}
	err = f(newReport(r))
	if errors.As(err, new(input.Problem)) {
		return &InputError{Err: err} // the document has an invalid rollout
	}
	return err
}

func newReport(r *report.Report) *Report {
	return &Report{Failures: report.DefaultFailures, r: r}
}

// Head is the head of the report, about the run as a whole.
func (r *Report) Head() schemas.Head { return r.r.Head }

// Rollouts calls f with one rollout after the other, in the order of the plan.
func (r *Report) Rollouts(f func(*schemas.Rollout) error) error { return r.r.Rollouts(f) }

// Rows calls f with every rollout as a row of a list, in the order of the plan. It is for evalrun's
// own pages.
func (r *Report) Rows(f func(report.Row) error) error { return r.r.Rows(f) }

// RolloutDir is the folder of a rollout's files; empty if the place of the store is not known. It
// is for evalrun's own pages.
func (r *Report) RolloutDir(rolloutID string) string { return r.r.RolloutDir(rolloutID) }

// Pass is the least score of a rollout that passes.
func (r *Report) Pass() float64 { return r.r.Pass }

// Failed reports whether a rollout of the report has faulted, or has a score that does not pass.
func (r *Report) Failed(one *schemas.Rollout) bool { return one.Failed(r.r.Pass) }

// Explain returns why a rollout has not passed, or what it waits for, in lines as the terminal
// shows them; empty for a rollout that has passed. It is for evalrun's own pages.
func (r *Report) Explain(one *schemas.Rollout) string { return r.r.Explain(one, r.showing()) }

// Write writes the report in one of the Formats; json is the results document.
func (r *Report) Write(w io.Writer, format string) error {
	s := r.showing()
	switch format {
	case "uipath":
		return r.r.WriteUiPath(w, r.Verbose)
	case "junit":
		return r.r.WriteJUnit(w, s)
	case "csv":
		return r.r.WriteCSV(w)
	case "table":
		return r.r.WriteTable(w, s)
	case "json":
		return r.r.WriteResults(w)
	case "markdown":
		return r.r.WriteMarkdown(w, s)
	case FormatInspect:
		err := export.WriteInspect(w, r.r, r.Agent)
		if errors.As(err, new(export.AgentError)) {
			return &InputError{Err: err}
		}
		return err
	case FormatATIF:
		return export.WriteATIF(w, r.r)
	case FormatMocks:
		return r.r.WriteMocks(w)
	}
	return inputError("there is no format %q", format)
}

// Trajectories calls f with the ATIF trajectory of each rollout that has begun, and returns how
// many have not.
func (r *Report) Trajectories(f func(rolloutID string, trajectory json.RawMessage) error) (pending int, err error) {
	return export.ATIF(r.r, f)
}

// WriteRollouts writes everything about the chosen rollouts, for people, and returns their number.
func (r *Report) WriteRollouts(w io.Writer, chosen func(*schemas.Rollout) bool) (int, error) {
	return r.r.WriteRollouts(w, r.showing(), chosen)
}

func (r *Report) showing() report.Showing {
	return report.Showing{Failures: r.Failures, Resume: r.ResumeCommand, Triggers: r.TriggersCommand, Dir: r.Dir,
		Last: r.Last, Judgement: r.Judgement, Accept: r.Accept,
		Terminal: report.Terminal{Width: r.Width, Color: r.Color}}
}

func documentPath(s store.Place, runID string) string {
	return files.Of(s).Run(runID).Results()
}

// printScore formats a score for people.
func printScore(score *float64) string {
	if score == nil {
		return "none"
	}
	return fmt.Sprint(*score)
}
