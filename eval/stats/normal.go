package stats

import (
	"math"
)

// normalQuantile is the quantile of the normal distribution.
func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// z is the 0.975 quantile of the normal distribution.
const z = 1.959963984540054

// level is the confidence of the intervals.
const level = 0.95
