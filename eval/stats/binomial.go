package stats

import (
	"math"
	"sort"
)

// binomialCDF is the probability of at most k successes in n attempts.
func binomialCDF(k, n int, p float64) float64 {
	switch {
	case k < 0:
		return 0
	case k >= n:
		return 1
	}
	return incompleteBeta(float64(n-k), float64(k+1), 1-p)
}

// binomialMass is the probability of exactly k successes in n attempts, each as likely as not.
func binomialMass(k, n int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return math.Exp(a - b - c - float64(n)*math.Ln2)
}

// PointFails is how likely it is that fewer than the share least of n evaluations pass, if each
// passes with probability p: how often a gate on the share alone would fail.
func PointFails(n int, least, p float64) float64 {
	return binomialCDF(int(math.Ceil(least*float64(n)-1e-9))-1, n, p)
}

// IntervalFails is the same for a gate that fails when the whole interval is below least: when so
// few would pass with probability (1-level)/2 at most, if each did with probability least.
func IntervalFails(n int, least, p float64) float64 {
	fewest := sort.Search(n+1, func(passed int) bool { return binomialCDF(passed, n, least) >= (1-level)/2 })
	return binomialCDF(fewest-1, n, p)
}
