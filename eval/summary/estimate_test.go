package summary

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/stats"
)

// vectors are golden vectors, which package stats has too: V1 to V8 and V23 are of whole runs.
type vectors struct {
	V1 struct {
		Mean, SE    float64
		N, Clusters int
		Published   [2]float64
	}
	V2 struct {
		Mean, SEClustered float64
		Clusters          int
		Published         [2]float64
	}
	V3 struct {
		Mean, SEWanted float64
		Clusters       int
	}
	V5 struct {
		Mean, SE, Low, High float64
		Clusters            int
	}
	V6 struct {
		Between, Within, ICC, SE, SEFloor float64
		SEByEpochs                        map[string]float64
	}
	V7 map[string]json.RawMessage
	V8 struct {
		Wanted map[string][2]float64
	}
	V16, V17 struct {
		Rows []struct {
			Passed, N, Failed, Suspended int
			Min, Low, High               float64
			Verdict                      GateVerdict
		}
	}
	V23 struct {
		Wanted struct {
			PassRate          float64
			Method            string
			Interval          [2]float64
			EvaluationsPassed int
		}
	}
}

func readVectors(t *testing.T) (v vectors) {
	t.Helper()
	data, err := os.ReadFile("../stats/testdata/vectors.json")
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
		t.Errorf("%s: got %v, want %v", what, evaltest.Deref(got), want)
	}
}

// clustered are evaluations of one epoch, each in the cluster that stands at its place.
func clustered(clusters string, scores ...float64) (rollouts []Rollout) {
	for i, y := range scores {
		r := completed(fmt.Sprint(i), score("e", y))
		r.Evaluation = &eval.Evaluation{ID: fmt.Sprint(i), Cluster: clusters[i : i+1]}
		rollouts = append(rollouts, r)
	}
	return rollouts
}

// repeated are evaluations of several epochs each. NaN is a fault of the environment.
func repeated(evaluations ...[]float64) (rollouts []Rollout) {
	for i, epochs := range evaluations {
		for _, y := range epochs {
			r := in(eval.StateFaulted, fmt.Sprint(i))
			if !math.IsNaN(y) {
				r = completed(fmt.Sprint(i), score("e", y))
			}
			rollouts = append(rollouts, r)
		}
	}
	return rollouts
}

func checkEstimate(t *testing.T, e stats.Estimate, clusters int, interval string, mean, se, low, high float64) {
	t.Helper()
	if e.Clusters != clusters || e.Interval != interval || e.Level != 0.95 {
		t.Errorf("got %+v", e)
	}
	sixDigits(t, "mean", e.Mean, mean)
	sixDigits(t, "standard error", e.StandardError, se)
	sixDigits(t, "low", e.Low, low)
	sixDigits(t, "high", e.High, high)
}

func TestV1StandardErrorOverEpochs(t *testing.T) {
	v := readVectors(t).V1
	s := summarize(&eval.Set{Epochs: 4, Interval: stats.Student}, repeated([]float64{1, 1, 0, 1}, []float64{0.5, 0.25, 1, 1}, []float64{0, 0, 0, 0}, []float64{1, 1, 1, 1}, []float64{math.NaN(), 1, 0, 1})...)
	checkEstimate(t, s.ScoreCompleted, v.Clusters, "t", v.Mean, v.SE, v.Published[0], v.Published[1])
}

func TestV2Clusters(t *testing.T) {
	v := readVectors(t).V2
	s := summarize(&eval.Set{Interval: stats.Student}, clustered("aaabbccc", 1, 1, 0.75, 0, 0.25, 0.5, 1, 0.5)...)
	checkEstimate(t, s.Score, v.Clusters, "t", v.Mean, v.SEClustered, v.Published[0], v.Published[1])
}

// The same evaluations with two agents are no more evaluations.
func TestV3AgentsTogether(t *testing.T) {
	v := readVectors(t).V3
	set := &eval.Set{Thresholds: eval.Thresholds{Pass: 1}}
	s := New(set, kinds.All)
	for i, y := range []float64{1, 0.5, 0, 1} {
		for _, agent := range []string{"a", "b"} {
			r := completed(fmt.Sprint(i), score("e", y))
			r.Agent = agent
			s.Add(r)
		}
	}
	s.Summary()
	e := together(s.agents, func(t *tally) *figure { return &t.score }).Estimate(stats.Bounded)
	if e.Clusters != v.Clusters || e.N != 8 {
		t.Errorf("got %+v", e)
	}
	sixDigits(t, "mean", e.Mean, v.Mean)
	sixDigits(t, "standard error", e.StandardError, v.SEWanted)
}

func TestV5EffectiveNumber(t *testing.T) {
	v := readVectors(t).V5
	s := summarize(&eval.Set{}, clustered("aaabbbcccddd", 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1, 1)...)
	checkEstimate(t, s.Score, v.Clusters, "gaffke-effective", v.Mean, v.SE, v.Low, v.High)
}

