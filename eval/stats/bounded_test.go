package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// These are of a million draws, and true to 0.001; those of 0 and 1 are Clopper and Pearson's.
func TestVectorsOfBoundedMeans(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		values    []float64
		low, high float64
	}{
		{slices.Repeat([]float64{1}, 10), 0.6917, 1},
		{append(slices.Repeat([]float64{1}, 9), 0), 0.5554, 0.9975},
		{slices.Repeat([]float64{0.9}, 5), 0.4303, 0.9521},
		{append(slices.Repeat([]float64{0.9}, 5), 0), 0.3228, 0.9207},
		{[]float64{0.5}, 0.0125, 0.9875},
		{[]float64{0.97, 0.99, 0.93, 1, 0.88, 0.96, 0.91, 1, 0.99, 0.95}, 0.6621, 0.9812},
		{slices.Repeat([]float64{1, 1, 0.75, 1, 0.5, 1, 1, 1, 0.25, 1}, 3), 0.7099, 0.9304},
		{slices.Repeat([]float64{0.5}, 30), 0.4421, 0.5580},
	} {
		low, high := boundedInterval(v.values, float64(len(v.values)))
		if math.Abs(low-v.low) > 0.001 || math.Abs(high-v.high) > 0.001 {
			t.Errorf("%v: got %.4f, %.4f, want %.4f, %.4f", v.values, low, high, v.low, v.high)
		}
	}
}

// Of values that are 0 or 1 the weighted mean has a beta distribution.
func TestBoundedMeansOfZeroAndOneAreClopperAndPearsons(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	for _, n := range []int{1, 2, 3, 10, 77, 1000, 100_000} {
		for _, passed := range []int{0, 1, n / 2, n - 1, n} {
			for _, shape := range []float64{float64(n), float64(n) / 3, 0.5} {
				values := append(slices.Repeat([]float64{1}, passed), slices.Repeat([]float64{0}, n-passed)...)
				low, high := boundedInterval(values, shape)
				scale := shape / float64(n)
				what, a, b := fmt.Sprint(passed, " of ", n, " shape ", shape), scale*float64(passed), scale*float64(n-passed)
				wantLow, wantHigh := 0.0, 1.0
				if passed > 0 {
					wantLow = root(1, func(q float64) float64 { return incompleteBeta(a, b+1, q) - 0.025 })
				}
				if passed < n {
					wantHigh = root(1, func(q float64) float64 { return incompleteBeta(a+1, b, q) - 0.975 })
				}
				near(t, what+" low", low, wantLow)
				near(t, what+" high", high, wantHigh)
			}
		}
	}
}

// More distinct values than are computed one by one make no step: the same values, shared by a grid.
func TestManyDistinctValuesMakeNoStep(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // cases, no secrets
	values := make([]float64, mostPlaces)
	for i := range values {
		values[i] = math.Sqrt(r.Float64())
	}
	low, high := boundedInterval(values, mostPlaces)
	split := make([]float64, 0, 2*mostPlaces) // the same once more, a little beside
	for _, x := range values {
		split = append(split, x-1e-9, min(1, x+1e-9))
	}
	low2, high2 := boundedInterval(split, mostPlaces)
	near(t, "low", low2, low)
	near(t, "high", high2, high)
}

func BenchmarkIntervalOf10kGradedScores(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // cases, no secrets
	var s Sample
	for i := range 10_000 {
		s.Add(fmt.Sprint(i), math.Sqrt(r.Float64()))
	}
	for b.Loop() {
		boundedInterval(s.x, 10_000)
	}
}

func BenchmarkIntervalOf100GradedScores(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // cases, no secrets
	x := make([]float64, 100)
	for i := range x {
		x[i] = math.Sqrt(r.Float64())
	}
	for b.Loop() {
		boundedInterval(x, 100)
	}
}
