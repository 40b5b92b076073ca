package main

import (
	"cmp"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

// runJSON is a run as --json prints it.
type runJSON struct {
	RunID             string         `json:"runId"`
	EvaluationSetID   string         `json:"evaluationSetId"`
	EvaluationSetName string         `json:"evaluationSetName"`
	Status            string         `json:"status"`
	Verdict           string         `json:"verdict,omitempty"`
	Final             bool           `json:"final"`
	CreatedAt         time.Time      `json:"createdAt"`
	FinishedAt        *time.Time     `json:"finishedAt"`
	Rollouts          map[string]int `json:"rollouts"`
}

func newRunJSON(r runner.Run) runJSON {
	c := r.Counts
	out := runJSON{RunID: r.ID, EvaluationSetID: r.EvaluationSetID, EvaluationSetName: r.EvaluationSetName, Status: string(r.Status), Final: r.Final,
		CreatedAt: r.CreatedAt, Rollouts: map[string]int{"total": c.Total, "pending": c.Pending, "running": c.Running, "suspended": c.Suspended,
			"evaluating": c.Evaluating, "scoring": c.Scoring, "completed": c.Completed, "faulted": c.Faulted, "cancelled": c.Cancelled}}
	if r.Final {
		out.FinishedAt = &r.FinishedAt
	}
	return out
}

// listStatus is the status of a run, as far as this moment is concerned.
func listStatus(r runner.Run) string {
	if r.Interrupted {
		return "interrupted"
	}
	return string(r.Status)
}

// listVerdict is the verdict on a run that has ended, in a word; empty if it is open, or the store's
// results document is not up to date.
func listVerdict(s *runner.Store, r runner.Run) string {
	v, ok := s.VerdictOf(r)
	if !ok {
		return ""
	}
	return v.String()
}

func listCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the runs of the store",
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd, false, func(s *runner.Store) error {
				runs, err := s.Runs(cmd.Context())
				if err != nil {
					return err
				}
				if g.json {
					out := []runJSON{}
					for _, r := range runs {
						run := newRunJSON(r)
						run.Status = listStatus(r)
						run.Verdict = listVerdict(s, r)
						out = append(out, run)
					}
					return printJSON(cmd, out)
				}
				t := tabwriter.NewWriter(stdout(cmd), 0, 0, 2, ' ', 0)
				printf(t, "RUN\tSTATUS\tVERDICT\tCOMPLETED\tSUSPENDED\tFAULTED\tTOTAL\tCREATED\tEVAL SET\n")
				for _, r := range runs {
					printf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", r.ID, listStatus(r), cmp.Or(listVerdict(s, r), "-"), r.Counts.Completed, r.Counts.Suspended, r.Counts.Faulted,
						r.Counts.Total, r.CreatedAt.Local().Format(time.DateTime), redact.Line(r.EvaluationSetName))
				}
				return t.Flush()
			})
		},
	}
}
