package report

import (
	"slices"

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
