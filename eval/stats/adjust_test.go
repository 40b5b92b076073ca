package stats

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

// The adjusted values are those of the procedure that rejects one hypothesis after the other.
func TestHolmRejectsStepByStep(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // cases, no secrets
	for range 200 {
		p := make([]float64, 1+r.IntN(6))
		for i := range p {
			p[i] = math.Round(20*r.Float64()) / 100
		}
		adjusted := Holm(p)
		for _, alpha := range []float64{0.011, 0.051, 0.103, 0.31} {
			sorted := append([]float64{}, p...)
			sort.Float64s(sorted)
			limit := -1.0
			for i, x := range sorted {
				if x > alpha/float64(len(p)-i) {
					break
				}
				limit = x
			}
			for i := range p {
				if (adjusted[i] <= alpha) != (p[i] <= limit) {
					t.Fatalf("p %v, adjusted %v, alpha %v", p, adjusted, alpha)
				}
			}
		}
	}
}

// So are those of the procedure that takes the largest rank at which the p-value is small enough.
func TestBenjaminiHochbergRejectsUpToARank(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10)) //nolint:gosec // cases, no secrets
	for range 200 {
		p := make([]float64, 1+r.IntN(6))
		for i := range p {
			p[i] = math.Round(20*r.Float64()) / 100
		}
		adjusted := BenjaminiHochberg(p)
		for _, alpha := range []float64{0.011, 0.051, 0.103, 0.31} {
			sorted := append([]float64{}, p...)
			sort.Float64s(sorted)
			limit := -1.0
			for i, x := range sorted {
				if x <= alpha*float64(i+1)/float64(len(p)) {
					limit = x
				}
			}
			for i := range p {
				if (adjusted[i] <= alpha) != (p[i] <= limit) {
					t.Fatalf("p %v, adjusted %v, alpha %v", p, adjusted, alpha)
				}
			}
		}
	}
}
