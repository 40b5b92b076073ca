package eval

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/eval/stats"
)

// statisticsVectors are figures that were checked against statsmodels, scipy or a full enumeration,
// rounded to six digits.
type statisticsVectors struct {
	Runs []struct {
		Name, Figure, Interval string
		Epochs, Clusters       int
		Evaluations            []struct {
			Y       []*float64 // null is a fault of the environment
			Cluster string
		}
		Mean, StandardError, Low, High float64
		EvaluationsPassed              *int
	}
	Wilson []struct {
		Passed, N int
		Low, High float64
	}
	PassK []struct {
		Name     string
		Attempts [][2]int
		Curve    []struct {
			K                 int
			At, Hat           float64
			AtError, HatError *float64
		}
	}
	Variance struct {
		Epochs                          []string
		Between, Within, ICC, SE, Floor float64
		ByEpochs                        map[string]float64
	}
}

func readVectors(t *testing.T) (v statisticsVectors) {
	t.Helper()
	data, err := os.ReadFile("testdata/statistics.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func sixDigits(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-6 {
		t.Errorf("%s: got %v, want %v", what, deref(got), want)
	}
}

func TestEstimateVectors(t *testing.T) {
	for _, v := range readVectors(t).Runs {
		t.Run(v.Name, func(t *testing.T) {
			var rollouts []Rollout
			for i, e := range v.Evaluations {
				evaluation := &Evaluation{ID: fmt.Sprint(i), Cluster: e.Cluster}
				for _, y := range e.Y {
					r := in(StateFaulted, evaluation.ID)
					if y != nil {
						r = completed(evaluation.ID, score("e", *y))
					}
					r.Evaluation = evaluation
					rollouts = append(rollouts, r)
				}
			}
			s := summarize(&Set{Epochs: v.Epochs}, rollouts...)
			e := map[string]stats.Estimate{"score": s.Score, "scoreCompleted": s.ScoreCompleted, "passRate": s.PassRate}[v.Figure]
			if e.N != len(v.Evaluations) || e.Clusters != v.Clusters || e.Interval != v.Interval || e.Level != 0.95 {
				t.Errorf("got %+v", e)
			}
			sixDigits(t, "mean", e.Mean, v.Mean)
			sixDigits(t, "standard error", e.StandardError, v.StandardError)
			sixDigits(t, "low", e.Low, v.Low)
			sixDigits(t, "high", e.High, v.High)
			if v.EvaluationsPassed != nil && s.EvaluationsPassed != *v.EvaluationsPassed {
				t.Errorf("evaluations passed: got %d, want %d", s.EvaluationsPassed, *v.EvaluationsPassed)
			}
		})
	}
}

func TestWilsonVectors(t *testing.T) {
	for _, v := range readVectors(t).Wilson {
		var rollouts []Rollout
		for i := range v.N {
			rollouts = append(rollouts, completed(fmt.Sprint(i), score("e", truth(i < v.Passed))))
		}
		e := summarize(&Set{}, rollouts...).Score
		sixDigits(t, fmt.Sprintf("low of %d/%d", v.Passed, v.N), e.Low, v.Low)
		sixDigits(t, fmt.Sprintf("high of %d/%d", v.Passed, v.N), e.High, v.High)
	}
}

// Faults that are the agent's own count as failures.
func TestPassKVectors(t *testing.T) {
	for _, v := range readVectors(t).PassK {
		t.Run(v.Name, func(t *testing.T) {
			var rollouts []Rollout
			for i, nc := range v.Attempts {
				for epoch := range nc[0] {
					r := completed(fmt.Sprint(i), score("e", 1))
					if epoch >= nc[1] {
						r = crashed(fmt.Sprint(i))
					}
					rollouts = append(rollouts, r)
				}
			}
			curve := summarize(&Set{Epochs: v.Attempts[0][0]}, rollouts...).PassKWithFaulted
			for _, want := range v.Curve {
				p := curve[want.K-1]
				if p.K != want.K || p.N != len(v.Attempts) {
					t.Errorf("got %+v", p)
				}
				sixDigits(t, fmt.Sprintf("pass@%d", p.K), p.PassAtK, want.At)
				sixDigits(t, fmt.Sprintf("pass^%d", p.K), p.PassHatK, want.Hat)
				if want.AtError != nil {
					sixDigits(t, fmt.Sprintf("error of pass@%d", p.K), p.PassAtKStandardError, *want.AtError)
					sixDigits(t, fmt.Sprintf("error of pass^%d", p.K), p.PassHatKStandardError, *want.HatError)
				} else {
					absent(t, "error over one evaluation", p.PassAtKStandardError)
				}
			}
		})
	}
}

func TestVarianceVectors(t *testing.T) {
	want := readVectors(t).Variance
	var rollouts []Rollout
	for i, epochs := range want.Epochs {
		for _, y := range epochs {
			rollouts = append(rollouts, completed(fmt.Sprint(i), score("e", truth(y == '1'))))
		}
	}
	s := summarize(&Set{Epochs: 4}, rollouts...)
	sixDigits(t, "between", &s.Variance.Between, want.Between)
	sixDigits(t, "within", &s.Variance.Within, want.Within)
	sixDigits(t, "icc", s.Variance.ICC, want.ICC)
	sixDigits(t, "floor", &s.Variance.SEFloor, want.Floor)
	for k, se := range want.ByEpochs {
		sixDigits(t, "standard error with "+k, ptr(s.Variance.SEByEpochs[k]), se)
	}
	now, byEpochs, byEvaluations := s.Variance.Doubling(len(want.Epochs), 4)
	sixDigits(t, "now", &now, want.SE)
	sixDigits(t, "with twice the epochs", &byEpochs, want.ByEpochs["8"])
	sixDigits(t, "with twice the evaluations", &byEvaluations, want.SE/math.Sqrt2)
	if !slices.Equal(s.AlwaysPass, []string{"2"}) || s.NeverPass != nil || !slices.Equal(s.Flaky, []Flaky{{"0", 3, 4}, {"1", 1, 4}, {"3", 1, 4}, {"4", 3, 4}}) {
		t.Errorf("got %+v, %v, %v", s.Flaky, s.AlwaysPass, s.NeverPass)
	}
	if one := summarize(&Set{}, rollouts[0]); one.Variance != nil || one.AlwaysPass != nil {
		t.Errorf("one epoch says nothing of epochs: %+v", one)
	}
}
