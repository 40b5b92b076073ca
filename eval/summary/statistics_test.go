package summary

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/pyvalue"
)

func score(id string, v float64) eval.Result {
	return eval.Result{EvaluatorID: id, EvaluatorName: id, Score: &v, Scale: 1}
}

func completed(evaluation string, results ...eval.Result) Rollout {
	return Rollout{EvaluationID: evaluation, Agent: "a", State: eval.StateCompleted, Results: results}
}

// crashed is a rollout that faulted by its agent's own fault.
func crashed(evaluation string) Rollout {
	return Rollout{EvaluationID: evaluation, Agent: "a", State: eval.StateFaulted, AgentsFault: true}
}

func in(state eval.State, evaluation string) Rollout {
	return Rollout{EvaluationID: evaluation, Agent: "a", State: state}
}

func summarize(set *eval.Set, rollouts ...Rollout) Summary {
	if set.Thresholds.Pass == 0 {
		set.Thresholds.Pass = 1
	}
	s := New(set, kinds.All)
	for _, r := range rollouts {
		s.Add(r)
	}
	return s.Summary()
}

func TestSetScoreVectors(t *testing.T) {
	weighted := func(a, b float64) *eval.Set {
		return &eval.Set{Evaluators: []eval.Definition{{ID: "exact", Weight: a}, {ID: "contains", Weight: b}}}
	}
	for _, v := range []struct {
		name     string
		set      *eval.Set
		rollouts []Rollout
		want     float64
	}{
		{"several results of one evaluator count as their mean", weighted(1, 1),
			[]Rollout{completed("1", score("exact", 0.8), score("exact", 1), score("exact", 0.6)), completed("2", score("exact", 0.5))}, 0.65},
		{"weights 2 and 1", weighted(2, 1), []Rollout{completed("1", score("exact", 0.8), score("contains", 0.6))}, 2.2 / 3},
		{"weights 2 and 0.5", weighted(2, 0.5), []Rollout{completed("1", score("exact", 0.8), score("contains", 0.6))}, 0.76},
		{"mean of the evaluators' means", weighted(1, 1),
			[]Rollout{completed("1", score("exact", 0.8), score("contains", 0.9)), completed("2", score("exact", 1), score("contains", 0.7))}, 0.85},
		{"three evaluators on different evaluations", &eval.Set{}, []Rollout{
			completed("1", score("e", 0.5), score("e", 1), score("c", 1), score("t", 1)), completed("2", score("e", 0), score("c", 1)), completed("3", score("e", 1), score("t", 1))},
			(1.75/3 + 1 + 1) / 3},
	} {
		t.Run(v.name, func(t *testing.T) { evaltest.Near(t, "score", summarize(v.set, v.rollouts...).EvaluatorScore, v.want) })
	}
	evaltest.Absent(t, "score of nothing", summarize(&eval.Set{}).EvaluatorScore)
}

func TestRolloutScore(t *testing.T) {
	defs := []eval.Definition{{ID: "a", Weight: 3}, {ID: "b", Weight: 1}, {ID: "zero", Weight: 0}}
	line := score("a", 0)
	line.Line = true
	eighty := 80.0
	for _, v := range []struct {
		name    string
		results []eval.Result
		want    any
	}{
		{"weights", []eval.Result{score("a", 1), score("b", 0)}, 0.75},
		{"a verifier that the set does not define weighs 1", []eval.Result{score("a", 1), score("verifier", 0)}, 0.75},
		{"lines do not count", []eval.Result{line, score("a", 1)}, 1.0},
		{"evaluators that were not run do not count", []eval.Result{score("a", 1), {EvaluatorID: "b", NotRun: "no model"}}, 1.0},
		{"an output that does not fit counts as 0", []eval.Result{score("a", 1), {EvaluatorID: "b", Score: new(float64), Error: "no such path"}}, 0.75},
		{"an evaluator that failed does not count", []eval.Result{score("a", 1), {EvaluatorID: "b", Error: "boom"}}, 1.0},
		{"the legacy scale", []eval.Result{{EvaluatorID: "b", Score: &eighty, Scale: 100}}, 0.8},
		{"no results", nil, nil},
		{"nothing that counts", []eval.Result{{EvaluatorID: "a", NotRun: "x"}}, nil},
		{"no weight", []eval.Result{score("zero", 1)}, nil},
	} {
		t.Run(v.name, func(t *testing.T) {
			if got := evaltest.Deref(RolloutScore(defs, v.results)); got != v.want {
				t.Errorf("got %v, want %v", got, v.want)
			}
		})
	}
}

