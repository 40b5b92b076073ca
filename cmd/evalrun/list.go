package main

import (
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval/verdict"
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
	Headline          string         `json:"headline,omitempty"`
	Final             bool           `json:"final"`
	CreatedAt         time.Time      `json:"createdAt"`
	FinishedAt        *time.Time     `json:"finishedAt"`
	Rollouts          map[string]int `json:"rollouts"`
}

func newRunJSON(r runner.Run) runJSON {
	c := r.Counts
	out := runJSON{RunID: r.ID, EvaluationSetID: r.EvaluationSetID, EvaluationSetName: r.EvaluationSetName,
		Status: string(r.Status), Final: r.Final, CreatedAt: r.CreatedAt,
		Rollouts: map[string]int{"total": c.Total, "pending": c.Pending, "running": c.Running, "suspended": c.Suspended,
			"evaluating": c.Evaluating, "scoring": c.Scoring, "completed": c.Completed, "faulted": c.Faulted,
			"cancelled": c.Cancelled}}
	if r.Final {
		out.FinishedAt = &r.FinishedAt
	}
	return out
}

// listStatus is the status of a run at this moment.
func listStatus(r runner.Run) string {
	if r.Interrupted {
		return "interrupted"
	}
	return string(r.Status)
}

// noVerdict stands in lists for the verdict of a run that has none, or none yet.
const noVerdict = "–"

// listVerdict is the verdict on a run in a word or two, if the store's results document is up to
// date and the run has ended or failed already.
func listVerdict(s *runner.Store, r runner.Run) (j runner.Judgement, word string) {
	j, ok := s.JudgementOf(r)
	switch {
	case !ok || !r.Final && j.Word != verdict.FailsAlready:
		return runner.Judgement{}, noVerdict
	case j.Verdict == runner.Finished:
		return j, noVerdict
	}
	return j, j.Word
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
						if j, _ := listVerdict(s, r); j.Word != "" {
							run.Headline = j.Headline()
							if r.Final {
								run.Verdict = j.Verdict.String()
							}
						}
						out = append(out, run)
					}
					return printJSON(cmd, out)
				}
				t := tabwriter.NewWriter(stdout(cmd), 0, 0, 2, ' ', 0)
				printf(t, "RUN\tSTATUS\tVERDICT\tCOMPLETED\tSUSPENDED\tFAULTED\tTOTAL\tCREATED\tEVAL SET\n")
				gateless := 0
				for _, r := range runs {
					j, word := listVerdict(s, r)
					if j.Verdict == runner.Finished {
						gateless++
					}
					printf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\n", r.ID, listStatus(r), word, r.Counts.Completed,
						r.Counts.Suspended, r.Counts.Faulted,
						r.Counts.Total, r.CreatedAt.Local().Format(time.DateTime), redact.Line(r.EvaluationSetName))
				}
				if err := t.Flush(); err != nil || gateless == 0 {
					return err
				}
				printf(stdout(cmd),
					"%s: no verdict yet, or the run has no gate: neither a threshold of its set nor --fail-under says whether its scores are good enough.\n",
					noVerdict)
				return nil
			})
		},
	}
}
