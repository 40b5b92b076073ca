package report

import (
	"slices"

	verdicts "github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/schemas"
)

// verdict describes a rollout for people in one word.
type verdict string

const (
	passed   verdict = "passed"
	failed   verdict = "failed"
	unscored verdict = "unscored"
	// finished is only the colour of a run without a verdict.
	finished verdict = "finished"
)

// verdict is passed, failed or unscored for a completed rollout, else its state.
func (r *Report) verdict(one *schemas.Rollout) verdict {
	switch {
	case one.Status != schemas.StateCompleted:
		return verdict(one.Status)
	case one.Score == nil:
		return unscored
	case one.Failed(r.Pass):
		return failed
	}
	return passed
}

// failed reports whether a rollout is shown as a failure.
func (r *Report) failed(one *schemas.Rollout) bool {
	switch r.verdict(one) {
	case failed, verdict(schemas.StateFaulted):
		return true
	case unscored:
		return EvaluatorFailed(one) || r.hasEvaluators()
	}
	return EvaluatorFailed(one)
}

func (r *Report) hasEvaluators() bool {
	return r.Statistics != nil && len(r.Statistics.PerAgent()[0].Evaluators) > 0
}

// EvaluatorFailed reports whether an evaluator failed, so that the score leaves it out.
func EvaluatorFailed(one *schemas.Rollout) bool {
	return slices.ContainsFunc(one.EvaluationRunResults, func(e schemas.Evaluated) bool {
		return e.Result.Score == nil && e.Result.Error != ""
	})
}

// EvaluatorNotRun reports whether an evaluator of a rollout was not run, so that the score leaves
// it out.
func EvaluatorNotRun(one *schemas.Rollout) bool {
	return slices.ContainsFunc(one.EvaluationRunResults, func(e schemas.Evaluated) bool {
		return !e.IsLineResult && e.Result.NotRun != ""
	})
}

// waits reports whether an agent or an evaluator of the rollout waits.
func waits(one *schemas.Rollout) bool {
	return one.Status == schemas.StateSuspended || one.Status == schemas.StateScoring
}

// TriggersOf returns the triggers that the agent or the evaluators of a rollout wait for.
func TriggersOf(one *schemas.Rollout) []schemas.Trigger {
	if one.Status == schemas.StateScoring {
		return one.EvaluatorTriggers
	}
	if one.AgentExecutionOutput == nil {
		return nil
	}
	return one.AgentExecutionOutput.Result.Triggers
}

// Judge judges the run, with an example of what is missing.
func (r *Report) Judge(accept verdicts.Accept) (verdicts.Judgement, error) {
	example, err := r.exampleOfMissing(accept)
	return verdicts.Of(&r.Head, accept, example), err
}

// exampleOfMissing names the first rollout with an evaluator that was not run, or else the first
// without a score, with the reason. It is empty if all of them are accepted.
func (r *Report) exampleOfMissing(accept verdicts.Accept) (out string, err error) {
	if r.Statistics == nil {
		return "", nil
	}
	isOne, why := func(one *schemas.Rollout) bool { return r.verdict(one) == unscored }, reason
	switch c := r.Statistics.Coverage; {
	case c.EvaluatorsNotRun > 0 && !accept.NotRun:
		isOne, why = EvaluatorNotRun, notRun
	case c.Unscored == 0 || accept.Unscored:
		return "", nil
	}
	names := census{}
	err = r.Rollouts(func(one *schemas.Rollout) error {
		if out == "" && isOne(one) {
			out = names.label(one) + ": " + why(one)
		}
		return nil
	})
	return out, err
}

// judgement returns the given judgement of the run, or makes one.
func (s Showing) judgement(r *Report) (verdicts.Judgement, error) {
	if s.Judgement != nil {
		return *s.Judgement, nil
	}
	return r.Judge(s.Accept)
}

// colorOf returns the rollout verdict that has the colour of a run's verdict.
func colorOf(j verdicts.Judgement) verdict {
	switch {
	case j.Verdict == verdicts.Passed:
		return passed
	case j.Verdict == verdicts.Failed || j.Verdict == verdicts.Faulted || j.Word == verdicts.FailsAlready:
		return failed
	case j.Verdict == verdicts.Finished:
		return finished
	}
	return unscored
}
