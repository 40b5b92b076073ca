package eval

import "math"

// Estimate describes the reduced scores of evaluations.
type Estimate struct {
	N    int      `json:"n"`
	Mean *float64 `json:"mean"`
	// StandardError of the mean; nil below two evaluations. Epochs of one evaluation are reduced first, so that it is
	// clustered by evaluation.
	StandardError *float64 `json:"standardError"`
	Min           *float64 `json:"min"`
	Max           *float64 `json:"max"`
	// Passed evaluations have a reduced score of at least Thresholds.Pass. PassRateLow and PassRateHigh bound the 95 %
	// Wilson interval.
	Passed       int      `json:"passed"`
	PassRate     *float64 `json:"passRate"`
	PassRateLow  *float64 `json:"passRateLow"`
	PassRateHigh *float64 `json:"passRateHigh"`
}

// moments are a running mean and variance (Welford), with bounds and the number of passes.
type moments struct {
	n, passed         int
	mean, m2          float64
	smallest, largest float64
}

func (m *moments) add(x, pass float64) {
	m.n++
	if m.n == 1 {
		m.smallest, m.largest = x, x
	}
	m.smallest, m.largest = min(m.smallest, x), max(m.largest, x)
	d := x - m.mean
	m.mean += d / float64(m.n)
	m.m2 += d * (x - m.mean)
	if passes(x, pass) {
		m.passed++
	}
}

func (m *moments) estimate() Estimate {
	e := Estimate{N: m.n, Passed: m.passed}
	if m.n == 0 {
		return e
	}
	rate := float64(m.passed) / float64(m.n)
	low, high := wilson(m.passed, m.n)
	mean, smallest, largest := m.mean, m.smallest, m.largest
	e.Mean, e.Min, e.Max, e.PassRate, e.PassRateLow, e.PassRateHigh = &mean, &smallest, &largest, &rate, &low, &high
	if m.n > 1 {
		se := math.Sqrt(m.m2 / float64(m.n-1) / float64(m.n))
		e.StandardError = &se
	}
	return e
}

// wilson is the 95 % Wilson score interval of a share.
func wilson(passed, n int) (low, high float64) {
	const z = 1.959963984540054
	total := float64(n)
	p := float64(passed) / total
	center := (p + z*z/(2*total)) / (1 + z*z/total)
	half := z * math.Sqrt(p*(1-p)/total+z*z/(4*total*total)) / (1 + z*z/total)
	return max(0, center-half), min(1, center+half)
}

// choices is C(c,k)/C(n,k), as a product of ratios so that no factor overflows.
func choices(c, n, k int) float64 {
	p := 1.0
	for i := range k {
		if c <= i {
			return 0
		}
		p *= float64(c-i) / float64(n-i)
	}
	return p
}