// Given an evaluation of three epochs with the scores 1, 0.5 and 0.
func TestReducers(t *testing.T) {
	for _, v := range []struct {
		reduce eval.Reducer
		pass   float64
		want   float64
	}{
		{eval.ReduceMean, 1, 0.5}, {"", 1, 0.5}, {eval.ReduceAtLeastOne, 1, 1}, {eval.ReduceAll, 1, 0}, {eval.ReduceAll, 0.5, 0}, {eval.ReduceAtLeastOne, 0.1, 1},
	} {
		set := &eval.Set{Epochs: 3, Reduce: v.reduce, Thresholds: eval.Thresholds{Pass: v.pass}}
		s := summarize(set, completed("1", score("e", 1)), completed("1", score("e", 0.5)), completed("1", score("e", 0)))
		evaltest.Near(t, string(v.reduce), s.Score.Mean, v.want)
		evaltest.Near(t, string(v.reduce)+" of the evaluator", s.Evaluators[0].Mean, v.want)
		if s.Score.N != 1 {
			t.Errorf("n %d, want 1: epochs are reduced before anything is averaged", s.Score.N)
		}
		evaltest.Absent(t, "standard error of one evaluation", s.Score.StandardError)
	}
}

func TestAnEvaluationCountsOnceAllItsEpochsAreTerminal(t *testing.T) {
	set := &eval.Set{Epochs: 2}
	for _, open := range []eval.State{eval.StatePending, eval.StateRunning, eval.StateSuspended, eval.StateEvaluating} {
		s := summarize(set, completed("1", score("e", 1)), in(open, "1"), completed("2", score("e", 0)), completed("2", score("e", 0)))
		evaltest.Near(t, "score", s.Score.Mean, 0)
		if s.Coverage != (Coverage{Evaluations: 2, Scored: 1, Incomplete: 1, EvaluatorResults: 3}) || s.Evaluators[0].N != 1 {
			t.Errorf("%s: %+v", open, s.Coverage)
		}
	}
}

// Given a completed evaluation, one whose agent crashed, one whose environment failed, a
// cancelled and a suspended one and one that nothing scored: each is counted where it belongs, and
// only the agent's own fault is 0.
func TestFaultsHaveAnOwner(t *testing.T) {
	s := summarize(&eval.Set{}, completed("1", score("e", 1)), crashed("2"), in(eval.StateFaulted, "3"), in(eval.StateCancelled, "4"), in(eval.StateSuspended, "5"), completed("6"))
	evaltest.Near(t, "score", s.Score.Mean, 0.5)
	evaltest.Near(t, "completed", s.ScoreCompleted.Mean, 1)
	evaltest.Near(t, "pass rate", s.PassRate.Mean, 0.5)
	if s.Rollouts != (RolloutCounts{Total: 6, Completed: 2, Faulted: 2, Cancelled: 1, Suspended: 1}) || s.Faults != (FaultCounts{1, 1}) {
		t.Errorf("rollouts %+v, faults %+v", s.Rollouts, s.Faults)
	}
	if s.Coverage != (Coverage{Evaluations: 6, Scored: 2, Unscored: 1, Incomplete: 1, Cancelled: 1, Faulted: 1, EvaluatorResults: 1}) {
		t.Errorf("coverage %+v", s.Coverage)
	}
}

func TestFaultedEpochs(t *testing.T) {
	set := &eval.Set{Epochs: 4}
	s := summarize(set, completed("1", score("e", 1)), crashed("1"), completed("1", score("e", 0.5)), in(eval.StateFaulted, "1"))
	evaltest.Near(t, "completed", s.ScoreCompleted.Mean, 0.75)
	evaltest.Near(t, "score", s.Score.Mean, 0.5)
	evaltest.Near(t, "pass rate", s.PassRate.Mean, 1.0/3)
}

// An evaluator that was to score a rollout gives its agent's crash a 0 as well.
func TestACrashCountsForEachEvaluatorThatWasAsked(t *testing.T) {
	one, two := completed("1", score("e", 1)), crashed("2")
	one.Evaluation = &eval.Evaluation{Criteria: map[string]json.RawMessage{"e": nil}}
	two.Evaluation = one.Evaluation
	s := summarize(&eval.Set{Evaluators: []eval.Definition{{ID: "e", Weight: 1}, {ID: "other", Weight: 1}}}, one, two)
	evaltest.Near(t, "mean", s.Evaluators[0].Mean, 0.5)
	evaltest.Near(t, "score as UiPath computes it", s.Evaluators[0].Score, 1)
	if s.Evaluators[1].N != 0 {
		t.Errorf("the evaluator that was not asked: %+v", s.Evaluators[1])
	}
}

