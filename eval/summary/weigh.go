package summary

import (
	"github.com/evalrun/evalrun/eval"
)

// weighted is a mean of results, of which some are missing: the evaluator failed, or was not run.
type weighted struct{ sum, known, failed, notRun float64 }

func (w *weighted) add(r eval.Result, weight float64) {
	switch score := r.Normalized(); {
	case r.Line:
	case score != nil:
		w.sum += weight * *score
		w.known += weight
	case r.NotRun != "":
		w.notRun += weight
	case r.Failed():
		w.failed += weight
	}
}

// RolloutScore is the weighted mean, from 0 to 1, of a rollout's results. Results of lines, of
// evaluators that were not run and of evaluators that failed do not count. It is nil if nothing
// counts. An evaluator without a definition, such as a task's verifier, has the weight 1.
func RolloutScore(defs []eval.Definition, results []eval.Result) *float64 {
	w := weigh(defs, results)
	if w.known == 0 {
		return nil
	}
	mean := w.sum / w.known
	return &mean
}

func weigh(defs []eval.Definition, results []eval.Result) (w weighted) {
	for _, result := range results {
		w.add(result, weightOf(defs, result.EvaluatorID))
	}
	return w
}

func weightOf(defs []eval.Definition, id string) float64 {
	for i := range defs {
		if defs[i].ID == id {
			return defs[i].Weight
		}
	}
	return 1
}
