package summary

import (
	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/stats"
)

type evaluatorTally struct {
	id, name        string
	digest          string
	weight          float64
	score, passRate figure
	// plain is over completed rollouts alone, as UiPath averages.
	plain          stats.Sample
	passed         int
	errors, notRun int
	classification *evaluator.Classification
	// confusion leaves out the predictions that UiPath leaves out; in strict, a prediction outside the
	// classes is a wrong one.
	confusion, strict *evaluator.Confusion
	// epochs and completed are those of the evaluation that is being added.
	epochs, completed epochs
}

// classify counts a prediction. One without labels in its result, as when the agent's output has
// none, is wrong if the expected class is known.
func (e *evaluatorTally) classify(r Rollout, result eval.Result) {
	e.classification.Add(e.confusion, result)
	if result.Error != "" {
		e.lose(r)
		return
	}
	e.classification.Add(e.strict, result)
}

// lose counts a prediction that was not made, or that is none of the classes.
func (e *evaluatorTally) lose(r Rollout) {
	if e.classification != nil {
		e.classification.Lose(e.strict, r.Evaluation)
	}
}

// close ends the evaluation that is being added.
func (e *evaluatorTally) close(cluster string, reduce, share func([]float64) float64, pass float64, finished bool) {
	if len(e.epochs.least) > 0 {
		e.epochs.unfinished = !finished
		e.score.add(cluster, e.epochs, reduce)
		e.passRate.add(cluster, e.epochs, share)
		if finished && len(e.epochs.known) > 0 && eval.Passes(reduce(e.epochs.known), pass) {
			e.passed++
		}
	}
	if finished && len(e.completed.known) > 0 {
		e.plain.Add(cluster, reduce(e.completed.known))
	}
	e.epochs.reset()
	e.completed.reset()
}

func (e *evaluatorTally) summary(method stats.Method) EvaluatorSummary {
	s := EvaluatorSummary{ID: e.id, Name: e.name, Weight: e.weight, Estimate: e.score.Estimate(method),
		PassRate:          e.passRate.Estimate(method),
		EvaluationsPassed: e.passed, Errors: e.errors, NotRun: e.notRun}
	s.Digest, s.Score = e.digest, e.plain.Mean()
	if e.isClassification() && e.confusion.Total > 0 {
		score := e.classification.Score(e.confusion)
		s.Score, s.Skipped = &score, e.confusion.Skipped
	}
	if e.isClassification() && e.strict.Total > 0 {
		score := e.classification.Score(e.strict)
		s.ScoreStrict = &score
	}
	return s
}

// isClassification reports whether the evaluator's score of the set is not a mean.
func (e *evaluatorTally) isClassification() bool {
	return e.classification != nil && e.classification.Score != nil
}
