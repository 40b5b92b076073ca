package main

import (
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// runJSON is a run as --json prints it.
type runJSON struct {
	RunID             string         `json:"runId"`
	EvaluationSetID   string         `json:"evaluationSetId"`
	EvaluationSetName string         `json:"evaluationSetName"`
	Status            string         `json:"status"`
	Final             bool           `json:"final"`
	CreatedAt         time.Time      `json:"createdAt"`
	FinishedAt        *time.Time     `json:"finishedAt"`
	Rollouts          map[string]int `json:"rollouts"`
}

func newRunJSON(r store.Run) runJSON {
	c := r.Counts
	out := runJSON{RunID: r.ID, EvaluationSetID: r.EvaluationSetID, EvaluationSetName: r.EvaluationSetName, Status: string(report.StatusOf(r.Counts)), Final: r.Final(),
		CreatedAt: r.CreatedAt, Rollouts: map[string]int{"total": c.Total, "pending": c.Pending, "running": c.Running, "suspended": c.Suspended,
			"evaluating": c.Evaluating, "completed": c.Completed, "faulted": c.Faulted, "cancelled": c.Cancelled}}
	if r.Final() {
		out.FinishedAt = &r.FinishedAt
	}
	return out
}

// statusInterrupted is the status of a run that could go on, and that no process works on: it was interrupted, or its process has died.
const statusInterrupted = "interrupted"

// listStatus is the status of a run, as far as this moment is concerned.
func listStatus(r store.Run, a store.Activity) string {
	status := report.StatusOf(r.Counts)
	if status == schemas.Running && a == (store.Activity{}) {
		return statusInterrupted
	}
	return string(status)
}

func listCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the runs of the store",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(func(s *store.SQLite) error {
				runs, err := s.Runs(cmd.Context())
				if err != nil {
					return internal(err)
				}
				active, err := s.Activity(cmd.Context())
				if err != nil {
					return internal(err)
				}
				if g.json {
					out := []runJSON{}
					for _, r := range runs {
						run := newRunJSON(r)
						run.Status = listStatus(r, active[r.ID])
						out = append(out, run)
					}
					return printJSON(cmd, out)
				}
				t := tabwriter.NewWriter(stdout(cmd), 0, 0, 2, ' ', 0)
				printf(t, "RUN\tSTATUS\tCOMPLETED\tSUSPENDED\tFAULTED\tTOTAL\tCREATED\tEVAL SET\n")
				for _, r := range runs {
					printf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", r.ID, listStatus(r, active[r.ID]), r.Counts.Completed, r.Counts.Suspended, r.Counts.Faulted,
						r.Counts.Total, r.CreatedAt.Local().Format(time.DateTime), redact.Line(r.EvaluationSetName))
				}
				return internal(t.Flush())
			})
		},
	}
}
