package stats

import (
	"math"
	"testing"
)

func TestStudentQuantile(t *testing.T) {
	for df, want := range map[float64]float64{2: 4.302653, 3: 3.182446, 4: 2.776445, 5: 2.570582, 7: 2.364624, 9: 2.262157, 30: 2.042272, 1e6: 1.959966} {
		if got := studentQuantile(df); math.Abs(got-want) > 1e-6 {
			t.Errorf("t(%v): got %v, want %v", df, got, want)
		}
	}
}

// An interval of width 0 would say that nothing is uncertain.
func TestIntervals(t *testing.T) {
	for _, v := range []struct {
		name     string
		x        []float64
		clusters []string
		method   Method
		interval string
	}{
		{"one evaluation that passes", []float64{1}, []string{"1"}, Bounded, "gaffke"},
		{"one evaluation with half a score", []float64{0.5}, []string{"1"}, Student, "gaffke"},
		{"equal scores", []float64{0.5, 0.5, 0.5}, []string{"1", "2", "3"}, Student, "gaffke"},
		{"scores of 0 and 1", []float64{0, 1, 1}, []string{"1", "2", "3"}, Student, "gaffke"},
		{"other scores", []float64{0.5, 1, 1}, []string{"1", "2", "3"}, Bounded, "gaffke"},
		{"other scores, where the set says so", []float64{0.5, 1, 1}, []string{"1", "2", "3"}, Student, "t"},
		{"one cluster has none", []float64{1, 0.5}, []string{"a", "a"}, Bounded, ""},
		{"clusters that all pass", []float64{1, 1, 1}, []string{"a", "a", "b"}, Bounded, "gaffke-effective"},
	} {
		e := (&Sample{v.x, v.clusters}).Estimate(v.method)
		if e.Interval != v.interval || (e.Low == nil) != (v.interval == "") || e.Low != nil && *e.Low >= *e.High {
			t.Errorf("%s: got %+v", v.name, e)
		}
	}
}
