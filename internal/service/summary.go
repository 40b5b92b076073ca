package service

import (
	"context"

	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// Summary is the result of a run in short.
type Summary struct {
	RunID  string         `json:"runId"`
	Status schemas.Status `json:"status"`
	// Verdict is one of the verdicts of package runner. Reason explains it, if it needs a reason.
	Verdict string          `json:"verdict"`
	Reason  string          `json:"reason,omitempty"`
	Summary schemas.Summary `json:"summary"`
}

// Summary judges a run in its present state. It accepts nothing that is missing.
func (s *Service) Summary(ctx context.Context, runID string) (Summary, error) {
	out := Summary{RunID: runID}
	result, err := s.runs.Judge(ctx, runID, s.o.Variables, runner.Accept{})
	if err != nil {
		return out, err
	}
	out.Verdict, out.Reason = result.Verdict.String(), result.Reason
	return out, s.runs.Report(ctx, runID, s.o.Variables, func(r *runner.Report) error {
		out.Status, out.Summary = r.Head().Status, r.Head().Summary
		return nil
	})
}
