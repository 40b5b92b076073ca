package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// twice are evaluations, each a cluster, with the same two figures for each of several agents.
func twice(agents int, pairs ...[2]float64) *Paired {
	var p Paired
	for i, one := range pairs {
		for range agents {
			p.Add(fmt.Sprint(i), one[0], one[1])
		}
	}
	return &p
}

// same is n times one pair.
func same(n int, a, b float64) (out [][2]float64) {
	for range n {
		out = append(out, [2]float64{a, b})
	}
	return out
}

func TestIntervalsOfScoresLieWithinWhatIsPossible(t *testing.T) {
	for name, p := range map[string]*Paired{
		"verdicts of two evaluations": twice(2, [2]float64{0, 1}, [2]float64{0, 0}),
		"scores of two evaluations":   twice(2, [2]float64{0.5, 1}, [2]float64{0.75, 0.5}),
		"scores of one agent":         twice(1, [2]float64{0.1, 1}, [2]float64{0.9, 0.8}, [2]float64{0.3, 0.3}),
		"verdicts of one agent":       twice(1, [2]float64{0, 1}, [2]float64{0, 1}),
	} {
		d := p.Difference(DefaultSettings)
		if d.Low == nil || *d.Low < -1 || *d.High > 1 || *d.Low >= *d.High {
			t.Errorf("%s: got %+v", name, d)
		}
		if d.MDE != nil && *d.MDE > 1 {
			t.Errorf("%s: a difference of %v cannot be", name, *d.MDE)
		}
	}
	d := twice(1, [2]float64{100, 9000}, [2]float64{100, 50}).unbounded().Difference(DefaultSettings)
	if *d.Low > -10_000 || *d.High < 10_000 || *d.MDE < 1000 {
		t.Errorf("tokens have no bounds: got %+v", d)
	}
}

func (p *Paired) ends(t *testing.T) (low, high float64) {
	t.Helper()
	l, h := p.Interval(Bounded)
	if l == nil {
		t.Fatalf("no interval: %+v", p)
	}
	return *l, *h
}

func (p *Paired) unbounded() *Paired {
	p.Unbounded = true
	return p
}

// Where nothing varies, little is known of how much it does. V4: scores that do not differ had the
// interval [0, 0].
func TestIntervalsWhereNothingVaries(t *testing.T) {
	// z·√2/(n+2), of which z is Student's t where there are clusters
	const of17, of17Clusters = 0.145884613, 0.157789412
	ofScores := 1 - math.Pow(0.025, 1.0/17) // the quantile of a beta distribution
	for _, c := range []struct {
		name   string
		p      *Paired
		method string
		half   float64
	}{
		{"verdicts of one agent", twice(1, same(17, 0, 0)...), "bonett-price", of17},
		{"verdicts of two agents", twice(2, same(17, 0, 0)...), "bonett-price-clustered", of17Clusters},
		{"verdicts of nine agents", twice(9, same(17, 1, 1)...), "bonett-price-clustered", of17Clusters},
		{"scores of one agent", twice(1, same(17, 0.3, 0.3)...), "gaffke", ofScores},
		{"scores of two agents", twice(2, same(17, 0.3, 0.3)...), "gaffke-effective", ofScores},
	} {
		d := c.p.Difference(DefaultSettings)
		if d.Interval != c.method || d.MDE != nil {
			t.Errorf("%s: got %+v", c.name, d)
		}
		near(t, c.name+", low", *d.Low, -c.half)
		near(t, c.name+", high", *d.High, c.half)
	}

	tokens := twice(1, same(3, 0, 1)...).unbounded().Difference(DefaultSettings)
	if tokens.Interval != "t" || *tokens.Low != 1 || *tokens.High != 1 || tokens.McNemarExact != nil {
		t.Errorf("tokens are no verdicts: got %+v", tokens)
	}
}

