// Package stats is the mathematics of decisions: estimates with intervals, clustered standard
// errors, components of variance, pass@k.
//
// It knows figures of evaluations, and the clusters that evaluations belong to. It must not know
// what an evaluation, an agent or a run is; package eval folds those into figures.
package stats

import (
	"math"
	"sort"
)

// z is the 0.975 quantile of the normal distribution.
const z = 1.959963984540054

// level is the confidence of the intervals.
const level = 0.95

// Estimate describes one figure of each evaluation, such as its reduced score.
type Estimate struct {
	N int `json:"n"`
	// Clusters is how many groups of evaluations there are; N if no evaluation names its cluster.
	Clusters int      `json:"clusters"`
	Mean     *float64 `json:"mean"`
	// StandardError of the mean, clustered; nil below two clusters.
	StandardError *float64 `json:"standardError"`
	// Low and High bound the confidence interval of Level; nil if there is none.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Interval names the method: wilson, wilson-effective or t.
	Interval string  `json:"interval,omitempty"`
	Level    float64 `json:"level,omitempty"`
}

// Sample is one figure of each evaluation, with the clusters of the evaluations.
type Sample struct {
	x        []float64
	clusters []string
}

// Add adds the figure of an evaluation. An evaluation without a cluster is one of its own, under a
// name that no other has.
func (v *Sample) Add(cluster string, x float64) {
	v.x, v.clusters = append(v.x, x), append(v.clusters, cluster)
}

// Join adds the figures of another sample.
func (v *Sample) Join(other Sample) {
	v.x, v.clusters = append(v.x, other.x...), append(v.clusters, other.clusters...)
}

// Len is the number of evaluations.
func (v *Sample) Len() int { return len(v.x) }

// sums are the sums of each cluster's x - from and the sizes of the clusters, in the order in which
// the clusters first came.
func (v *Sample) sums(from float64) (sums []float64, sizes []int) {
	index := make(map[string]int, len(v.x))
	for i, x := range v.x {
		at, ok := index[v.clusters[i]]
		if !ok {
			at = len(sums)
			index[v.clusters[i]] = at
			sums, sizes = append(sums, 0), append(sizes, 0)
		}
		sums[at] += x - from
		sizes[at]++
	}
	return sums, sizes
}

// mean is the mean and its clustered standard error (Miller 2024, appendix A, with the correction
// C/(C-1)), nil below two clusters.
func (v *Sample) mean() (mean float64, se *float64, clusters int) {
	n := float64(len(v.x))
	for _, x := range v.x {
		mean += x
	}
	mean /= n
	sums, _ := v.sums(mean)
	if len(sums) < 2 {
		return mean, nil, len(sums)
	}
	var squares float64
	for _, sum := range sums {
		squares += sum * sum
	}
	c := float64(len(sums))
	e := math.Sqrt(c/(c-1)*squares) / n
	return mean, &e, len(sums)
}

// Estimate describes the sample.
func (v *Sample) Estimate() Estimate {
	e := Estimate{N: len(v.x)}
	if e.N == 0 {
		return e
	}
	mean, se, clusters := v.mean()
	e.Mean, e.StandardError, e.Clusters = &mean, se, clusters
	low, high := 0.0, 0.0
	n, c := float64(e.N), float64(clusters)
	flat := v.binary() || se != nil && *se < 1e-12
	switch {
	case flat && clusters == e.N:
		e.Interval = "wilson"
		low, high = wilson(mean, n, z)
	case clusters < 2:
		return e
	case flat:
		e.Interval = "wilson-effective" // Korn and Graubard
		if *se >= 1e-12 {
			n = min(n, mean*(1-mean)/(*se**se))
		}
		low, high = wilson(mean, n, studentQuantile(c-1))
	default:
		e.Interval = "t"
		half := studentQuantile(c-1) * *se
		low, high = max(0, mean-half), min(1, mean+half)
	}
	e.Low, e.High, e.Level = &low, &high, level
	return e
}

// Binary reports whether every figure is 0 or 1 and an evaluation of its own.
func (v *Sample) Binary() bool {
	_, _, clusters := v.mean()
	return clusters == len(v.x) && v.binary()
}

// Needed is how many evaluations like these an interval would need to lie on one side of least; 0 if
// nothing can be said.
func (v *Sample) Needed(least float64) int {
	e := v.Estimate()
	if e.Mean == nil || e.Interval == "" || math.Abs(*e.Mean-least) < 1e-9 {
		return 0
	}
	variance := least * (1 - least) // of one evaluation, where the interval is Wilson's
	switch square := square(e.StandardError); {
	case e.Interval == "t":
		variance = square * float64(e.N)
	case e.Interval == "wilson-effective" && square >= 1e-24:
		variance *= max(1, float64(e.N)*square/(*e.Mean*(1-*e.Mean)))
	}
	distance := *e.Mean - least
	enough := func(n int) bool {
		quantile := z
		if e.Interval != "wilson" { // with more evaluations there are more clusters
			quantile = studentQuantile(max(1, float64(n)*float64(e.Clusters)/float64(e.N)-1))
		}
		return quantile*quantile*variance/(distance*distance) <= float64(n)+1e-9
	}
	const most = 1 << 30
	n := sort.Search(most, enough)
	if n == most {
		return 0
	}
	return n
}

func square(x *float64) float64 {
	if x == nil {
		return 0
	}
	return *x * *x
}

func (v *Sample) binary() bool {
	for _, x := range v.x {
		if x != 0 && x != 1 {
			return false
		}
	}
	return true
}

// wilson is the Wilson score interval of a share p of n, where quantile is that of the normal
// distribution or of Student's t.
func wilson(p, n, quantile float64) (low, high float64) {
	square := quantile * quantile
	center := (p + square/(2*n)) / (1 + square/n)
	half := quantile * math.Sqrt(p*(1-p)/n+square/(4*n*n)) / (1 + square/n)
	return max(0, center-half), min(1, center+half)
}
