package eval

import (
	"slices"
)

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

// Reduce makes one score of the scores of an evaluation's epochs, of which there is at least one.
func (r Reducer) Reduce(scores []float64, pass float64) float64 { return r.reduce(scores, pass) }

// PassShare is the share of the scores that pass.
func PassShare(scores []float64, pass float64) float64 {
	return float64(passing(scores, pass)) / float64(len(scores))
}
