package runner

import (
	"context"

	"github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// Verdict is the result of a run for the person who started it. Judgement has it with its words.
type (
	Verdict   = verdict.Verdict
	Judgement = verdict.Judgement
)

// The verdicts; package verdict says what they mean.
const (
	Passed      = verdict.Passed
	Failed      = verdict.Failed
	Undecided   = verdict.Undecided
	Faulted     = verdict.Faulted
	Suspended   = verdict.Suspended
	Interrupted = verdict.Interrupted
	Finished    = verdict.Finished
)

// Accept says what a run may lack and still pass, and Tolerance how many failures of a kind are
// allowed. The zero values accept nothing.
type (
	Accept    = verdict.Accept
	Tolerance = verdict.Tolerance
)

// ParseTolerance reads a number N or a share P%.
func ParseTolerance(text string) (Tolerance, error) {
	t, err := verdict.ParseTolerance(text)
	if err != nil {
		return t, &InputError{Err: err}
	}
	return t, nil
}

// Judge judges a run as it stands in the store.
func (s *Store) Judge(ctx context.Context, runID string, v Variables, accept Accept) (Result, error) {
	p, err := readPlanned(ctx, s.st, runID, v)
	if err != nil {
		return Result{}, err
	}
	result := Result{RunID: runID}
	result.Judgement, err = p.judge(ctx, accept)
	return result, err
}

// Judge judges the run in the report.
func (r *Report) Judge(accept Accept) (Judgement, error) { return r.r.Judge(accept) }

// JudgementOf judges a run by the results document in the store; ok is false if that is of an
// earlier revision.
func (s *Store) JudgementOf(r Run) (j Judgement, ok bool) {
	head, ok := s.CurrentHead(r)
	if !ok {
		return j, false
	}
	return verdict.Of(&head, Accept{}, ""), true
}

// CurrentHead is the head of the results document of a run, with its statistics, which may be
// large; ok is false if the document is of an earlier revision.
func (s *Store) CurrentHead(r Run) (head schemas.Head, ok bool) {
	head, err := report.ReadStatistics(s.DocumentPath(r.ID))
	return head, err == nil && head.RunID == r.ID && head.Revision == r.Revision && head.Statistics != nil
}
