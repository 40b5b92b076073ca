package eval

import "github.com/evalrun/evalrun/eval/stats"

// Passes reports whether a score is at least pass. It allows for the rounding of a weighted mean of
// perfect scores.
func Passes(score, pass float64) bool { return score >= pass-1e-9 }

// Passing counts the scores that pass.
func Passing(scores []float64, pass float64) (passed int) {
	for _, score := range scores {
		if Passes(score, pass) {
			passed++
		}
	}
	return passed
}

// PassShare is the share of the scores that pass.
func PassShare(scores []float64, pass float64) float64 {
	return float64(Passing(scores, pass)) / float64(len(scores))
}

// Reduce makes one score of the scores of an evaluation's epochs, of which there is at least one.
func (r Reducer) Reduce(scores []float64, pass float64) float64 {
	passed := Passing(scores, pass)
	switch {
	case r != ReduceAtLeastOne && r != ReduceAll:
		return stats.Mean(scores)
	case r == ReduceAtLeastOne && passed > 0, passed == len(scores):
		return 1
	}
	return 0
}