// Given 5 attempts of which 2 passed: pass@2 = 1 - C(3,2)/C(5,2) = 0.7, pass^2 = C(2,2)/C(5,2) =
// 0.1. A second evaluation has only 3 completed attempts, all of which passed.
func TestPassAtK(t *testing.T) {
	set := &eval.Set{Epochs: 5}
	var rollouts []Rollout
	for i := range 5 {
		rollouts = append(rollouts, completed("1", score("e", pyvalue.Truth(i < 2))))
	}
	for range 3 {
		rollouts = append(rollouts, completed("2", score("e", 1)))
	}
	rollouts = append(rollouts, in(eval.StateFaulted, "2"), in(eval.StateFaulted, "2"))
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
		evaltest.Near(t, fmt.Sprintf("pass@%d", p.K), p.PassAtK, w.atK)
		evaltest.Near(t, fmt.Sprintf("pass^%d", p.K), p.PassHatK, w.powerK)
	}
}

// A curve over another set of evaluations for each k may fall, so that there is one over those
// with all their epochs.
func TestPassAtKOverOneSet(t *testing.T) {
	set := &eval.Set{Epochs: 4}
	var rollouts []Rollout
	for i := range 4 {
		rollouts = append(rollouts, completed("1", score("e", pyvalue.Truth(i == 0))))
	}
	rollouts = append(rollouts, completed("2", score("e", 1)), completed("2", score("e", 1)), in(eval.StateFaulted, "2"), in(eval.StateFaulted, "2"))
	s := summarize(set, rollouts...)
	if evaltest.Near(t, "pass@2 over both", s.PassK[1].PassAtK, 0.75); *s.PassK[2].PassAtK != 0.75 || s.PassK[2].N != 1 {
		t.Errorf("got %+v", s.PassK)
	}
	for i, want := range []float64{0.25, 0.5, 0.75, 1} {
		evaltest.Near(t, "pass@k over those with all epochs", s.PassKCommon[i].PassAtK, want)
		if s.PassKCommon[i].N != 1 {
			t.Errorf("got %+v", s.PassKCommon[i])
		}
	}
	if all := summarize(set, rollouts[:4]...); all.PassKCommon != nil || all.PassKWithFaulted != nil {
		t.Error("there is nothing else to say where all epochs count")
	}
}

func ptr(v float64) *float64 { return &v }

func atLeast(v float64) *eval.Threshold { return &eval.Threshold{Min: v} }

func TestAgentsAreToldApart(t *testing.T) {
	set := &eval.Set{Thresholds: eval.Thresholds{Pass: 1}}
	s := New(set, kinds.All)
	for _, evaluation := range []string{"1", "2"} {
		for agent, v := range []float64{1, 0} {
			r := completed(evaluation, score("e", v))
			r.Agent = []string{"good", "bad"}[agent]
			s.Add(r)
		}
	}
	summary := s.Summary()
	evaltest.Absent(t, "together", summary.Score.Mean)
	if len(summary.Agents) != 2 || summary.Agents[0].Agent != "good" || summary.Coverage.Evaluations != 4 || summary.Agents[0].Coverage.Evaluations != 2 {
		t.Fatalf("got %+v", summary)
	}
	evaltest.Near(t, "good", summary.Agents[0].Score.Mean, 1)
	evaltest.Near(t, "bad", summary.Agents[1].Score.Mean, 0)
	if one := summarize(set, completed("1", score("e", 1))); one.Agents != nil || one.Agent != "a" {
		t.Error("one agent needs no breakdown")
	}
}

func TestErrorsAndNotRunAreCounted(t *testing.T) {
	s := summarize(&eval.Set{Evaluators: []eval.Definition{{ID: "judge", Weight: 1}}},
		completed("1", eval.Result{EvaluatorID: "judge", NotRun: "no model"}, eval.Result{EvaluatorID: "broken", Error: "boom"}, score("fits", 0.5)))
	if s.Evaluators[0].ID != "judge" || s.Evaluators[0].NotRun != 1 || s.Evaluators[0].N != 0 || s.Evaluators[1].Errors != 1 {
		t.Errorf("%+v", s.Evaluators)
	}
	evaltest.Absent(t, "score of a judge that was not run", s.Evaluators[0].Score)
	evaltest.Absent(t, "score of a broken evaluator", s.Evaluators[1].Score)
	evaltest.Near(t, "the rest", s.Score.Mean, 0.5)
	if s.Coverage != (Coverage{Evaluations: 1, Scored: 1, EvaluatorResults: 1, EvaluatorErrors: 1, EvaluatorsNotRun: 1}) {
		t.Errorf("coverage %+v", s.Coverage)
	}
}

