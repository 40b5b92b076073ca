package stats

import (
	"math"
	"sort"
)

// studentQuantile is the 0.975 quantile of Student's t with df degrees of freedom, by bisection.
func studentQuantile(df float64) float64 {
	low, high := 0.0, 20.0
	for studentCDF(high, df) < 0.975 {
		low, high = high, 2*high
	}
	for range 200 {
		middle := (low + high) / 2
		if middle == low || middle == high {
			break
		}
		if studentCDF(middle, df) < 0.975 {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}

// studentCDF is the distribution function of Student's t for t >= 0.
func studentCDF(t, df float64) float64 {
	return 1 - incompleteBeta(df/2, 0.5, df/(df+t*t))/2
}

// studentP is the two-sided p-value of t.
func studentP(t, df float64) float64 { return incompleteBeta(df/2, 0.5, df/(df+t*t)) }

// incompleteBeta is the regularised incomplete beta function I_x(a, b).
func incompleteBeta(a, b, x float64) float64 {
	if x <= 0 {
		return 0
	}
	if x >= 1 {
		return 1
	}
	if x > (a+1)/(a+b+2) { // the continued fraction converges faster on the other side
		return 1 - incompleteBeta(b, a, 1-x)
	}
	logAB, _ := math.Lgamma(a + b)
	logA, _ := math.Lgamma(a)
	logB, _ := math.Lgamma(b)
	front := math.Exp(logAB - logA - logB + a*math.Log(x) + b*math.Log1p(-x))
	return front * betaFraction(a, b, x) / a
}

// betaFraction is the continued fraction of the incomplete beta function by Lentz's method.
func betaFraction(a, b, x float64) float64 {
	const tiny, enough = 1e-300, 1e-15
	away := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/away(1-(a+b)*x/(a+1))
	fraction := d
	for m := 1.0; m < 10_000; m++ {
		even := m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m))
		d = 1 / away(1+even*d)
		c = away(1 + even/c)
		fraction *= d * c
		odd := -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1))
		d = 1 / away(1+odd*d)
		c = away(1 + odd/c)
		fraction *= d * c
		if math.Abs(d*c-1) < enough {
			break
		}
	}
	return fraction
}

// normalQuantile is the quantile of the normal distribution.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// z is the 0.975 quantile of the normal distribution.
const z = 1.959963984540054

// level is the confidence of the intervals.
const level = 0.95

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
