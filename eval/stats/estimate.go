// Package stats is the mathematics of decisions: estimates with intervals, clustered standard
// errors, components of variance, pass@k.
//
// It knows figures of evaluations, and the clusters that evaluations belong to. It must not know
// what an evaluation, an agent or a run is; package eval folds those into figures.
package stats

import "math"

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

// Len is the number of evaluations.
func (v *Sample) Len() int { return len(v.x) }

// mean is the mean and its clustered standard error (Miller 2024, appendix A, with the correction
// C/(C-1)), nil below two clusters.
func (v *Sample) mean() (mean float64, se *float64, clusters int) {
	n := float64(len(v.x))
	for _, x := range v.x {
		mean += x
	}
	mean /= n
	sums := make(map[string]float64, len(v.x))
	for i, x := range v.x {
		sums[v.clusters[i]] += x - mean
	}
	clusters = len(sums)
	if clusters < 2 {
		return mean, nil, clusters
	}
	// The evaluations are walked through, not the map, so that the sum is the same at every call.
	var squares float64
	for _, cluster := range v.clusters {
		if sum, ok := sums[cluster]; ok {
			squares += sum * sum
			delete(sums, cluster)
		}
	}
	c := float64(clusters)
	e := math.Sqrt(c/(c-1)*squares) / n
	return mean, &e, clusters
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
