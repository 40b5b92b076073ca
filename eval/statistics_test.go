package eval

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

func score(id string, v float64) Result {
	return Result{EvaluatorID: id, EvaluatorName: id, Score: &v, Scale: 1}
}

func completed(evaluation string, results ...Result) Rollout {
	return Rollout{EvaluationID: evaluation, Agent: "a", State: StateCompleted, Results: results}
}

func in(state State, evaluation string) Rollout {
	return Rollout{EvaluationID: evaluation, Agent: "a", State: state}
}

func summarize(set *Set, rollouts ...Rollout) Summary {
	if set.Thresholds.Pass == 0 {
		set.Thresholds.Pass = 1
	}
	s := NewStatistics(set)
	for _, r := range rollouts {
		s.Add(r)
	}
	return s.Summary()
}

func near(t *testing.T, what string, got *float64, want float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > 1e-9 {
		t.Errorf("%s: got %v, want %v", what, deref(got), want)
	}
}

func absent(t *testing.T, what string, got *float64) {
	t.Helper()
	if got != nil {
		t.Errorf("%s: got %v, want none", what, *got)
	}
}

// facts 1.22
func TestSetScoreVectors(t *testing.T) {
	weighted := func(a, b float64) *Set {
		return &Set{Evaluators: []Definition{{ID: "exact", Weight: a}, {ID: "contains", Weight: b}}}
	}
	for _, v := range []struct {
		name     string
		set      *Set
		rollouts []Rollout
		want     float64
	}{
		{"several results of one evaluator count as their mean", weighted(1, 1),
			[]Rollout{completed("1", score("exact", 0.8), score("exact", 1), score("exact", 0.6)), completed("2", score("exact", 0.5))}, 0.65},
		{"weights 2 and 1", weighted(2, 1), []Rollout{completed("1", score("exact", 0.8), score("contains", 0.6))}, 2.2 / 3},
		{"weights 2 and 0.5", weighted(2, 0.5), []Rollout{completed("1", score("exact", 0.8), score("contains", 0.6))}, 0.76},
		{"mean of the evaluators' means", weighted(1, 1),
			[]Rollout{completed("1", score("exact", 0.8), score("contains", 0.9)), completed("2", score("exact", 1), score("contains", 0.7))}, 0.85},
		{"three evaluators on different evaluations", &Set{}, []Rollout{
			completed("1", score("e", 0.5), score("e", 1), score("c", 1), score("t", 1)), completed("2", score("e", 0), score("c", 1)), completed("3", score("e", 1), score("t", 1))},
			(1.75/3 + 1 + 1) / 3},
	} {
		t.Run(v.name, func(t *testing.T) { near(t, "score", summarize(v.set, v.rollouts...).EvaluatorScore, v.want) })
	}
	absent(t, "score of nothing", summarize(&Set{}).EvaluatorScore)
}

func TestRolloutScore(t *testing.T) {
	defs := []Definition{{ID: "a", Weight: 3}, {ID: "b", Weight: 1}, {ID: "zero", Weight: 0}}
	line := score("a", 0)
	line.Line = true
	eighty := 80.0
	for _, v := range []struct {
		name    string
		results []Result
		want    any
	}{
		{"weights", []Result{score("a", 1), score("b", 0)}, 0.75},
		{"a verifier that the set does not define weighs 1", []Result{score("a", 1), score("verifier", 0)}, 0.75},
		{"lines do not count", []Result{line, score("a", 1)}, 1.0},
		{"evaluators that were not run do not count", []Result{score("a", 1), {EvaluatorID: "b", NotRun: "no model"}}, 1.0},
		{"a failed evaluator counts as 0", []Result{score("a", 1), {EvaluatorID: "b", Error: "boom"}}, 0.75},
		{"the legacy scale", []Result{{EvaluatorID: "b", Score: &eighty, Scale: 100}}, 0.8},
		{"no results", nil, nil},
		{"nothing that counts", []Result{{EvaluatorID: "a", NotRun: "x"}}, nil},
		{"no weight", []Result{score("zero", 1)}, nil},
	} {
		t.Run(v.name, func(t *testing.T) {
			if got := deref(RolloutScore(defs, v.results)); got != v.want {
				t.Errorf("got %v, want %v", got, v.want)
			}
		})
	}
}

// Given scores 0, 0.5 and 1: mean 1/2, variance 1/4, standard error sqrt(1/12); one of three passes, and the 95 % Wilson
// interval of 1/3 is 0.0615 to 0.7923.
func TestEstimateByHand(t *testing.T) {
	s := summarize(&Set{}, completed("1", score("e", 0)), completed("2", score("e", 0.5)), completed("3", score("e", 1)))
	for _, e := range []Estimate{s.Score, s.ScoreWithFaulted, s.Evaluators[0].Estimate} {
		if e.N != 3 || e.Passed != 1 {
			t.Errorf("n %d, passed %d", e.N, e.Passed)
		}
		near(t, "mean", e.Mean, 0.5)
		near(t, "standard error", e.StandardError, math.Sqrt(1.0/12))
		near(t, "min", e.Min, 0)
		near(t, "max", e.Max, 1)
		near(t, "pass rate", e.PassRate, 1.0/3)
		near(t, "low", e.PassRateLow, 0.06149194472039626)
		near(t, "high", e.PassRateHigh, 0.7923403991979523)
	}
}

