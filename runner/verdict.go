package runner

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// Verdict is what the state of a run means for whoever started it.
type Verdict int

// The verdicts. The first that holds of Interrupted, Suspended, Faulted, Failed, Undecided and
// Passed is that of a run.
const (
	// Passed: everything has finished, and the thresholds are met.
	Passed Verdict = iota
	// Failed: a threshold is not met.
	Failed
	// Undecided: what is missing, or its interval, allows a threshold to be met or not.
	Undecided
	// Faulted: more faulted, or was not scored, than Accept allows.
	Faulted
	// Suspended: rollouts wait; resume the run later.
	Suspended
	// Interrupted: the work was ended before its time; the run can be resumed.
	Interrupted
)

// String is the verdict as a word.
func (v Verdict) String() string {
	return [...]string{"passed", "failed", "undecided", "faulted", "suspended", "interrupted"}[v]
}

// ExitCode is the exit code of a command that ends with the verdict.
func (v Verdict) ExitCode() int { return [...]int{0, 1, 5, 3, 75, 130}[v] }

// Accept says what a run may lack and still pass. The zero value accepts nothing.
type Accept struct {
	// Faulted is how many rollouts may fault, EvaluatorErrors how often evaluators may fail.
	Faulted         Tolerance
	EvaluatorErrors Tolerance
	// Unscored accepts evaluations that no evaluator could score.
	Unscored bool
	// Suspended judges the thresholds although rollouts wait.
	Suspended bool
}

// Tolerance is how many of something may go wrong. The zero value is none.
type Tolerance struct {
	count int
	share float64
	isPct bool
}

// ParseTolerance reads a number N or a share P%.
func ParseTolerance(text string) (Tolerance, error) {
	if pct, ok := strings.CutSuffix(text, "%"); ok {
		share, err := strconv.ParseFloat(pct, 64)
		if err != nil || !(share >= 0 && share <= 100) { // NaN is neither
			return Tolerance{}, inputError("expected a number N or a share from 0%% to 100%%, got %q", text)
		}
		return Tolerance{share: share / 100, isPct: true}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return Tolerance{}, inputError("expected a number N or a share P%%, got %q", text)
	}
	return Tolerance{count: n}, nil
}

func (t Tolerance) exceeded(n, total int) bool {
	if t.isPct {
		return float64(n) > t.share*float64(total)
	}
	return n > t.count
}

// Judge judges a run as it stands in the store.
func (s *Store) Judge(ctx context.Context, runID string, v Variables, accept Accept) (Result, error) {
	p, err := readPlanned(ctx, s.st, runID, v)
	if err != nil {
		return Result{}, err
	}
	result := Result{RunID: runID}
	result.Verdict, result.Reason, err = p.verdict(ctx, accept)
	return result, err
}

// Judge judges the run as the report has it.
func (r *Report) Judge(accept Accept) (Verdict, string, error) {
	example := ""
	if r.r.Statistics.Coverage.Unscored > 0 {
		var err error
		if example, err = r.r.FirstUnscored(); err != nil {
			return 0, "", err
		}
	}
	v, reason := judgeHead(r.r.Head, accept, example)
	return v, reason, nil
}

// JudgeHead judges a final run as the head of its results document has it, which has statistics.
func JudgeHead(h schemas.Head, accept Accept) Verdict {
	v, _ := judgeHead(h, accept, "")
	return v
}

// VerdictOf is the verdict on a run that has ended, by the results document that the store keeps of it;
// ok is false if the run is open or the document is of an earlier revision.
func (s *Store) VerdictOf(r Run) (v Verdict, ok bool) {
	head, ok := s.EndedHead(r)
	if !ok {
		return 0, false
	}
	return JudgeHead(head, Accept{}), true
}

// EndedHead is the head of the results document of a run that has ended, with its statistics, which may
// be large; ok is false as that of VerdictOf.
func (s *Store) EndedHead(r Run) (head schemas.Head, ok bool) {
	if !r.Final {
		return head, false
	}
	head, err := report.ReadStatistics(s.DocumentPath(r.ID))
	return head, err == nil && head.RunID == r.ID && head.Revision == r.Revision && head.Statistics != nil
}

