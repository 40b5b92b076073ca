package stats

import (
	"math"
	"slices"
)

// Paired is one figure of the same evaluations on two sides, A and B.
type Paired struct {
	a, b []float64
	d    Sample
}

// Add adds an evaluation.
func (p *Paired) Add(cluster string, a, b float64) {
	p.a, p.b = append(p.a, a), append(p.b, b)
	p.d.Add(cluster, b-a)
}

// Equal reports whether both have the same pairs.
func (p *Paired) Equal(other *Paired) bool {
	return slices.Equal(p.a, other.a) && slices.Equal(p.b, other.b) && slices.Equal(p.d.clusters, other.d.clusters)
}

// Len is the number of pairs.
func (p *Paired) Len() int { return len(p.a) }

// Difference is what two sides differ by, B less A.
type Difference struct {
	N        int     `json:"n"`
	Clusters int     `json:"clusters"`
	MeanA    float64 `json:"meanA"`
	MeanB    float64 `json:"meanB"`
	Delta    float64 `json:"delta"`
	// Regressions counts the evaluations that are worse in B, Improvements those that are better.
	Regressions  int `json:"regressions"`
	Improvements int `json:"improvements"`
	// StandardError of Delta, clustered; nil below two clusters.
	StandardError *float64 `json:"standardError"`
	// DF are the degrees of freedom of the t test: clusters less one.
	DF int `json:"df"`
	// Low and High bound the 95 % confidence interval; nil if there is none. Interval names its
	// method: t, or bonett-price where every figure is 0 or 1.
	Low      *float64 `json:"low"`
	High     *float64 `json:"high"`
	Interval string   `json:"interval,omitempty"`
	// TP is the p-value of the paired t test; nil if nothing varies.
	TP *float64 `json:"tP"`
	// SignFlipP is the p-value that is shown, exact with ties and few evaluations.
	SignFlipP float64 `json:"signFlipP"`
	// McNemarExact and McNemarMidP are there where every figure is 0 or 1 and nothing is clustered.
	McNemarExact *float64 `json:"mcnemarExact,omitempty"`
	McNemarMidP  *float64 `json:"mcnemarMidP,omitempty"`
	// Correlation of the two sides; nil if one of them does not vary.
	Correlation *float64 `json:"correlation"`
	// Bootstrap is nil below two clusters.
	Bootstrap *Bootstrap `json:"bootstrap"`
	// MDE is the least difference that is found with probability Power.
	MDE   *float64 `json:"mde"`
	Power float64  `json:"power"`
}

// Settings say how differences are computed.
type Settings struct {
	// Power of the smallest detectable difference, such as 0.8.
	Power float64
	// Resamples of the bootstrap; 0 leaves it out. Seed is that of all random numbers.
	Resamples int
	Seed      uint64
}

// DefaultSettings are those of a comparison that says nothing else.
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
	out.Low, out.High, out.Interval = p.interval(delta, se, clusters)
	if p.binary() && clusters == p.Len() {
		exact, mid := mcnemar(out.Regressions, out.Improvements)
		out.McNemarExact, out.McNemarMidP = &exact, &mid
	}
	if se == nil {
		return out
	}
	out.TP = tTest(delta, *se, clusters)
	mde := (z + normalQuantile(o.Power)) * *se
	out.MDE = &mde
	if o.Resamples > 0 {
		out.Bootstrap = bootstrap(sums, sizes, o.Resamples, random(o.Seed))
	}
	return out
}

// Interval is the interval of the difference alone; ok is false if there is none.
func (p *Paired) Interval() (low, high float64, ok bool) {
	if p.Len() == 0 {
		return 0, 0, false
	}
	l, h, _ := p.interval(p.d.mean())
	if l == nil {
		return 0, 0, false
	}
	return *l, *h, true
}

// Mean is the mean difference.
func (p *Paired) Mean() float64 {
	mean, _, _ := p.d.mean()
	return mean
}

func (p *Paired) interval(delta float64, se *float64, clusters int) (low, high *float64, method string) {
	var l, h float64
	switch {
	case p.binary() && clusters == p.Len():
		regressions, improvements := 0, 0
		for _, d := range p.d.x {
			if d < 0 {
				regressions++
			} else if d > 0 {
				improvements++
			}
		}
		l, h = bonettPrice(regressions, improvements, p.Len())
		method = "bonett-price"
	case se == nil:
		return nil, nil, ""
	default:
		half := studentQuantile(float64(clusters-1)) * *se
		l, h = delta-half, delta+half
		method = "t"
	}
	return &l, &h, method
}

func (p *Paired) binary() bool {
	return (&Sample{x: p.a}).binary() && (&Sample{x: p.b}).binary()
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

// mcnemar are the exact p-value and the mid-p-value of so many changes for the worse and for the
// better.
func mcnemar(worse, better int) (exact, mid float64) {
	n, least := worse+better, min(worse, better)
	tail := 2 * binomialCDF(least, n, 0.5)
	if worse == better {
		return 1, 1
	}
	return min(1, tail), tail - binomialMass(least, n)
}

// bonettPrice is the interval of the difference of two paired shares (Bonett and Price 2012).
func bonettPrice(worse, better, n int) (low, high float64) {
	total := float64(n + 2)
	p12, p21 := float64(worse+1)/total, float64(better+1)/total
	d := p21 - p12
	half := z * math.Sqrt((p12+p21-d*d)/total)
	return max(-1, d-half), min(1, d+half)
}

// correlation is that of Pearson.
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

// Needed is how many evaluations would find a difference of distance with the power; nil if that is
// nothing, or if nothing is known of how much the evaluations vary.
func (d Difference) Needed(distance float64) *int {
	if d.StandardError == nil || *d.StandardError < 1e-12 || math.Abs(distance) < 1e-9 {
		return nil
	}
	ratio := *d.MDE / distance // the standard error falls with the root of the evaluations
	n := math.Ceil(ratio*ratio*float64(d.N) - 1e-9)
	if n > 1e9 {
		return nil
	}
	out := int(n)
	return &out
}
