// Package stats is the mathematics of decisions: estimates with intervals, clustered standard
// errors, components of variance, pass@k.
//
// It knows figures of evaluations, and the clusters that evaluations belong to. It must not know
// what an evaluation, an agent or a run is; package summary folds those into figures.
package stats

import (
	"math"
	"sort"
)

// Estimate describes one figure of each evaluation, such as its reduced score.
type Estimate struct {
	N int `json:"n"`
	// Clusters is how many groups of evaluations there are; N if no evaluation names its cluster.
	Clusters int      `json:"clusters"`
	Mean     *float64 `json:"mean"`
	// StandardError is the clustered standard error of the mean; nil below two clusters.
	StandardError *float64 `json:"standardError"`
	// Low and High bound the confidence interval of Level; nil if there is none.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
	// Interval names the method: gaffke, gaffke-effective or t. Documents of earlier versions have wilson
	// and wilson-effective, too.
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

// Mean is the mean; nil if there is nothing.
func (v *Sample) Mean() *float64 {
	if len(v.x) == 0 {
		return nil
	}
	mean, _, _ := v.mean()
	return &mean
}

// sums returns the sums of each cluster's x - from and the sizes of the clusters, in the order in
// which the clusters first came.
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

// mean returns the mean and its clustered standard error (Miller 2024, appendix A, with the
// correction C/(C-1)), nil below two clusters.
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

// Method is the method of intervals.
type Method string

// Bounded is the interval for means of values from 0 to 1, which needs to know nothing of them. It
// is the default, also if no method is named. Student is the interval of Student's t, which assumes
// that rare values far from the others would have been seen.
const (
	Bounded Method = "gaffke"
	Student Method = "t"
)

// boundedEffective is Bounded with an effective number of evaluations, as there are clusters.
const boundedEffective = "gaffke-effective"

// Estimate describes the sample. If all figures are 0 or 1, or equal, Student is not used: it would
// give an interval that is too narrow, or has no width.
func (v *Sample) Estimate(method Method) Estimate {
	e := Estimate{N: len(v.x)}
	if e.N == 0 {
		return e
	}
	mean, se, clusters := v.mean()
	e.Mean, e.StandardError, e.Clusters = &mean, se, clusters
	low, high := 0.0, 0.0
	if method == Student && se != nil && *se >= 1e-12 && !v.binary() {
		e.Interval = string(Student)
		half := studentQuantile(float64(clusters-1)) * *se
		low, high = max(0, mean-half), min(1, mean+half)
	} else {
		shape, ok := v.effective(1)
		if !ok {
			return e
		}
		if e.Interval = string(Bounded); clusters < e.N {
			e.Interval = boundedEffective
		}
		low, high = boundedInterval(v.x, shape)
		low, high = sixDigits(low), sixDigits(high)
	}
	e.Low, e.High, e.Level = &low, &high, level
	return e
}

// sixDigits rounds to the digits that are certain, so that the result is the same on every machine.
func sixDigits(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// effective returns the number of independent evaluations that times as many of the sample are
// worth (Korn and Graubard 1998). Clusters of unequal size count as fewer. For one cluster it is
// unknown.
func (v *Sample) effective(times float64) (n float64, ok bool) {
	size := float64(len(v.x))
	n = size * times
	mean, _, _ := v.mean()
	sums, sizes := v.sums(mean)
	if len(sums) == len(v.x) {
		return n, true
	}
	if len(sums) < 2 {
		return 0, false
	}
	var squares, between float64
	for i, sum := range sums {
		squares += float64(sizes[i] * sizes[i])
		between += sum * sum
	}
	clusters := times * size * size / squares
	var variance float64 // of one evaluation
	for _, x := range v.x {
		variance += (x - mean) * (x - mean) / (size - 1)
	}
	if variance < 1e-24 {
		return clusters, true
	}
	t := studentQuantile(max(clusters-1, 0.5))
	square := between / (size * size) / times * clusters / max(clusters-1, 0.5) // of the standard error
	return min(n, z*z/(t*t)*variance/max(square, 1e-300)), true
}

// Binary reports whether every figure is 0 or 1 and an evaluation of its own.
func (v *Sample) Binary() bool {
	_, _, clusters := v.mean()
	return clusters == len(v.x) && v.binary()
}

// Needed returns how many evaluations like these an interval would need to lie on one side of
// least; 0 if that is not known.
func (v *Sample) Needed(least float64, method Method) int {
	e := v.Estimate(method)
	if e.Low == nil || math.Abs(*e.Mean-least) < 1e-9 {
		return 0
	}
	if e.Interval == string(Student) {
		return neededByStudent(e, *e.Mean-least)
	}
	return v.neededAround(*e.Mean, *e.Mean-least)
}

// neededByStudent returns how many evaluations have an interval of Student's t of half the width
// distance.
func neededByStudent(e Estimate, distance float64) int {
	n := float64(e.N)
	square := *e.StandardError * *e.StandardError * n / (distance * distance)
	return fewest(func(count int) bool { // with more evaluations there are more clusters
		t := studentQuantile(max(1, float64(count)*float64(e.Clusters)/n-1))
		return t*t*square <= float64(count)+1e-9
	})
}

// ends returns the ends of the interval of times as many evaluations; 0 and 1 if nothing is known.
func (v *Sample) ends(times float64) (low, high float64) {
	shape, ok := v.effective(times)
	if !ok {
		return 0, 1
	}
	return boundedInterval(v.x, shape)
}

// fewest returns the least number that is enough, as all larger ones are, to half a percent; 0 if
// there is none that anybody could run.
func fewest(enough func(n int) bool) int {
	const most = 1 << 30
	n := 1
	for ; !enough(n); n *= 2 {
		if n >= most {
			return 0
		}
	}
	step := max(1, n/256)
	return n/2 + step*(1+sort.Search(n/2/step-1, func(i int) bool { return enough(n/2 + step*(1+i)) }))
}

func (v *Sample) binary() bool {
	for _, x := range v.x {
		if x != 0 && x != 1 {
			return false
		}
	}
	return true
}

// wilson returns the Wilson score interval of a share p of n, where quantile is that of the normal
// distribution or of Student's t.
func wilson(p, n, quantile float64) (low, high float64) {
	square := quantile * quantile
	center := (p + square/(2*n)) / (1 + square/n)
	half := quantile * math.Sqrt(p*(1-p)/n+square/(4*n*n)) / (1 + square/n)
	return max(0, center-half), min(1, center+half)
}

// Mean is the mean of numbers, of which there is at least one.
func Mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// neededAround returns how many evaluations like these have an interval that goes no further from
// their mean than distance: downwards, or if it is negative upwards.
func (v *Sample) neededAround(mean, distance float64) int {
	return fewest(func(n int) bool {
		low, high := v.ends(float64(n) / float64(len(v.x)))
		return distance > 0 && low >= mean-distance || distance < 0 && high <= mean-distance
	})
}
