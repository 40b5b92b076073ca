package report

import (
	verdicts "github.com/evalrun/evalrun/eval/verdict"
	"github.com/evalrun/evalrun/schemas"
)

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
