package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
)

// vectors are golden vectors: computed by other programs (scipy, statsmodels, numpy) or by full
// enumeration, and rounded to six digits. V1 to V8 and V23 are of whole runs, and are checked in
// package summary.
type vectors struct {
	V4 map[string][2]float64
	V9 struct {
		N, Regressions, Improvements int
		Delta, Exact, MidP           float64
		BonettPrice                  [2]float64
	}
	V9b struct {
		Regressions, Improvements int
		Exact, MidP               float64
	}
	V10 struct {
		A, B                                       []float64
		MeanA, MeanB, Delta, SE, T, P, Correlation float64
		DF                                         int
		CI95                                       [2]float64
	}
	V11 struct {
		D []float64
		P float64
	}
	V12 struct {
		SplitMix64 [3]string `json:"splitmix64_seed1"`
		B          int
		Low, High  float64
	}
	V13 struct {
		Clusters, DF    int
		Delta, SE, T, P float64
		CI95            [2]float64
	}
	V14 struct {
		Z, MDE80, Delta   float64
		EvaluationsNeeded int
	}
	V15 struct{ P, Holm, BH []float64 }
	V18 struct {
		Epochs                                [][]float64
		Splits, Rejected, SignFlipRejected    int
		Rate, RateLow, RateHigh, SignFlipRate float64
	}
	V19 struct {
		Rows []struct {
			N                    int
			Min, TrueRate, PFail float64
		}
	}
	V21 struct {
		TP, FN, FP, TN, N                    int
		Agreement, Kappa, TPR, TNR, Observed float64
		Corrected, CorrectedSE               float64
		CI95                                 [2]float64
	}
	V24 struct {
		D                                                            []float64
		Delta, SE, T, P, SignFlipP, McnemarExact, McnemarMidP, MDE80 float64
		CI95, Bootstrap, BonettPrice                                 [2]float64
		Regressions, Improvements                                    int
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > 1e-6 {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// paired has a pair for each d: 0 on the side A, d on the side B.
func paired(d []float64, clusters ...string) *Paired {
	var p Paired
	for i, x := range d {
		cluster := fmt.Sprint(i)
		if clusters != nil {
			cluster = clusters[i]
		}
		p.Add(cluster, 0, x)
	}
	return &p
}

func TestWilsonVectors(t *testing.T) {
	for text, want := range readVectors(t).V4 {
		var passed, n int
		if _, err := fmt.Sscanf(text, "%d/%d", &passed, &n); err != nil {
			t.Fatal(err)
		}
		low, high := wilson(float64(passed)/float64(n), float64(n), z)
		near(t, text+" low", low, want[0])
		near(t, text+" high", high, want[1])
	}
}

// before and after are n evaluations that are 0 or 1, of which some became worse and some better.
func beforeAndAfter(n, worse, better int) *Paired {
	var p Paired
	for i := range n {
		a, b := 1.0, 1.0
		if i < worse {
			b = 0
		} else if i < worse+better {
			a = 0
		}
		p.Add(fmt.Sprint(i), a, b)
	}
	return &p
}

func TestV9McNemar(t *testing.T) {
	all := readVectors(t)
	v := all.V9
	d := beforeAndAfter(v.N, v.Regressions, v.Improvements).Difference(DefaultSettings)
	if d.Regressions != v.Regressions || d.Improvements != v.Improvements || d.Interval != "bonett-price" {
		t.Errorf("got %+v", d)
	}
	near(t, "delta", d.Delta, v.Delta)
	near(t, "exact", *d.McNemarExact, v.Exact)
	near(t, "mid-p", *d.McNemarMidP, v.MidP)
	near(t, "the sign flip test is the same", d.SignFlipP, v.Exact)
	near(t, "low", *d.Low, v.BonettPrice[0])
	near(t, "high", *d.High, v.BonettPrice[1])
	exact, mid := mcnemar(all.V9b.Regressions, all.V9b.Improvements)
	near(t, "exact of a tie", exact, all.V9b.Exact)
	near(t, "mid-p of a tie", mid, all.V9b.MidP)
}

// student are the settings of the vectors whose intervals are Student's.
var student = Settings{Power: 0.8, Resamples: 10_000, Seed: 1, Interval: Student}

func TestV10ToV14PairedDifferences(t *testing.T) {
	all := readVectors(t)
	v := all.V10
	var p Paired
	for i := range v.A {
		p.Add(fmt.Sprint(i), v.A[i], v.B[i])
	}
	d := p.Difference(student)
	if d.DF != v.DF || d.Interval != "t" || d.McNemarExact != nil {
		t.Errorf("got %+v", d)
	}
	near(t, "mean of A", d.MeanA, v.MeanA)
	near(t, "mean of B", d.MeanB, v.MeanB)
	near(t, "delta", d.Delta, v.Delta)
	near(t, "standard error", *d.StandardError, v.SE)
	near(t, "t", d.Delta / *d.StandardError, v.T)
	near(t, "p", *d.TP, v.P)
	near(t, "low", *d.Low, v.CI95[0])
	near(t, "high", *d.High, v.CI95[1])
	near(t, "correlation", *d.Correlation, v.Correlation)
	near(t, "V11: sign flip", d.SignFlipP, all.V11.P)
	for i, want := range all.V12.SplitMix64 {
		if got := fmt.Sprintf("%#x", random(1).at(uint64(i))); got != want { //nolint:gosec // a small number
			t.Errorf("V12: random number %d: got %s, want %s", i, got, want)
		}
	}
	near(t, "V12: bootstrap low", d.Bootstrap.Low, all.V12.Low)
	near(t, "V12: bootstrap high", d.Bootstrap.High, all.V12.High)
	near(t, "V14: z", z+normalQuantile(0.8), all.V14.Z)
	near(t, "V14: least difference", *d.MDE, all.V14.MDE80)
	if got := p.Needed(d, all.V14.Delta); got == nil || *got != all.V14.EvaluationsNeeded {
		t.Errorf("V14: got %v, want %d", got, all.V14.EvaluationsNeeded)
	}

	clustered := paired(all.V11.D, "a", "a", "b", "b", "c", "c", "d", "d").Difference(student)
	w := all.V13
	if clustered.Clusters != w.Clusters || clustered.DF != w.DF {
		t.Errorf("V13: got %+v", clustered)
	}
	near(t, "V13: standard error", *clustered.StandardError, w.SE)
	near(t, "V13: p", *clustered.TP, w.P)
	near(t, "V13: low", *clustered.Low, w.CI95[0])
	near(t, "V13: high", *clustered.High, w.CI95[1])
}

func TestV15Adjusted(t *testing.T) {
	v := readVectors(t).V15
	holm, bh := Holm(v.P), BenjaminiHochberg(v.P)
	for i, p := range v.P {
		near(t, fmt.Sprint("Holm ", p), holm[i], v.Holm[i])
		near(t, fmt.Sprint("Benjamini-Hochberg ", p), bh[i], v.BH[i])
	}
}

func TestV18SelfTest(t *testing.T) {
	v := readVectors(t).V18
	var evaluations []Repeated
	for i, scores := range v.Epochs {
		evaluations = append(evaluations, Repeated{fmt.Sprint(i), scores})
	}
	mean := func(x []float64) float64 { return x[0] }
	got := AA(evaluations, mean, 1)
	if got.Splits != v.Splits || !got.Exact || got.T.Rejected != v.Rejected || got.SignFlip.Rejected != v.SignFlipRejected || got.T.Calibrated || !got.SignFlip.Calibrated {
		t.Errorf("got %+v", got)
	}
	near(t, "rate", got.T.Rate, v.Rate)
	near(t, "low", got.T.Low, v.RateLow)
	near(t, "high", got.T.High, v.RateHigh)
	near(t, "rate of the sign flip test", got.SignFlip.Rate, v.SignFlipRate)
}

func TestV19FalseAlarmsOfAPointGate(t *testing.T) {
	for _, v := range readVectors(t).V19.Rows {
		near(t, fmt.Sprintf("%+v", v), PointFails(v.N, v.Min, v.TrueRate), v.PFail)
	}
}

func TestV24WholeComparison(t *testing.T) {
	v := readVectors(t).V24
	var scores, allPass Paired
	for i, epochs := range []struct{ a, b [2]float64 }{
		{[2]float64{1, 1}, [2]float64{1, 1}}, {[2]float64{1, 0}, [2]float64{1, 1}}, {[2]float64{0, 0}, [2]float64{1, 0}},
		{[2]float64{1, 1}, [2]float64{1, 0}}, {[2]float64{0, 1}, [2]float64{1, 1}}, {[2]float64{0, 0}, [2]float64{0, 1}},
	} {
		a, b := epochs.a, epochs.b
		scores.Add(fmt.Sprint(i), (a[0]+a[1])/2, (b[0]+b[1])/2)
		allPass.Add(fmt.Sprint(i), a[0]*a[1], b[0]*b[1])
		near(t, "d", scores.d.x[i], v.D[i])
	}
	d := scores.Difference(student)
	near(t, "delta", d.Delta, v.Delta)
	near(t, "standard error", *d.StandardError, v.SE)
	near(t, "p", *d.TP, v.P)
	near(t, "low", *d.Low, v.CI95[0])
	near(t, "high", *d.High, v.CI95[1])
	near(t, "sign flip", d.SignFlipP, v.SignFlipP)
	near(t, "bootstrap low", d.Bootstrap.Low, v.Bootstrap[0])
	near(t, "bootstrap high", d.Bootstrap.High, v.Bootstrap[1])
	near(t, "least difference", *d.MDE, v.MDE80)
	binary := allPass.Difference(DefaultSettings)
	if binary.Regressions != v.Regressions || binary.Improvements != v.Improvements {
		t.Errorf("got %+v", binary)
	}
	near(t, "exact", *binary.McNemarExact, v.McnemarExact)
	near(t, "mid-p", *binary.McNemarMidP, v.McnemarMidP)
	near(t, "all pass, low", *binary.Low, v.BonettPrice[0])
	near(t, "all pass, high", *binary.High, v.BonettPrice[1])
}
