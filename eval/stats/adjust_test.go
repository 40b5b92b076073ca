package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The adjusted values are those of the procedures themselves: Holm's rejects one hypothesis after the
// other until one is not small enough; Benjamini and Hochberg's all up to the last one that is.
func TestAdjustedValuesAreThoseOfTheProcedures(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		adjust  func([]float64) []float64
		largest func(sorted []float64, alpha float64) float64
	}{
		"Holm": {Holm, func(sorted []float64, alpha float64) float64 {
			limit := -1.0
			for i, x := range sorted {
				if x > alpha/float64(len(sorted)-i) {
					break
				}
				limit = x
			}
			return limit
		}},
		"Benjamini-Hochberg": {BenjaminiHochberg, func(sorted []float64, alpha float64) float64 {
			limit := -1.0
			for i, x := range sorted {
				if x <= alpha*float64(i+1)/float64(len(sorted)) {
					limit = x
				}
			}
			return limit
		}},
	} {
		r := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // cases, no secrets
		for range 200 {
			p := make([]float64, 1+r.IntN(6))
			for i := range p {
				p[i] = math.Round(20*r.Float64()) / 100
			}
			adjusted, sorted := one.adjust(p), slices.Sorted(slices.Values(p))
			for _, alpha := range []float64{0.011, 0.051, 0.103, 0.31} {
				limit := one.largest(sorted, alpha)
				for i := range p {
					if (adjusted[i] <= alpha) != (p[i] <= limit) {
						t.Fatalf("%s: p %v, adjusted %v, alpha %v", name, p, adjusted, alpha)
					}
				}
			}
		}
	}
}
