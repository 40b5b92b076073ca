package stats

import "math"

// normalQuantile is the quantile of the normal distribution.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

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

// IntervalFails is the same for a gate that fails when the whole Wilson interval is below least.
func IntervalFails(n int, least, p float64) float64 {
	low, high := 0, n+1 // the least count that does not fail
	for low < high {
		middle := (low + high) / 2
		if _, top := wilson(float64(middle)/float64(n), float64(n), z); top < least-1e-9 {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return binomialCDF(low-1, n, p)
}

// Needed is how many evaluations the lower end of the interval needs to reach least when every one
// of them passes, and whether any number is enough. Below two clusters nothing is known of them.
func Needed(least float64, evaluations, clusters int) (n int, possible bool) {
	if least >= 1 {
		return 0, false
	}
	quantile := z
	if clusters < evaluations && clusters > 1 {
		quantile = studentQuantile(float64(clusters - 1))
	}
	return int(math.Ceil(quantile*quantile*least/(1-least) - 1e-9)), true
}
