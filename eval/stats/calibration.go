package stats

import (
	"math"
	"slices"
)

// Rated is a thing with the scores of a judge and of people, from 0 to 1.
type Rated struct {
	Judge, People float64
	// Cluster is the group that it belongs to; a group of its own has a name that no other has.
	Cluster string
}

// Confusion counts how things pass or fail, by the judge and by people.
type Confusion struct {
	TruePositives  int `json:"truePositives"`
	FalseNegatives int `json:"falseNegatives"`
	FalsePositives int `json:"falsePositives"`
	TrueNegatives  int `json:"trueNegatives"`
}

// Coefficient is a coefficient of agreement with its interval of 95 %: of bootstrap samples of the
// clusters, or if all of these agree, of the share that agrees. It has none with fewer than two
// clusters.
type Coefficient struct {
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// Calibration says how far a judge agrees with people.
type Calibration struct {
	Confusion Confusion `json:"confusion"`
	// Agreement is the share on which both agree whether it passes. Sensitivity is the share that
	// passes by the judge among those that pass by people, and Specificity the share that fails by the
	// judge among those that fail by people.
	Agreement   Estimate `json:"agreement"`
	Sensitivity Estimate `json:"sensitivity"`
	Specificity Estimate `json:"specificity"`
	// Kappa is Cohen's kappa of pass or fail. WeightedKappa, with squared weights, and Krippendorff's
	// Alpha are of the scores; if all scores are 0 or 1, WeightedKappa is Kappa.
	Kappa         Coefficient `json:"kappa"`
	WeightedKappa Coefficient `json:"weightedKappa"`
	Alpha         Coefficient `json:"alpha"`
	// Bias is how much higher the judge scores on average.
	Bias *float64 `json:"bias"`
}

// Calibrate compares a judge with people. A score of at least pass passes.
func Calibrate(rated []Rated, pass float64, s Settings) Calibration {
	var out Calibration
	var agreement, sensitivity, specificity Sample
	var scores, passes clustered
	bias := 0.0
	for _, r := range rated {
		judge, people := r.Judge >= pass-1e-9, r.People >= pass-1e-9
		switch {
		case judge && people:
			out.Confusion.TruePositives++
		case people:
			out.Confusion.FalseNegatives++
		case judge:
			out.Confusion.FalsePositives++
		default:
			out.Confusion.TrueNegatives++
		}
		agreement.Add(r.Cluster, share(judge == people))
		if people {
			sensitivity.Add(r.Cluster, share(judge))
		} else {
			specificity.Add(r.Cluster, share(!judge))
		}
		scores.add(r.Cluster, r.Judge, r.People)
		passes.add(r.Cluster, share(judge), share(people))
		bias += (r.Judge - r.People) / float64(len(rated))
	}
	out.Agreement, out.Sensitivity, out.Specificity =
		agreement.Estimate(Bounded), sensitivity.Estimate(Bounded), specificity.Estimate(Bounded)
	out.Kappa = passes.coefficient(moments.kappa, out.Agreement, s)
	out.WeightedKappa = scores.coefficient(moments.kappa, out.Agreement, s)
	out.Alpha = scores.coefficient(moments.alpha, out.Agreement, s)
	if len(rated) > 0 {
		out.Bias = &bias
	}
	return out
}

func share(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Corrected is the rate that passes after the judge's errors are taken out (Rogan and Gladen 1978).
type Corrected struct {
	// Observed is the share of N that passes by the judge.
	Observed float64 `json:"observed"`
	N        int     `json:"n"`
	Rate     float64 `json:"rate"`
	// StandardError has both uncertainties: that of the judge's errors and that of the observed share.
	StandardError float64 `json:"standardError"`
	Low           float64 `json:"low"`
	High          float64 `json:"high"`
}

// Correct corrects the share of n that passes by the judge. It is nil if the judge is hardly better
// than chance: if sensitivity and specificity add up to 1.05 or less.
func (c Calibration) Correct(observed float64, n int) *Corrected {
	if c.Sensitivity.Mean == nil || c.Specificity.Mean == nil || n == 0 {
		return nil
	}
	tpr, tnr := *c.Sensitivity.Mean, *c.Specificity.Mean
	j := tpr + tnr - 1
	if j <= 0.05+1e-12 {
		return nil
	}
	rate := min(1, max(0, (observed+tnr-1)/j))
	variance := observed*(1-observed)/float64(n) + rate*rate*tpr*(1-tpr)/float64(c.Sensitivity.N) +
		(1-rate)*(1-rate)*tnr*(1-tnr)/float64(c.Specificity.N)
	se := math.Sqrt(variance) / j
	return &Corrected{Observed: observed, N: n, Rate: rate, StandardError: se,
		Low: max(0, rate-z*se), High: min(1, rate+z*se)}
}

// moments are sums over pairs (a, b), which are enough for the coefficients.
type moments struct{ n, a, b, aa, bb, ab float64 }

func (m moments) plus(o moments) moments {
	return moments{m.n + o.n, m.a + o.a, m.b + o.b, m.aa + o.aa, m.bb + o.bb, m.ab + o.ab}
}

// chance is the squared distance of a and b if they had nothing to do with each other.
func (m moments) chance() float64 { return (m.aa+m.bb)/m.n - 2*(m.a/m.n)*(m.b/m.n) }

// kappa is kappa with squared weights: 1 less the squared distance of pairs, by that of chance.
func (m moments) kappa() (float64, bool) {
	if m.n == 0 {
		return 0, false
	}
	return 1 - (m.aa+m.bb-2*m.ab)/m.n/m.chance(), m.chance() > 1e-12
}

// alpha is Krippendorff's alpha with the distance of intervals.
func (m moments) alpha() (float64, bool) {
	values := 2 * m.n
	expected := 2 * (values*(m.aa+m.bb) - (m.a+m.b)*(m.a+m.b)) / (values * (values - 1))
	return 1 - (m.aa+m.bb-2*m.ab)/m.n/expected, m.n > 0 && expected > 1e-12
}

// clustered are the moments of each cluster.
type clustered struct {
	index map[string]int
	parts []moments
}

func (c *clustered) add(cluster string, a, b float64) {
	if c.index == nil {
		c.index = map[string]int{}
	}
	i, ok := c.index[cluster]
	if !ok {
		i = len(c.parts)
		c.index[cluster], c.parts = i, append(c.parts, moments{})
	}
	c.parts[i] = c.parts[i].plus(moments{1, a, b, a * a, b * b, a * b})
}

// coefficient returns one coefficient with its percentile interval over resampled clusters.
func (c *clustered) coefficient(of func(moments) (float64, bool), agreement Estimate, s Settings) (out Coefficient) {
	var all moments
	for _, part := range c.parts {
		all = all.plus(part)
	}
	value, ok := of(all)
	if !ok {
		return out
	}
	out.Value = &value
	if len(c.parts) < 2 || s.Resamples == 0 {
		return out
	}
	seed, n := random(s.Seed), len(c.parts)
	draws := make([]float64, s.Resamples)
	parallel(s.Resamples, func(from, to int) {
		for b := from; b < to; b++ {
			var sum moments
			for j := range n {
				sum = sum.plus(c.parts[below(seed.at(uint64(b*n+j)), n)]) //nolint:gosec // a positive number
			}
			drawn, ok := of(sum)
			if !ok {
				drawn = math.NaN() // all draws are the same: nothing can be said
			}
			draws[b] = drawn
		}
	})
	draws = slices.DeleteFunc(draws, math.IsNaN)
	if len(draws) < s.Resamples/2 {
		return out
	}
	slices.Sort(draws)
	low, high := quantile(draws, 0.025), quantile(draws, 0.975)
	if high-low < 1e-12 && agreement.Low != nil && value > 1-1e-12 { // raters who have always agreed need not go on so
		low = 1 - (1-*agreement.Low)/all.chance()
	}
	out.Low, out.High = &low, &high
	return out
}