// judgeHead judges a run by its statistics. example is an evaluation that has no score.
func judgeHead(h schemas.Head, accept Accept, example string) (Verdict, string) {
	stats, n := *h.Statistics, h.Statistics.Rollouts
	run := store.Run{Counts: store.Counts{Total: n.Total, Completed: n.Completed, Suspended: n.Suspended, Scoring: n.Scoring, Faulted: n.Faulted, Cancelled: n.Cancelled}}
	if h.Final && h.FinishedAt != nil {
		run.FinishedAt = *h.FinishedAt
	}
	v, reason := verdictOf(run, len(stats.PerAgent()[0].Evaluators) > 0, stats, accept, example)
	if failure := failFast(run.Counts, stats); h.FailFast && failure != "" && (v == Passed || v == Undecided) {
		v, reason = Failed, failure
	}
	return v, reason
}

// verdictOf gives the verdict on a run that nobody has interrupted. hasEvaluators says that scores were
// to be expected, example is an evaluation without one.
func verdictOf(run store.Run, hasEvaluators bool, stats eval.Summary, accept Accept, example string) (Verdict, string) {
	failed := gates(stats, eval.GateFail)
	if !run.Final() && !accept.Suspended {
		if failed != "" {
			failed = "lost already: " + failed
		}
		return Suspended, failed
	}
	if reason := missing(run.Counts, hasEvaluators, stats, accept, example); reason != "" {
		return Faulted, reason
	}
	if failed != "" {
		return Failed, failed
	}
	if reason := gates(stats, eval.GateUndecided); reason != "" {
		return Undecided, reason
	}
	return Passed, ""
}

// failFast says what failed in a run with --fail-fast, and how much of it was cancelled for that;
// empty if nothing failed. A failure is one also when it came last and left nothing to cancel:
// otherwise the verdict would depend on which of several agents is the fastest.
func failFast(counts store.Counts, stats eval.Summary) string {
	failed := counts.Faulted > 0
	for _, a := range stats.PerAgent() {
		failed = failed || a.EvaluationsPassed < a.Coverage.Scored || a.Coverage.Unscored > 0
	}
	switch {
	case !failed:
		return ""
	case counts.Cancelled == 0:
		return "--fail-fast: a rollout has failed"
	}
	return fmt.Sprintf("--fail-fast: a rollout has failed, and %d of %d were cancelled", counts.Cancelled, counts.Total)
}

// missing says what is missing beyond what is accepted: nothing is green in silence.
func missing(counts store.Counts, hasEvaluators bool, stats eval.Summary, accept Accept, example string) string {
	c := stats.Coverage
	switch {
	case accept.Faulted.exceeded(counts.Faulted, counts.Total):
		return fmt.Sprintf("%d of %d rollouts faulted", counts.Faulted, counts.Total)
	case accept.EvaluatorErrors.exceeded(c.EvaluatorErrors, c.EvaluatorErrors+c.EvaluatorResults):
		return fmt.Sprintf("evaluators failed %d of %d times; --fail-on-evaluator-error allows some", c.EvaluatorErrors, c.EvaluatorErrors+c.EvaluatorResults)
	case c.Cancelled == c.Evaluations && len(stats.Gates) == 0: // gates are judged by what might have come
		return "nothing was scored: every evaluation was cancelled"
	case !hasEvaluators && len(stats.Gates) == 0 || accept.Unscored:
		return ""
	case c.Unscored > 0:
		return fmt.Sprintf("%d of %d evaluations could not be scored (%s); --allow-unscored accepts that", c.Unscored, c.Evaluations, example)
	case c.EvaluatorResults == 0 && c.Incomplete == 0 && c.Cancelled < c.Evaluations:
		return "nothing could be scored"
	}
	return ""
}

// gates are the thresholds that were judged so, as one text; empty if there is none.
func gates(stats eval.Summary, verdict eval.GateVerdict) string {
	var out []string
	for _, g := range stats.Gates {
		if g.Verdict != verdict {
			continue
		}
		text := g.String()
		switch {
		case len(stats.Agents) == 0:
		case g.Agent == "":
			text = "all agents together: " + text
		default:
			text = redact.Line(g.Agent) + ": " + text
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
