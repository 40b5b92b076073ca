package stats

import (
	"math"
	"slices"
	"sort"
)

// Paired is one figure of the same evaluations on two sides, A and B.
type Paired struct {
	// Unbounded says that the figures are no scores from 0 to 1, but tokens or costs.
	Unbounded bool
	a, b      []float64
	d         Sample
}

// Add adds an evaluation.
func (p *Paired) Add(cluster string, a, b float64) {
	p.a, p.b = append(p.a, a), append(p.b, b)
	p.d.Add(cluster, b-a)
}

// Equal reports whether both have the same pairs.
func (p *Paired) Equal(other *Paired) bool {
	return p.Unbounded == other.Unbounded && slices.Equal(p.a, other.a) &&
		slices.Equal(p.b, other.b) && slices.Equal(p.d.clusters, other.d.clusters)
}

// Len is the number of pairs.
func (p *Paired) Len() int { return len(p.a) }

// Difference is the difference of two sides, B less A.
type Difference struct {
	N        int     `json:"n"`
	Clusters int     `json:"clusters"`
	MeanA    float64 `json:"meanA"`
	MeanB    float64 `json:"meanB"`
	Delta    float64 `json:"delta"`
	// Regressions counts the evaluations that are worse in B, Improvements those that are better.
	Regressions  int `json:"regressions"`
	Improvements int `json:"improvements"`
	// StandardError is the clustered standard error of Delta; nil below two clusters.
	StandardError *float64 `json:"standardError"`
	// DF are the degrees of freedom of the t test: clusters less one.
	DF int `json:"df"`
	// Low and High bound the 95 % confidence interval; nil if there is none. Interval names its
	// method: gaffke or t, or if every score is 0 or 1 bonett-price, with clusters gaffke-effective or
	// bonett-price-clustered. For tokens and costs it is always t.
	Low      *float64 `json:"low"`
	High     *float64 `json:"high"`
	Interval string   `json:"interval,omitempty"`
	// TP is the p-value of the paired t test; nil if nothing varies.
	TP *float64 `json:"tP"`
	// SignFlipP is the p-value that is shown, exact with ties and few evaluations.
	SignFlipP float64 `json:"signFlipP"`
	// McNemarExact and McNemarMidP are set if every figure is 0 or 1 and nothing is clustered.
	McNemarExact *float64 `json:"mcnemarExact,omitempty"`
	McNemarMidP  *float64 `json:"mcnemarMidP,omitempty"`
	// Correlation is the correlation of the two sides; nil if one of them does not vary.
	Correlation *float64 `json:"correlation"`
	// Bootstrap is nil below two clusters.
	Bootstrap *Bootstrap `json:"bootstrap"`
	// MDE is the least difference that is found with probability Power; nil if nothing varies, or if
	// even the largest difference that there can be is found more rarely.
	MDE   *float64 `json:"mde"`
	Power float64  `json:"power"`
}

// Settings say how differences are computed.
type Settings struct {
	// Power is the power of the smallest detectable difference, such as 0.8.
	Power float64
	// Resamples is the number of resamples of the bootstrap; 0 leaves it out. Seed is the seed of all
	// random numbers.
	Resamples int
	Seed      uint64
	// Interval is the method for scores that are not all 0 or 1.
	Interval Method
}

// DefaultSettings are the settings of a comparison that has no others.
var DefaultSettings = Settings{Power: 0.8, Resamples: 10_000, Seed: 1}

// Difference compares the sides. There must be a pair.
func (p *Paired) Difference(o Settings) Difference {
	n := float64(p.Len())
	delta, se, clusters := p.d.mean()
	out := Difference{N: p.Len(), Clusters: clusters, Delta: delta, StandardError: se, DF: clusters - 1, Power: o.Power}
	for i := range p.a {
		out.MeanA, out.MeanB = out.MeanA+p.a[i]/n, out.MeanB+p.b[i]/n
		switch d := p.d.x[i]; {
		case d < 0:
			out.Regressions++
		case d > 0:
			out.Improvements++
		}
	}
	out.Correlation = correlation(p.a, out.MeanA, p.b, out.MeanB)
	sums, sizes := p.d.sums(0)
	out.SignFlipP = signFlip(sums, random(o.Seed), signFlipDraws)
	out.Low, out.High, out.Interval = p.interval(o.Interval)
	if p.binary() && clusters == p.Len() {
		exact, mid := mcnemar(out.Regressions, out.Improvements)
		out.McNemarExact, out.McNemarMidP = &exact, &mid
	}
	if se == nil {
		return out
	}
	out.TP = tTest(delta, *se, clusters)
	if mde := (z + normalQuantile(o.Power)) * *se; p.Unbounded || *se >= negligible && mde <= 1 {
		out.MDE = &mde
	}
	if o.Resamples > 0 {
		out.Bootstrap = bootstrap(sums, sizes, o.Resamples, random(o.Seed))
	}
	return out
}

// Interval is the interval of the difference alone; nil if there is none.
func (p *Paired) Interval(method Method) (low, high *float64) {
	if p.Len() == 0 {
		return nil, nil
	}
	low, high, _ = p.interval(method)
	return low, high
}

// Mean is the mean difference.
func (p *Paired) Mean() float64 {
	mean, _, _ := p.d.mean()
	return mean
}

