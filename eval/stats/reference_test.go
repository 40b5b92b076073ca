package stats

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// The reference says the same as the package in the slowest and plainest way: sums over all pairs,
// over all signs and over all choices, integrals in small steps, roots by bisection, and exact
// fractions.

type referenceCase struct {
	x        []float64
	clusters []string
}

func (c referenceCase) mean() float64 {
	total := 0.0
	for _, x := range c.x {
		total += x
	}
	return total / float64(len(c.x))
}

func (c referenceCase) countClusters() int {
	seen := map[string]bool{}
	for _, cluster := range c.clusters {
		seen[cluster] = true
	}
	return len(seen)
}

// standardError sums over all pairs of evaluations of one cluster.
func (c referenceCase) standardError() float64 {
	m, n, k := c.mean(), float64(len(c.x)), float64(c.countClusters())
	total := 0.0
	for i := range c.x {
		for j := range c.x {
			if c.clusters[i] == c.clusters[j] {
				total += (c.x[i] - m) * (c.x[j] - m)
			}
		}
	}
	return math.Sqrt(max(0, total)*k/(k-1)) / n
}

// root finds where a function that rises from below 0 is 0, up to high.
func root(high float64, f func(float64) float64) float64 {
	low := 0.0
	for range 60 {
		if middle := (low + high) / 2; f(middle) < 0 {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// studentTail integrates the density of Student's t beyond t on both sides, by Simpson's rule over u,
// where t is √df·sinh(u).
func studentTail(t, df float64) float64 {
	integral := func(from, to float64) float64 {
		const steps = 600
		h, sum := (to-from)/steps, 0.0
		for i := range steps + 1 {
			weight := 2.0
			switch {
			case i == 0 || i == steps:
				weight = 1
			case i%2 == 1:
				weight = 4
			}
			sum += weight * math.Pow(math.Cosh(from+float64(i)*h), -df)
		}
		return sum * h / 3
	}
	from := math.Asinh(math.Abs(t) / math.Sqrt(df))
	return integral(from, from+40/df) / integral(0, 40/df)
}

// effective is how many evaluations count, by the formula with sums over all pairs; ok is false where
// that is not known.
func (c referenceCase) effective() (n float64, method string) {
	m, size, clusters := c.mean(), float64(len(c.x)), c.countClusters()
	if clusters == len(c.x) {
		return size, "gaffke"
	}
	if clusters < 2 {
		return 0, ""
	}
	var pairs, between, variance float64
	for i := range c.x {
		variance += (c.x[i] - m) * (c.x[i] - m) / (size - 1)
		for j := range c.x {
			if c.clusters[i] == c.clusters[j] {
				pairs++
				between += (c.x[i] - m) * (c.x[j] - m)
			}
		}
	}
	equal := size * size / pairs
	if variance < 1e-12 {
		return equal, "gaffke-effective"
	}
	df := math.Max(equal-1, 0.5)
	quantile := root(1e3, func(t float64) float64 { return 0.05 - studentTail(t, df) })
	square := math.Max(between, 0) / size / size * equal / df
	ratio := 1.959963984540054 / quantile
	return math.Min(size, ratio*ratio*variance/math.Max(square, 1e-12)), "gaffke-effective"
}

// gamma draws by Marsaglia and Tsang.
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(r.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	for {
		x := r.NormFloat64()
		v := 1 + x/math.Sqrt(9*d)
		if v = v * v * v; v > 0 && math.Log(1-r.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// checkEnds draws the weights: 2.5 % of the means with a 1 more are above the upper end, and of those
// with a 0 more below the lower one.
func (c referenceCase) checkEnds(t *testing.T, r *rand.Rand, what string, shape, low, high float64) {
	t.Helper()
	if r.IntN(4) > 0 {
		return // it takes long
	}
	const draws = 8_000
	above, below := 0.0, 0.0
	for range draws {
		var sum, weights float64
		for _, x := range c.x {
			g := gamma(r, shape/float64(len(c.x)))
			sum, weights = sum+g*x, weights+g
		}
		more := r.ExpFloat64()
		if (sum+more)/(weights+more) > high {
			above++
		}
		if sum/(weights+more) < low {
			below++
		}
	}
	const enough = 5 * 0.00175 // standard errors of a share of 2.5 %
	if high < 1-1e-6 && math.Abs(above/draws-0.025) > enough {
		t.Errorf("%s: %v of the means are above %v: %+v", what, above/draws, high, c)
	}
	if low > 1e-6 && math.Abs(below/draws-0.025) > enough {
		t.Errorf("%s: %v of the means are below %v: %+v", what, below/draws, low, c)
	}
}

// signFlipP goes through every choice of signs, one evaluation after the other.
func signFlipP(sums []float64) float64 {
	observed, size := 0.0, 0.0
	for _, s := range sums {
		observed += s
		size += math.Abs(s)
	}
	var count func(i int, sum float64) (hits, all int)
	count = func(i int, sum float64) (hits, all int) {
		if i == len(sums) {
			if math.Abs(sum) >= math.Abs(observed)-1e-9*size {
				return 1, 1
			}
			return 0, 1
		}
		h1, a1 := count(i+1, sum+sums[i])
		h2, a2 := count(i+1, sum-sums[i])
		return h1 + h2, a1 + a2
	}
	hits, all := count(0, 0)
	return float64(hits) / float64(all)
}

// choices counts the choices of k of n attempts, of which the first ones passed: how many hold at
// least one that passed, how many none that did not, and all.
func choices(n, passed, k int) (some, every, all int) {
	for set := range 1 << n {
		size, good := 0, 0
		for i := range n {
			if set>>i&1 == 1 {
				size++
				if i < passed {
					good++
				}
			}
		}
		if size != k {
			continue
		}
		all++
		if good > 0 {
			some++
		}
		if good == k {
			every++
		}
	}
	return some, every, all
}

// exactly is the probability of k of n, as a fraction.
func exactly(k, n int64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).Binomial(n, k), new(big.Int).Lsh(big.NewInt(1), uint(n))) //nolint:gosec // small
}

func float(r *big.Rat) float64 {
	f, _ := r.Float64()
	return f
}

// randomCase has scores that are 0 or 1, or quarters, or anything, alone or in clusters.
func randomCase(r *rand.Rand, most int) referenceCase {
	var c referenceCase
	kind, clustered := r.IntN(3), r.IntN(2) == 0
	groups := 1 + r.IntN(6)
	for i := range 1 + r.IntN(most) {
		x := r.Float64()
		switch kind {
		case 0:
			x = math.Round(x)
		case 1:
			x = math.Round(4*x) / 4
		}
		cluster := "alone " + strconv.Itoa(i)
		if clustered {
			cluster = strconv.Itoa(r.IntN(groups))
		}
		c.x, c.clusters = append(c.x, x), append(c.clusters, cluster)
	}
	return c
}

func TestEstimatesAreThoseOfTheReference(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // cases, no secrets
	for n := range 200 {
		c := randomCase(r, 30)
		var s Sample
		for i := range c.x {
			s.Add(c.clusters[i], c.x[i])
		}
		got := s.Estimate(Bounded)
		near(t, fmt.Sprint(n, " mean"), *got.Mean, c.mean())
		if (got.StandardError == nil) != (c.countClusters() < 2) {
			t.Fatalf("case %d: %+v", n, got)
		}
		if got.StandardError != nil {
			near(t, fmt.Sprint(n, " standard error"), *got.StandardError, c.standardError())
		}
		shape, method := c.effective()
		if got.Interval != method {
			t.Fatalf("case %d: interval %q, want %q: %+v", n, got.Interval, method, c)
		}
		if method != "" {
			c.checkEnds(t, r, fmt.Sprint(n, " ", method), shape, *got.Low, *got.High)
		}
		if got := s.Estimate(Student); got.Interval == "t" {
			half := root(1e4, func(t float64) float64 { return 0.05 - studentTail(t, float64(c.countClusters()-1)) }) * c.standardError()
			near(t, fmt.Sprint(n, " low of t"), *got.Low, math.Max(0, c.mean()-half))
			near(t, fmt.Sprint(n, " high of t"), *got.High, math.Min(1, c.mean()+half))
		}
	}
}

func TestDifferencesAreThoseOfTheReference(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // cases, no secrets
	for n := range 200 {
		c := randomCase(r, 14)
		var p Paired
		var d referenceCase
		sums := map[string]float64{}
		worse, better, binary := int64(0), int64(0), true
		for i, a := range c.x {
			b := c.x[r.IntN(len(c.x))]
			if n%8 == 0 {
				b = a
			}
			p.Add(c.clusters[i], a, b)
			d.x, d.clusters = append(d.x, b-a), append(d.clusters, c.clusters[i])
			sums[c.clusters[i]] += b - a
			binary = binary && (a == 0 || a == 1) && (b == 0 || b == 1)
			if a > b {
				worse++
			} else if a < b {
				better++
			}
		}
		got := p.Difference(Settings{Power: 0.9})
		near(t, fmt.Sprint(n, " delta"), got.Delta, d.mean())
		if int64(got.Regressions) != worse || int64(got.Improvements) != better {
			t.Errorf("case %d: %+v", n, got)
		}
		var each []float64
		for _, s := range sums {
			if math.Abs(s) > 1e-12 {
				each = append(each, s)
			}
		}
		near(t, fmt.Sprint(n, " sign flip"), got.SignFlipP, signFlipP(each))
		if d.countClusters() > 1 {
			se := d.standardError()
			near(t, fmt.Sprint(n, " standard error"), *got.StandardError, se)
			if se > 1e-9 {
				near(t, fmt.Sprint(n, " t test"), *got.TP, studentTail(d.mean()/se, float64(d.countClusters()-1)))
			}
		}
		checkIntervalOfDifference(t, r, fmt.Sprint("case ", n), d, binary, got)
		if !binary || d.countClusters() < len(d.x) {
			continue
		}
		tail := new(big.Rat)
		for k := range min(worse, better) + 1 {
			tail.Add(tail, exactly(k, worse+better))
		}
		tail.Mul(tail, big.NewRat(2, 1))
		exact, mid := math.Min(1, float(tail)), float(new(big.Rat).Sub(tail, exactly(min(worse, better), worse+better)))
		if worse == better {
			mid = 1
		}
		near(t, fmt.Sprint(n, " McNemar"), *got.McNemarExact, exact)
		near(t, fmt.Sprint(n, " McNemar, mid-p"), *got.McNemarMidP, mid)
		near(t, fmt.Sprint(n, " sign flip of a table"), got.SignFlipP, exact)
	}
}

// checkIntervalOfDifference goes through all pairs of pairs. Beside the clusters that there are it has
// two of mean size for verdicts, one that became worse and one that became better.
func checkIntervalOfDifference(t *testing.T, r *rand.Rand, what string, d referenceCase, binary bool, got Difference) {
	t.Helper()
	clusters, n := d.countClusters(), float64(len(d.x))
	single := clusters == len(d.x)
	if clusters < 2 && !single {
		if got.Low != nil {
			t.Errorf("%s: got %+v", what, got)
		}
		return
	}
	if !binary {
		scaled := referenceCase{clusters: d.clusters}
		for _, x := range d.x {
			scaled.x = append(scaled.x, (x+1)/2)
		}
		shape, _ := scaled.effective()
		scaled.checkEnds(t, r, what, shape, (*got.Low+1)/2, (*got.High+1)/2)
		return
	}
	quantile := 1.959963984540054
	if !single {
		quantile = root(1e4, func(t float64) float64 { return 0.05 - studentTail(t, float64(clusters-1)) })
	}
	size, k := n/float64(clusters), float64(clusters+2)
	middle := d.mean() * n / size / k
	squares := (1-middle)*(1-middle) + (1+middle)*(1+middle)
	for i := range d.x { // all pairs of pairs of one cluster
		for j := range d.x {
			if d.clusters[i] == d.clusters[j] {
				squares += (d.x[i] - middle) * (d.x[j] - middle) / size / size
			}
		}
	}
	se := math.Sqrt(squares) / k
	near(t, what+" low", *got.Low, math.Max(-1, middle-quantile*se))
	near(t, what+" high", *got.High, math.Min(1, middle+quantile*se))
}

func TestPassAtKIsAShareOfChoices(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 7; n++ {
		for passed := range n + 1 {
			for i, got := range (Attempts{{n, passed, "a"}}).Curve(n) {
				some, every, all := choices(n, passed, i+1)
				near(t, fmt.Sprintf("%d of %d, at %d", passed, n, i+1), *got.PassAtK, float64(some)/float64(all))
				near(t, fmt.Sprintf("%d of %d, hat %d", passed, n, i+1), *got.PassHatK, float64(every)/float64(all))
			}
		}
	}
}

// The components must give back the mean squares, which add up to the whole sum of squares.
func TestComponentsOfVarianceAddUp(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // cases, no secrets
	for n := range 100 {
		g, k := 2+r.IntN(8), 2+r.IntN(4)
		var epochs []Epochs
		var all []float64
		for range g {
			var scores []float64
			for range k {
				scores = append(scores, r.Float64())
			}
			epochs, all = append(epochs, EpochsOf(scores)), append(all, scores...)
		}
		v := Components(epochs)
		if v.Between == 0 {
			continue // it was below 0
		}
		whole := EpochsOf(all).Squares
		within := v.Within * float64(g*(k-1))
		between := (v.Within + float64(k)*v.Between) * float64(g-1)
		near(t, fmt.Sprint(n, " sum of squares"), within+between, whole)
		near(t, fmt.Sprint(n, " standard error"), v.SEByEpochs["2"], math.Sqrt((v.Between+v.Within/2)/float64(g)))
	}
}

// Signs that are drawn give the value of all signs, within what chance allows.
func TestDrawnSignsAreNearAllSigns(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10)) //nolint:gosec // cases, no secrets
	sums := make([]float64, exactSigns)
	for i := range sums {
		sums[i] = r.Float64() - 0.35
	}
	exact, hits, enough := signFlip(sums, 1, 0), 0, 0.0
	sizes := make([]float64, len(sums))
	for i, sum := range sums {
		enough += sum
		sizes[i] = math.Abs(sum)
	}
	const draws = 50_000
	for _, sum := range drawSigns(sizes, 1, draws) {
		if math.Abs(sum) >= math.Abs(enough) {
			hits++
		}
	}
	share := float64(hits) / draws
	if math.Abs(share-exact) > 4*math.Sqrt(exact*(1-exact)/draws) {
		t.Errorf("drawn %v, exact %v", share, exact)
	}
}

func TestHowOftenGatesFail(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		n        int
		least, p float64
	}{{20, 0.9, 0.95}, {50, 0.8, 0.7}, {7, 0.5, 0.5}, {1, 1, 0.3}, {10, 0, 0.5}} {
		point, byInterval := 0.0, 0.0
		for passed := range v.n + 1 {
			mass, _ := new(big.Float).SetInt(new(big.Int).Binomial(int64(v.n), int64(passed))).Float64()
			mass *= math.Pow(v.p, float64(passed)) * math.Pow(1-v.p, float64(v.n-passed))
			share := float64(passed) / float64(v.n)
			if share < v.least-1e-9 {
				point += mass
			}
			if _, high := boundedInterval(append(slices.Repeat([]float64{1}, passed), slices.Repeat([]float64{0}, v.n-passed)...), float64(v.n)); high < v.least-1e-9 {
				byInterval += mass
			}
		}
		near(t, fmt.Sprintf("point gate %+v", v), PointFails(v.n, v.least, v.p), point)
		near(t, fmt.Sprintf("gate by interval %+v", v), IntervalFails(v.n, v.least, v.p), byInterval)
	}
	// Clopper and Pearson: the least n with least^n <= 0.025.
	for least, want := range map[float64]int{0.8: 17, 0.9: 36, 0.95: 72} {
		passing := Sample{x: []float64{1, 1}, clusters: []string{"a", "b"}}
		if got := passing.Needed(least, Bounded); got != want {
			t.Errorf("%v needs %d, want %d", least, got, want)
		}
	}
}
