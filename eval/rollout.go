package eval

import "slices"

// Rollout is what the statistics need to know of one rollout.
type Rollout struct {
	EvaluationID string
	Agent        string
	Epoch        int
	State        State
	// AgentsFault says that the fault of a faulted rollout is the agent's own: it is a failure of
	// the agent, with the score 0. The faults of its environment are missing data.
	AgentsFault bool
	// Evaluation says what is asked of the rollout. Where it is nil, the evaluators that have a
	// result are taken for those that were asked.
	Evaluation *Evaluation
	// Usage is what the agent has used of models, by model; nil if that is not known.
	Usage []Usage
	// Results are the evaluators' results; they are read only if the rollout is completed.
	Results []Result
}

// cluster is the group of evaluations that the rollout's evaluation belongs to: the one that it
// names, or itself alone.
func (r Rollout) cluster() string { return clusterOf(r.EvaluationID, r.Evaluation) }

func clusterOf(id string, e *Evaluation) string {
	if e != nil && e.Cluster != "" {
		return "cluster " + e.Cluster
	}
	return "evaluation " + id
}

// asks reports whether an evaluator is to score the evaluation.
func (e *Evaluation) asks(def Definition) bool {
	if e == nil {
		return false
	}
	if def.Type == TypeVerifier {
		return e.Task != nil
	}
	_, ok := e.Criteria[def.ID]
	return ok
}

// RolloutScore is the weighted mean, from 0 to 1, of a rollout's results. Results of lines, of
// evaluators that were not run and of evaluators that failed do not count. It is nil if nothing
// counts. An evaluator without a definition, such as a task's verifier, has the weight 1.
func RolloutScore(defs []Definition, results []Result) *float64 {
	w := weigh(defs, results)
	if w.known == 0 {
		return nil
	}
	mean := w.sum / w.known
	return &mean
}

func weigh(defs []Definition, results []Result) (w weighted) {
	for _, result := range results {
		w.add(result, weightOf(defs, result.EvaluatorID))
	}
	return w
}

// normalized is a result's score from 0 to 1, nil if the result counts in no average.
func (r Result) normalized() *float64 {
	if r.Line || r.Score == nil {
		return nil
	}
	score := *r.Score
	if r.Scale > 0 {
		score /= r.Scale
	}
	return &score
}

// Failed says that the evaluator itself failed, so that there is no score.
func (r Result) Failed() bool { return r.Score == nil && r.Error != "" }

func weightOf(defs []Definition, id string) float64 {
	for i := range defs {
		if defs[i].ID == id {
			return defs[i].Weight
		}
	}
	return 1
}

// passes allows for the rounding of a weighted mean of perfect scores.
func passes(score, pass float64) bool { return score >= pass-1e-9 }

// Passes reports whether a score is at least pass.
func Passes(score, pass float64) bool { return passes(score, pass) }

// reduce makes one score of the scores of an evaluation's epochs, of which there is at least one.
func (r Reducer) reduce(scores []float64, pass float64) float64 {
	switch r {
	case ReduceAtLeastOne:
		return truth(passes(slices.Max(scores), pass))
	case ReduceAll:
		return truth(passes(slices.Min(scores), pass))
	}
	return mean(scores)
}

// passing counts the scores that pass.
func passing(scores []float64, pass float64) (passed int) {
	for _, score := range scores {
		if passes(score, pass) {
			passed++
		}
	}
	return passed
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