func TestV6ComponentsOfVariance(t *testing.T) {
	want := readVectors(t).V6
	var rollouts []Rollout
	for i, epochs := range []string{"1101", "0100", "1111", "0010", "1011"} {
		for _, y := range epochs {
			rollouts = append(rollouts, completed(fmt.Sprint(i), score("e", pyvalue.Truth(y == '1'))))
		}
	}
	s := summarize(&eval.Set{Epochs: 4}, rollouts...)
	sixDigits(t, "between", &s.Variance.Between, want.Between)
	sixDigits(t, "within", &s.Variance.Within, want.Within)
	sixDigits(t, "icc", s.Variance.ICC, want.ICC)
	sixDigits(t, "floor", &s.Variance.SEFloor, want.SEFloor)
	for k, se := range want.SEByEpochs {
		sixDigits(t, "standard error with "+k, ptr(s.Variance.SEByEpochs[k]), se)
	}
	now, byEpochs, byEvaluations := s.Variance.Doubling(5, 4)
	sixDigits(t, "now", &now, want.SE)
	sixDigits(t, "with twice the epochs", &byEpochs, want.SEByEpochs["8"])
	sixDigits(t, "with twice the evaluations", &byEvaluations, want.SE/math.Sqrt2)
	if !slices.Equal(s.AlwaysPass, []string{"2"}) || s.NeverPass != nil || !slices.Equal(s.Flaky, []Flaky{{"0", 3, 4}, {"1", 1, 4}, {"3", 1, 4}, {"4", 3, 4}}) {
		t.Errorf("got %+v, %v, %v", s.Flaky, s.AlwaysPass, s.NeverPass)
	}
	if one := summarize(&eval.Set{}, rollouts[0]); one.Variance != nil || one.AlwaysPass != nil {
		t.Errorf("one epoch says nothing of epochs: %+v", one)
	}
}

// attempted has n attempts at each evaluation, of which some pass and the agent faults in the rest.
func attempted(attempts ...[2]int) (rollouts []Rollout) {
	for i, nc := range attempts {
		for epoch := range nc[0] {
			r := completed(fmt.Sprint(i), score("e", 1))
			if epoch >= nc[1] {
				r = crashed(fmt.Sprint(i))
			}
			rollouts = append(rollouts, r)
		}
	}
	return rollouts
}

func TestV7PassAtK(t *testing.T) {
	v := readVectors(t).V7
	var attempts [][2]int
	if err := json.Unmarshal(v["nc"], &attempts); err != nil {
		t.Fatal(err)
	}
	for _, p := range summarize(&eval.Set{Epochs: 4}, attempted(attempts...)...).PassKWithFaulted {
		var want struct{ PassAtK, PassAtKSE, PassHatK, PassHatKSE float64 }
		if err := json.Unmarshal(v[fmt.Sprint(p.K)], &want); err != nil {
			t.Fatal(err)
		}
		sixDigits(t, fmt.Sprintf("pass@%d", p.K), p.PassAtK, want.PassAtK)
		sixDigits(t, fmt.Sprintf("pass^%d", p.K), p.PassHatK, want.PassHatK)
		sixDigits(t, fmt.Sprintf("error of pass@%d", p.K), p.PassAtKStandardError, want.PassAtKSE)
		sixDigits(t, fmt.Sprintf("error of pass^%d", p.K), p.PassHatKStandardError, want.PassHatKSE)
	}
}

func TestV8TheAgentsFaultsAreFailures(t *testing.T) {
	curve := summarize(&eval.Set{Epochs: 10}, attempted([2]int{10, 1})...).PassKWithFaulted
	for _, p := range curve {
		if want, ok := readVectors(t).V8.Wanted[fmt.Sprint(p.K)]; ok {
			sixDigits(t, fmt.Sprintf("pass@%d", p.K), p.PassAtK, want[0])
			sixDigits(t, fmt.Sprintf("pass^%d", p.K), p.PassHatK, want[1])
			evaltest.Absent(t, "error over one evaluation", p.PassAtKStandardError)
		}
	}
}

func TestV16AndV17GatesByInterval(t *testing.T) {
	all := readVectors(t)
	for _, v := range append(all.V16.Rows, all.V17.Rows...) {
		if v.N > 0 {
			v.Failed = v.N - v.Passed
		}
		var rollouts []Rollout
		for i, what := range strings.Repeat("p", v.Passed) + strings.Repeat("f", v.Failed) + strings.Repeat("s", v.Suspended) {
			r := in(eval.StateSuspended, fmt.Sprint(i))
			if what != 's' {
				r = completed(fmt.Sprint(i), score("e", pyvalue.Truth(what == 'p')))
			}
			rollouts = append(rollouts, r)
		}
		s := summarize(&eval.Set{Thresholds: eval.Thresholds{PassRate: &eval.Threshold{Min: v.Min, By: eval.ByInterval}}}, rollouts...)
		g := s.Gates[0]
		if g.Verdict != v.Verdict || g.By != eval.ByInterval {
			t.Errorf("%+v: got %+v", v, g)
		}
		sixDigits(t, "low", &g.Low, v.Low)
		sixDigits(t, "high", &g.High, v.High)
	}
}

func TestV23PassRateOfEpochs(t *testing.T) {
	v := readVectors(t).V23.Wanted
	three := []float64{1, 1, 1, 0}
	s := summarize(&eval.Set{Epochs: 4}, repeated(three, three, three, three)...)
	checkEstimate(t, s.PassRate, 4, v.Method, v.PassRate, 0, v.Interval[0], v.Interval[1])
	if s.EvaluationsPassed != v.EvaluationsPassed {
		t.Errorf("evaluations passed: got %d, want %d", s.EvaluationsPassed, v.EvaluationsPassed)
	}
}
