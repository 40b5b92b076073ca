package eval

import "slices"

// State is where a rollout is in its life, in the words of the store and the results document.
type State string

// The states of a rollout.
const (
	StatePending    State = "pending"
	StateRunning    State = "running"
	StateSuspended  State = "suspended"
	StateEvaluating State = "evaluating"
	StateCompleted  State = "completed"
	StateFaulted    State = "faulted"
	StateCancelled  State = "cancelled"
	// StateNotRun is the state of a rollout whose evaluation cannot be run here (Evaluation.NotRunnable).
	StateNotRun State = "notRun"
)

// IsTerminal reports whether the rollout can change no more.
func (s State) IsTerminal() bool {
	return s == StateCompleted || s == StateFaulted || s == StateCancelled || s == StateNotRun
}

// Rollout is what the statistics need to know of one rollout.
type Rollout struct {
	EvaluationID string
	Agent        string
	Epoch        int
	State        State
	// Results are the evaluators' results; they are read only if the rollout is completed.
	Results []Result
}

// RolloutScore is the weighted mean, from 0 to 1, of a rollout's results. Results of lines and of evaluators that were not
// run do not count; failed ones count as 0. It is nil if nothing counts. An evaluator without a definition, such as a task's
// verifier, has the weight 1.
func RolloutScore(defs []Definition, results []Result) *float64 {
	var sum, weights float64
	for _, result := range results {
		score := result.normalized()
		if score == nil {
			continue
		}
		weight := weightOf(defs, result.EvaluatorID)
		sum += weight * *score
		weights += weight
	}
	if weights == 0 {
		return nil
	}
	mean := sum / weights
	return &mean
}

// normalized is a result's score from 0 to 1, nil if the result counts in no average.
func (r Result) normalized() *float64 {
	if r.Line || r.NotRun != "" {
		return nil
	}
	score := 0.0
	switch {
	case r.Error != "":
	case r.Score == nil:
		return nil
	case r.Scale > 0:
		score = *r.Score / r.Scale
	default:
		score = *r.Score
	}
	return &score
}

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

// reduce makes one score of the scores of an evaluation's epochs, nil of none.
func (r Reducer) reduce(scores []float64, pass float64) *float64 {
	if len(scores) == 0 {
		return nil
	}
	var reduced float64
	switch r {
	case ReduceAtLeastOne:
		reduced = truth(passes(slices.Max(scores), pass))
	case ReduceAll:
		reduced = truth(passes(slices.Min(scores), pass))
	default:
		for _, score := range scores {
			reduced += score
		}
		reduced /= float64(len(scores))
	}
	return &reduced
}
