package report

import "github.com/evalrun/evalrun/schemas"

// Explain says why a rollout has not passed, or what it waits for, in lines as the terminal shows
// them. It is empty if the rollout passed and none of its evaluators failed.
func (r *Report) Explain(one *schemas.Rollout, s Showing) string {
	if r.verdict(one) == passed && !EvaluatorFailed(one) {
		return ""
	}
	return explainer{Report: r, showing: s}.failure(one).String()
}
