package stats

import (
	"math"
	"strconv"
	"testing"
)

// ratedBy are as many pairs of judge and people as a table says, each a cluster of its own.
func ratedBy(tp, fn, fp, tn int) (out []Rated) {
	for _, cell := range []struct {
		n             int
		judge, people float64
	}{{tp, 1, 1}, {fn, 0, 1}, {fp, 1, 0}, {tn, 0, 0}} {
		for range cell.n {
			out = append(out, Rated{Judge: cell.judge, People: cell.people, Cluster: strconv.Itoa(len(out))})
		}
	}
	return out
}

// Vector V21 of testdata/vectors.json.
func TestCalibrateAsTheVectorSays(t *testing.T) {
	v := readVectors(t).V21
	c := Calibrate(ratedBy(v.TP, v.FN, v.FP, v.TN), 1, DefaultSettings)
	if c.Confusion != (Confusion{v.TP, v.FN, v.FP, v.TN}) {
		t.Errorf("confusion %+v", c.Confusion)
	}
	corrected := c.Correct(v.Observed, v.N)
	if corrected == nil {
		t.Fatal("no corrected rate")
	}
	for _, one := range []struct {
		name      string
		got, want float64
	}{{"agreement", *c.Agreement.Mean, v.Agreement}, {"kappa", *c.Kappa.Value, v.Kappa}, {"weighted kappa of 0 and 1", *c.WeightedKappa.Value, v.Kappa},
		{"TPR", *c.Sensitivity.Mean, v.TPR}, {"TNR", *c.Specificity.Mean, v.TNR}, {"bias", *c.Bias, 0.02},
		{"corrected", corrected.Rate, v.Corrected}, {"its error", corrected.StandardError, v.CorrectedSE}, {"low", corrected.Low, v.CI95[0]}, {"high", corrected.High, v.CI95[1]}} {
		if math.Abs(one.got-one.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", one.name, one.got, one.want)
		}
	}
	// The interval of Fleiss, Cohen and Everitt's large-sample error, .101: [.508, .903].
	if *c.Kappa.Low < 0.46 || *c.Kappa.Low > 0.53 || *c.Kappa.High < 0.86 || *c.Kappa.High > 0.93 {
		t.Errorf("kappa from %v to %v", *c.Kappa.Low, *c.Kappa.High)
	}
}

// The sums give what the definitions give.
func TestTheCoefficientsAreThoseOfTheirDefinitions(t *testing.T) {
	judge, people := []float64{0, .25, .5, .5, 1, .75, 0, 1}, []float64{0, .5, .5, .25, 1, 1, .25, .75}
	var rated []Rated
	var units [][]float64
	observed, chance := 0.0, 0.0
	for i := range judge {
		rated = append(rated, Rated{judge[i], people[i], strconv.Itoa(i)})
		units = append(units, []float64{judge[i], people[i]})
		observed += Interval(judge[i], people[i]) / 8
		for j := range people {
			chance += Interval(judge[i], people[j]) / 64
		}
	}
	c := Calibrate(rated, 0.5, DefaultSettings)
	if want := 1 - observed/chance; math.Abs(*c.WeightedKappa.Value-want) > 1e-12 {
		t.Errorf("weighted kappa %v, want %v", *c.WeightedKappa.Value, want)
	}
	if want := *Alpha(units, Interval); math.Abs(*c.Alpha.Value-want) > 1e-12 {
		t.Errorf("alpha %v, want %v", *c.Alpha.Value, want)
	}
}

func TestACalibrationSaysNothingItDoesNotKnow(t *testing.T) {
	if c := Calibrate(nil, 1, DefaultSettings); c.Kappa.Value != nil || c.Agreement.Mean != nil || c.Bias != nil || c.Correct(0.5, 10) != nil {
		t.Errorf("of nothing: %+v", c)
	}
	if c := Calibrate(ratedBy(10, 0, 0, 0), 1, DefaultSettings); c.Kappa.Value != nil || c.Specificity.Mean != nil || c.Correct(1, 10) != nil {
		t.Errorf("where all pass: %+v", c)
	}
	if c := Calibrate(ratedBy(5, 5, 5, 5), 1, DefaultSettings); c.Correct(0.5, 20) != nil {
		t.Error("a judge that guesses corrects nothing")
	}
	// Ten of ten are no certainty: the interval of the agreement is [.692, 1].
	c := Calibrate(ratedBy(5, 0, 0, 5), 1, DefaultSettings)
	if *c.Kappa.Value != 1 || math.Abs(*c.Kappa.Low-0.383006) > 1e-6 || *c.Kappa.High != 1 {
		t.Errorf("kappa %v from %v to %v", *c.Kappa.Value, *c.Kappa.Low, *c.Kappa.High)
	}
}