// negligible is a standard error that is no more than rounding: nothing varies.
const negligible = 1e-9

func (p *Paired) interval(method Method) (low, high *float64, name string) {
	var l, h float64
	delta, se, clusters := p.d.mean()
	switch {
	case p.Unbounded && se == nil || clusters < min(2, p.Len()):
		return nil, nil, ""
	case p.Unbounded:
		name = string(Student)
		half := studentQuantile(float64(clusters-1)) * *se
		l, h = delta-half, delta+half
	case p.binary() && clusters == p.Len():
		name = "bonett-price"
		l, h = p.bonettPrice(z)
	case p.binary():
		name = "bonett-price-clustered"
		l, h = p.bonettPrice(studentQuantile(float64(clusters - 1)))
	default:
		e := p.scaled().Estimate(method)
		name = e.Interval
		l, h = sixDigits(2**e.Low-1), sixDigits(2**e.High-1)
	}
	return &l, &h, name
}

// scaled returns the differences, from -1 to 1, as values from 0 to 1.
func (p *Paired) scaled() *Sample {
	s := &Sample{clusters: p.d.clusters, x: make([]float64, p.Len())}
	for i, d := range p.d.x {
		s.x[i] = (d + 1) / 2
	}
	return s
}

// binary reports whether every figure is a score of 0 or 1.
func (p *Paired) binary() bool {
	return !p.Unbounded && (&Sample{x: p.a}).binary() && (&Sample{x: p.b}).binary()
}

// Varies reports whether the pairs do not all have the same difference. One pair alone does not
// tell.
func (d Difference) Varies() bool { return d.StandardError != nil && *d.StandardError >= negligible }

// bonettPrice returns the interval of Bonett and Price (2012) of the difference of two paired
// shares: that of the mean difference of the pairs and two more, one that became worse and one that
// became better. It has a width even if no pair differs. With clusters each of them is one
// observation, and the two more are clusters of mean size.
func (p *Paired) bonettPrice(quantile float64) (low, high float64) {
	sums, sizes := p.d.sums(0)
	n, size := float64(len(sums)+2), float64(p.Len())/float64(len(sums))
	var d float64
	for _, sum := range sums {
		d += sum / size / n
	}
	squares := (-1-d)*(-1-d) + (1-d)*(1-d)
	for i, sum := range sums {
		e := (sum - float64(sizes[i])*d) / size
		squares += e * e
	}
	half := quantile * math.Sqrt(squares) / n
	return max(-1, d-half), min(1, d+half)
}

// tTest is the p-value of a mean difference; nil if nothing varies but the mean is not 0.
func tTest(delta, se float64, clusters int) *float64 {
	p := 1.0
	switch {
	case se >= 1e-12:
		p = studentP(delta/se, float64(clusters-1))
	case math.Abs(delta) >= 1e-12:
		return nil
	}
	return &p
}

// mcnemar returns the exact p-value and the mid-p-value for counts of changes for the worse and for
// the better.
func mcnemar(worse, better int) (exact, mid float64) {
	n, least := worse+better, min(worse, better)
	tail := 2 * binomialCDF(least, n, 0.5)
	if worse == better {
		return 1, 1
	}
	return min(1, tail), tail - binomialMass(least, n)
}

// correlation is Pearson's correlation.
func correlation(a []float64, meanA float64, b []float64, meanB float64) *float64 {
	var ab, aa, bb float64
	for i := range a {
		x, y := a[i]-meanA, b[i]-meanB
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	if aa < 1e-12 || bb < 1e-12 {
		return nil
	}
	r := ab / math.Sqrt(aa*bb)
	return &r
}

// Needed returns how many pairs like these, of which d is the difference, would find a difference
// of distance with the power, and have an interval that goes no further to that side; nil if
// distance is nothing, or if it is not known how much the pairs vary.
func (p *Paired) Needed(d Difference, distance float64) *int {
	if d.StandardError == nil || math.Abs(distance) < negligible {
		return nil
	}
	n := 0.0
	if d.Varies() { // the standard error falls with the root of the pairs
		ratio := (z + normalQuantile(d.Power)) * *d.StandardError / distance
		n = math.Ceil(ratio*ratio*float64(d.N) - 1e-9)
	}
	switch d.Interval {
	case string(Bounded), boundedEffective:
		wide := p.scaled().neededAround((d.Delta+1)/2, distance/2)
		if wide == 0 {
			return nil
		}
		n = max(n, float64(wide))
	case string(Student):
	default:
		if !d.Varies() && math.Abs(d.Delta) < negligible {
			n = math.Ceil(float64(d.neededClusters(math.Abs(distance))) * float64(d.N) / float64(d.Clusters))
		}
	}
	if n == 0 || n > 1e9 {
		return nil
	}
	out := int(n)
	return &out
}

// neededClusters returns how many clusters that do not differ have an interval that goes no further
// than distance.
func (d Difference) neededClusters(distance float64) int {
	return 2 + sort.Search(1<<30, func(n int) bool {
		n += 2
		quantile := z
		if d.Interval != "bonett-price" {
			quantile = studentQuantile(float64(n - 1))
		}
		return quantile*math.Sqrt2/float64(n+2) <= distance
	})
}