// Several agents that do the same are no more evaluations: their interval is a little wider than
// that of one, because of Student's t, and one that became worse makes it no narrower.
func TestClusteredVerdicts(t *testing.T) {
	pairs := append(same(16, 1, 1), [2]float64{1, 0})
	low, high := twice(1, pairs...).ends(t)
	lowOfTwo, highOfTwo := twice(2, pairs...).ends(t)
	if lowOfTwo > low || highOfTwo < high || highOfTwo-lowOfTwo > 1.1*(high-low) {
		t.Errorf("one agent [%v, %v], two that do the same [%v, %v]", low, high, lowOfTwo, highOfTwo)
	}
	equal, _ := twice(2, same(17, 1, 1)...).ends(t)
	if lowOfTwo >= equal {
		t.Errorf("the interval begins at %v if one became worse, at %v if none", lowOfTwo, equal)
	}
	if low, _ := twice(2, [2]float64{0, 1}).Interval(Bounded); low != nil {
		t.Error("one cluster has no interval")
	}
}

// The interval of verdicts in clusters must hold the true difference in 95 % of comparisons, however
// few the evaluations, however rare the changes, and whether agents are alike or not. 0.94 allows
// for chance: two standard errors of 2,000 comparisons.
func TestClusteredVerdictsAreCovered(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	const comparisons = 2000
	r := rand.New(rand.NewPCG(11, 12)) //nolint:gosec // cases, no secrets
	for _, evaluations := range []int{2, 5, 17, 40} {
		for _, alike := range []float64{0, 0.7, 1} {
			for _, p := range [][2]float64{{0.02, 0.02}, {0.1, 0}, {0.3, 0.1}} {
				covered := 0
				for range comparisons {
					var pairs Paired
					for i := range evaluations {
						shared := r.Float64()
						for range 2 {
							x := r.Float64()
							if r.Float64() < alike {
								x = shared
							}
							a, b := 1.0, 1.0
							if x < p[0] {
								b = 0
							} else if x > 1-p[1] {
								a = 0
							}
							pairs.Add(fmt.Sprint(i), a, b)
						}
					}
					if low, high := pairs.ends(t); low <= p[1]-p[0] && p[1]-p[0] <= high {
						covered++
					}
				}
				if covered < comparisons*94/100 {
					t.Errorf("%d evaluations, alike %v, worse and better %v: %d of %d", evaluations, alike, p, covered, comparisons)
				}
			}
		}
	}
}

func TestHowManyWouldDecideWhereNothingDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		p        *Paired
		distance float64
		want     int // pairs
	}{
		"one agent":  {twice(1, same(17, 1, 1)...), 0.01, 276},
		"two agents": {twice(2, same(17, 1, 1)...), 0.05, 2 * 55},
	} {
		got := c.p.Needed(c.p.Difference(DefaultSettings), c.distance)
		if got == nil || *got != c.want {
			t.Errorf("%s: got %v, want %d", name, got, c.want)
			continue
		}
		agents := c.p.Len() / 17
		for n, decided := range map[int]bool{c.want / agents: true, c.want/agents - 1: false} {
			if low, _ := twice(agents, same(n, 1, 1)...).ends(t); low >= -c.distance != decided {
				t.Errorf("%s: the interval of %d begins at %v", name, n, low)
			}
		}
	}
	better := twice(1, same(5, 0, 1)...)
	if got := better.Needed(better.Difference(DefaultSettings), 0.5); got != nil {
		t.Errorf("all became better: got %d", *got)
	}
}

// V4: nine pairs of 1 and one of 0.5 that do not differ decide no more than ten of 1 do, and these are
// the vectors of a million draws.
func TestVectorsOfBoundedDifferences(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		name      string
		p         *Paired
		low, high float64
	}{
		{"two that are equal", twice(1, same(2, 0.9, 0.9)...), -0.841, 0.842},
		{"ten that are equal", twice(1, append(same(9, 1, 1), [2]float64{0.5, 0.5})...), -0.308, 0.309},
		{"nine that are equal, one that lost half", twice(1, append(same(9, 1, 1), [2]float64{1, 0.5})...), -0.355, 0.279},
	} {
		low, high := v.p.ends(t)
		if math.Abs(low-v.low) > 0.001 || math.Abs(high-v.high) > 0.001 {
			t.Errorf("%s: got %.4f, %.4f, want %v, %v", v.name, low, high, v.low, v.high)
		}
	}
}