func TestWilsonBounds(t *testing.T) {
	low, high := wilson(0, 10)
	near(t, "low of 0/10", &low, 0)
	near(t, "high of 0/10", &high, 0.27753279964075)
	low, high = wilson(10, 10)
	near(t, "low of 10/10", &low, 0.72246720035925)
	near(t, "high of 10/10", &high, 1)
}

// Given an evaluation of three epochs with the scores 1, 0.5 and 0.
func TestReducers(t *testing.T) {
	for _, v := range []struct {
		reduce Reducer
		pass   float64
		want   float64
	}{
		{ReduceMean, 1, 0.5}, {"", 1, 0.5}, {ReduceAtLeastOne, 1, 1}, {ReduceAll, 1, 0}, {ReduceAll, 0.5, 0}, {ReduceAtLeastOne, 0.1, 1},
	} {
		set := &Set{Epochs: 3, Reduce: v.reduce, Thresholds: Thresholds{Pass: v.pass}}
		s := summarize(set, completed("1", score("e", 1)), completed("1", score("e", 0.5)), completed("1", score("e", 0)))
		near(t, string(v.reduce), s.Score.Mean, v.want)
		near(t, string(v.reduce)+" of the evaluator", s.Evaluators[0].Mean, v.want)
		if s.Score.N != 1 {
			t.Errorf("n %d, want 1: epochs are reduced before anything is averaged", s.Score.N)
		}
		absent(t, "standard error of one evaluation", s.Score.StandardError)
	}
}

func TestAnEvaluationCountsOnceAllItsEpochsAreTerminal(t *testing.T) {
	set := &Set{Epochs: 2}
	for _, open := range []State{StatePending, StateRunning, StateSuspended, StateEvaluating} {
		s := summarize(set, completed("1", score("e", 1)), in(open, "1"), completed("2", score("e", 0)), completed("2", score("e", 0)))
		near(t, "score", s.Score.Mean, 0)
		if s.Evaluations != (EvaluationCounts{Total: 2, Scored: 1, Incomplete: 1}) || s.Evaluators[0].N != 1 {
			t.Errorf("%s: %+v", open, s.Evaluations)
		}
	}
	s := summarize(set, completed("1", score("e", 1)))
	if s.Evaluations.Incomplete != 1 || s.Score.N != 0 {
		t.Errorf("an epoch that has not been planned: %+v", s.Evaluations)
	}
}

// Given a completed, a faulted, a cancelled and a suspended evaluation and one that cannot be run: each is counted where it
// belongs, and the faulted one is 0 in the second total only.
func TestFaultedRollouts(t *testing.T) {
	s := summarize(&Set{}, completed("1", score("e", 1)), in(StateFaulted, "2"), in(StateCancelled, "3"), in(StateSuspended, "4"), in(StateNotRun, "5"), completed("6"))
	near(t, "without", s.Score.Mean, 1)
	near(t, "with", s.ScoreWithFaulted.Mean, 0.5)
	near(t, "pass rate with", s.ScoreWithFaulted.PassRate, 0.5)
	if s.Rollouts != (RolloutCounts{Total: 6, Completed: 2, Faulted: 1, Cancelled: 1, Suspended: 1, NotRun: 1}) {
		t.Errorf("rollouts %+v", s.Rollouts)
	}
	if s.Evaluations != (EvaluationCounts{Total: 6, Scored: 1, Incomplete: 1, Unscored: 4}) {
		t.Errorf("evaluations %+v", s.Evaluations)
	}
}

func TestFaultedEpochs(t *testing.T) {
	set := &Set{Epochs: 4}
	s := summarize(set, completed("1", score("e", 1)), in(StateFaulted, "1"), completed("1", score("e", 0.5)), in(StateFaulted, "1"))
	near(t, "without", s.Score.Mean, 0.75)
	near(t, "with", s.ScoreWithFaulted.Mean, 0.375)
}