func TestSummaryJSON(t *testing.T) {
	s := summarize(&eval.Set{}, completed("1", score("e", 1)))
	got, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	estimate := `"n":1,"clusters":1,"mean":1,"standardError":null,"low":0.025,"high":1,"interval":"gaffke","level":0.95`
	want := `{"epochs":1,"reduce":"","thresholds":{"pass":1},"agent":"a","rollouts":{"total":1,"completed":1,"suspended":0,"faulted":0,"cancelled":0,"open":0},` +
		`"faults":{"agent":0,"environment":0},"coverage":{"evaluations":1,"scored":1,"unscored":0,"incomplete":0,"cancelled":0,"faulted":0,"evaluatorResults":1,` +
		`"evaluatorErrors":0,"evaluatorsNotRun":0},"score":{` + estimate + `},"scoreCompleted":{` + estimate + `},"passRate":{` + estimate + `},"evaluationsPassed":1,` +
		`"evaluatorScore":1,"evaluators":[{"id":"e","name":"e","weight":1,` + estimate + `,"passRate":{` + estimate + `},"evaluationsPassed":1,"score":1,"errors":0,"notRun":0}],` +
		`"passK":[{"k":1,"n":1,"passAtK":1,"passAtKStandardError":null,"passHatK":1,"passHatKStandardError":null}],"gates":[]}`
	if string(got) != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestGates(t *testing.T) {
	for _, v := range []struct {
		name string
		t    eval.Thresholds
		want string
	}{
		{"none", eval.Thresholds{}, `[]`},
		{"met", eval.Thresholds{Score: atLeast(0.5), ScoreWithFaulted: atLeast(0.5), PassRate: atLeast(0.3), Evaluators: map[string]eval.Threshold{"e": {Min: 0.7}}},
			`[pass score: 0.5, expected at least 0.5 pass scoreWithFaulted: 0.5, expected at least 0.5 pass passRate: 0.333333, expected at least 0.3 pass evaluators.e: 0.75, expected at least 0.7]`},
		{"missed", eval.Thresholds{Score: atLeast(0.8), PassRate: atLeast(0.9), Evaluators: map[string]eval.Threshold{"e": {Min: 0.8}, "never": {Min: 0.1}}},
			`[fail score: 0.5 is less than 0.8 fail passRate: 0.333333 is less than 0.9 fail evaluators.e: 0.75 is less than 0.8 ` +
				`undecided evaluators.never: undecided, from 0 to 1 by what is missing, expected at least 0.1]`},
	} {
		v.t.Pass = 1
		got := []string{}
		for _, g := range summarize(&eval.Set{Thresholds: v.t}, completed("1", score("e", 1)), completed("2", score("e", 0.5)), crashed("3")).Gates {
			got = append(got, string(g.Verdict)+" "+g.String())
		}
		if fmt.Sprint(got) != v.want {
			t.Errorf("%s:\n got %s\nwant %s", v.name, got, v.want)
		}
	}
}

// What is missing is anything from 0 to 1.
func TestGatesOnBounds(t *testing.T) {
	unscored := completed("3")
	for _, v := range []struct {
		name     string
		epochs   int
		rollouts []Rollout
		verdict  GateVerdict
		low      float64
		high     float64
	}{
		{"a suspended one could still save it", 1, []Rollout{completed("1", score("e", 1)), in(eval.StateSuspended, "2")}, GateUndecided, 0.5, 1},
		{"a suspended one cannot save it", 1, []Rollout{completed("1", score("e", 0)), completed("2", score("e", 0)), in(eval.StateSuspended, "3")}, GateFail, 0, 1.0 / 3},
		{"cancelled is open", 1, []Rollout{completed("1", score("e", 1)), in(eval.StateCancelled, "2")}, GateUndecided, 0.5, 1},
		{"unscored is open", 1, []Rollout{completed("1", score("e", 1)), completed("2", score("e", 1)), unscored}, GateUndecided, 2.0 / 3, 1},
		{"a fault of the environment is open", 1, []Rollout{completed("1", score("e", 1)), in(eval.StateFaulted, "2")}, GateUndecided, 0.5, 1},
		{"a fault of the agent is not", 1, []Rollout{completed("1", score("e", 1)), crashed("2")}, GateFail, 0.5, 0.5},
		{"V5: an epoch lost to the environment", 2, []Rollout{completed("1", score("e", 1)), in(eval.StateFaulted, "1")}, GateUndecided, 0.5, 1},
		{"V5: an epoch that nothing scored", 2, []Rollout{completed("1", score("e", 1)), completed("1")}, GateUndecided, 0.5, 1},
		{"V2: an evaluator that was not run", 1, []Rollout{completed("1", score("e", 1), eval.Result{EvaluatorID: "judge", NotRun: "no key"})}, GateUndecided, 0.5, 1},
		{"an evaluator that failed", 1, []Rollout{completed("1", score("e", 0), eval.Result{EvaluatorID: "judge", Error: "boom"})}, GateFail, 0, 0.5},
		{"an open epoch", 2, []Rollout{completed("1", score("e", 1)), in(eval.StatePending, "1")}, GateUndecided, 0.5, 1},
		{"a cancelled epoch", 2, []Rollout{completed("1", score("e", 0)), in(eval.StateCancelled, "1")}, GateFail, 0, 0.5},
	} {
		set := &eval.Set{Epochs: v.epochs, Thresholds: eval.Thresholds{Pass: 1, Score: atLeast(0.9)}}
		for _, g := range summarize(set, v.rollouts...).Gates {
			if g.Verdict != v.verdict || math.Abs(g.Low-v.low) > 1e-9 || math.Abs(g.High-v.high) > 1e-9 {
				t.Errorf("%s: got %+v", v.name, g)
			}
		}
	}
}

// V13: sums of scores that are 0 but for their rounding were printed as 5.55e-17.
func TestGatesPrintNoRounding(t *testing.T) {
	g := Gate{What: "score", Min: 0.5, Low: 5.55e-17, High: 5.55e-17, Verdict: GateFail}
	if got := g.String(); got != "score: 0 is less than 0.5" {
		t.Errorf("got %q", got)
	}
}

// V5: with three of four epochs lost, the one that is left is no proof that all pass.
func TestLostEpochsWhereAllMustPass(t *testing.T) {
	lost := in(eval.StateFaulted, "1")
	set := &eval.Set{Epochs: 4, Reduce: eval.ReduceAll, Thresholds: eval.Thresholds{Pass: 1, Score: atLeast(0.9)}}
	g := summarize(set, completed("1", score("e", 1)), lost, lost, lost).Gates[0]
	if g.Verdict != GateUndecided || g.Low != 0 || g.High != 1 || g.Missing != 1 {
		t.Errorf("got %+v", g)
	}
}

// V2: a gate says what it would be by what was run, for whoever accepts that the rest was not.
func TestGatesWithoutWhatWasNotRun(t *testing.T) {
	notRun := eval.Result{EvaluatorID: "judge", NotRun: "no key"}
	set := &eval.Set{Thresholds: eval.Thresholds{Pass: 1, Score: atLeast(0.9)}}
	g := summarize(set, completed("1", score("e", 1), notRun), completed("2", score("e", 1))).Gates[0]
	if g.Verdict != GateUndecided || g.Low != 0.75 || g.Ran == nil || g.Ran.Verdict != GatePass || g.Ran.Low != 1 {
		t.Errorf("got %+v", g)
	}
	if g := summarize(set, completed("1", score("e", 1))).Gates[0]; g.Ran != nil {
		t.Errorf("everything was run: got %+v", g)
	}
}

// Good 1.0 and bad 0.8 do not meet 0.9 together.
func TestGatesHoldForEachAgent(t *testing.T) {
	s := New(&eval.Set{Thresholds: eval.Thresholds{Pass: 1, Score: atLeast(0.9)}}, kinds.All)
	for i := range 10 {
		for _, agent := range []string{"good", "bad"} {
			r := completed(fmt.Sprint(i), score("e", pyvalue.Truth(agent == "good" || i > 1)))
			r.Agent = agent
			s.Add(r)
		}
	}
	gates := s.Summary().Gates
	if len(gates) != 2 || gates[0].Agent != "good" || gates[0].Verdict != GatePass || gates[1].Agent != "bad" || gates[1].Verdict != GateFail {
		t.Errorf("got %+v", gates)
	}
}
