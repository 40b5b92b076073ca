package summary

import (
	"cmp"
	"slices"
)

// Flaky is an evaluation with epochs that pass and epochs that do not.
type Flaky struct {
	EvaluationID string `json:"evaluationId"`
	Passes       int    `json:"passes"`
	N            int    `json:"n"`
}

// consistency says which evaluations pass in some, in all and in no epochs. The first are sorted by
// how little certain they are.
func consistency(counts []Flaky) (flaky []Flaky, always, never []string) {
	for _, one := range counts {
		switch one.Passes {
		case 0:
			never = append(never, one.EvaluationID)
		case one.N:
			always = append(always, one.EvaluationID)
		default:
			flaky = append(flaky, one)
		}
	}
	spread := func(f Flaky) float64 { return float64(f.Passes*(f.N-f.Passes)) / float64(f.N*f.N) }
	slices.SortStableFunc(flaky, func(a, b Flaky) int { return cmp.Compare(spread(b), spread(a)) })
	return flaky, always, never
}