// Given 5 attempts of which 2 passed: pass@2 = 1 - C(3,2)/C(5,2) = 0.7, pass^2 = C(2,2)/C(5,2) = 0.1. A second evaluation
// has only 3 completed attempts, all of which passed.
func TestPassAtK(t *testing.T) {
	set := &Set{Epochs: 5}
	var rollouts []Rollout
	for i := range 5 {
		rollouts = append(rollouts, completed("1", score("e", truth(i < 2))))
	}
	for range 3 {
		rollouts = append(rollouts, completed("2", score("e", 1)))
	}
	rollouts = append(rollouts, in(StateFaulted, "2"), in(StateFaulted, "2"))
	s := summarize(set, rollouts...)
	want := []struct {
		n           int
		atK, powerK float64
	}{{2, (0.4 + 1) / 2, (0.4 + 1) / 2}, {2, (0.7 + 1) / 2, (0.1 + 1) / 2}, {2, (0.9 + 1) / 2, 0.5}, {1, 1, 0}, {1, 1, 0}}
	for i, w := range want {
		p := s.PassK[i]
		if p.K != i+1 || p.N != w.n {
			t.Errorf("k %d, n %d, want %d and %d", p.K, p.N, i+1, w.n)
		}
		near(t, fmt.Sprintf("pass@%d", p.K), p.PassAtK, w.atK)
		near(t, fmt.Sprintf("pass^%d", p.K), p.PassHatK, w.powerK)
	}
}

func TestChoicesIsStable(t *testing.T) {
	p := choices(9_000, 10_000, 5_000) // C(10000,5000) is far beyond a float
	if math.IsNaN(p) || p < 0 || p > 1 {
		t.Errorf("got %v", p)
	}
	near(t, "C(50,3)/C(100,3)", ptr(choices(50, 100, 3)), 19600.0/161700)
}

func ptr(v float64) *float64 { return &v }

func TestAgentsAreToldApart(t *testing.T) {
	set := &Set{Thresholds: Thresholds{Pass: 1}}
	s := NewStatistics(set)
	for _, evaluation := range []string{"1", "2"} {
		for agent, v := range []float64{1, 0} {
			r := completed(evaluation, score("e", v))
			r.Agent = []string{"good", "bad"}[agent]
			s.Add(r)
		}
	}
	summary := s.Summary()
	near(t, "all", summary.Score.Mean, 0.5)
	near(t, "good", summary.Agents["good"].Score.Mean, 1)
	near(t, "bad", summary.Agents["bad"].Score.Mean, 0)
	if summary.Evaluations.Total != 4 || summary.Agents["good"].Evaluations.Total != 2 {
		t.Errorf("evaluations %+v", summary.Evaluations)
	}
	if one := summarize(set, completed("1", score("e", 1))); one.Agents != nil {
		t.Error("one agent needs no breakdown")
	}
}

func TestErrorsAndNotRunAreCounted(t *testing.T) {
	s := summarize(&Set{Evaluators: []Definition{{ID: "judge", Weight: 1}}},
		completed("1", Result{EvaluatorID: "judge", NotRun: "no model"}, Result{EvaluatorID: "broken", Error: "boom"}))
	if s.Evaluators[0].ID != "judge" || s.Evaluators[0].NotRun != 1 || s.Evaluators[0].N != 0 || s.Evaluators[1].Errors != 1 {
		t.Errorf("%+v", s.Evaluators)
	}
	absent(t, "score of a judge that was not run", s.Evaluators[0].Score)
	near(t, "score of a broken evaluator", s.Evaluators[1].Score, 0)
}

func TestSummaryJSON(t *testing.T) {
	s := summarize(&Set{}, completed("1", score("e", 1)))
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	estimate := `"n":1,"mean":1,"standardError":null,"min":1,"max":1,"passed":1,"passRate":1,"passRateLow":0.20654931437723745,"passRateHigh":1`
	want := `{"rollouts":{"total":1,"completed":1,"suspended":0,"faulted":0,"cancelled":0,"notRun":0,"open":0},` +
		`"evaluations":{"total":1,"scored":1,"incomplete":0,"unscored":0},"score":{` + estimate + `},"scoreWithFaulted":{` + estimate + `},"evaluatorScore":1,` +
		`"evaluators":[{"id":"e","name":"e","weight":1,` + estimate + `,"score":1,"errors":0,"notRun":0}],"passK":[{"k":1,"n":1,"passAtK":1,"passHatK":1}]}`
	if string(got) != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestThresholds(t *testing.T) {
	s := summarize(&Set{}, completed("1", score("e", 1)), completed("2", score("e", 0.5)), in(StateFaulted, "3"))
	for _, v := range []struct {
		name string
		t    Thresholds
		want string
	}{
		{"none", Thresholds{}, `[]`},
		{"met", Thresholds{Score: ptr(0.75), ScoreWithFaulted: ptr(0.5), PassRate: ptr(0.5), Evaluators: map[string]float64{"e": 0.7}}, `[]`},
		{"missed", Thresholds{Score: ptr(0.8), ScoreWithFaulted: ptr(0.6), PassRate: ptr(0.9), Evaluators: map[string]float64{"e": 0.8, "never": 0}},
			`[score: 0.75 is less than 0.8 score with faulted rollouts as 0: 0.5 is less than 0.6 pass rate: 0.5 is less than 0.9 ` +
				`evaluator e: 0.75 is less than 0.8 evaluator never: nothing was scored, expected at least 0]`},
	} {
		if got := fmt.Sprint(v.t.Judge(s)); got != v.want {
			t.Errorf("%s:\n got %s\nwant %s", v.name, got, v.want)
		}
	}
}
