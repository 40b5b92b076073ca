package stats

import (
	"math"
	"testing"
)

// The example of Krippendorff's "Computing Krippendorff's Alpha-Reliability" (2011), section B and D,
// as Wikipedia has it: three raters of fifteen units, some of them missing.
func TestAlpha(t *testing.T) {
	units := [][]float64{{1}, {}, {2, 2}, {1, 1}, {3, 3}, {3, 3, 4}, {4, 4, 4}, {1, 3}, {2, 2}, {1, 1}, {1, 1}, {3, 3}, {3, 3}, {}, {3, 4}}
	for _, v := range []struct {
		name     string
		distance func(a, b float64) float64
		want     float64
	}{{"nominal", Nominal, 0.691}, {"interval", Interval, 0.811}} {
		if got := Alpha(units, v.distance); got == nil || math.Abs(*got-v.want) > 0.0005 {
			t.Errorf("%s: %v, want %v", v.name, got, v.want)
		}
	}
	for _, units := range [][][]float64{nil, {{1}, {2}}, {{1, 1}, {1, 1}}} {
		if got := Alpha(units, Nominal); got != nil {
			t.Errorf("%v: %v, want nothing", units, *got)
		}
	}
}

// Vector V21: 27 and 16 agreements, 3 and 4 disagreements.
func TestKappa(t *testing.T) {
	var a, b []float64
	for _, v := range []struct {
		n    int
		a, b float64
	}{{27, 1, 1}, {3, 1, 0}, {4, 0, 1}, {16, 0, 0}} {
		for range v.n {
			a, b = append(a, v.a), append(b, v.b)
		}
	}
	if got := Kappa(a, b); got == nil || math.Abs(*got-0.705882) > 1e-6 {
		t.Errorf("%v", got)
	}
	if Kappa(nil, nil) != nil || Kappa([]float64{1, 1}, []float64{1, 1}) != nil {
		t.Error("nothing can be said")
	}
}
