package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/testenv"
)

func vector(t *testing.T, name string, into any) {
	t.Helper()
	data, err := os.ReadFile("../stats/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]json.RawMessage{}
	if err := errors.Join(json.Unmarshal(data, &all), json.Unmarshal(all[name], into)); err != nil {
		t.Fatal(err)
	}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > 1e-6 {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func ptr(x float64) *float64 { return &x }

// Marks in the epochs of an evaluation that are no scores.
const (
	open = -1.0 // suspended
	lost = -2.0 // faulted by its environment
	own  = -3.0 // faulted by the agent itself
)

// side runs the scores through the statistics, as a report does: each evaluation has its epochs.
func side(id string, epochs int, evaluations ...[]float64) Side {
	s := Side{Source: Source{RunID: id, Agents: []string{"agent of " + id}, N: len(evaluations), Final: true}, Epochs: epochs, Pass: 1,
		Evaluators: []Evaluator{{ID: "e", Digest: "d"}}}
	statistics := summary.New(&eval.Set{Epochs: epochs, Thresholds: eval.Thresholds{Pass: 1}, Evaluators: []eval.Definition{{ID: "e", Name: "e", Weight: 1}}}, nil)
	statistics.Outcomes = func(o summary.Outcome) { s.Evaluations = append(s.Evaluations, Evaluation{Outcome: o}) }
	for i, scores := range evaluations {
		name := fmt.Sprint("e", i+1)
		for _, y := range scores {
			r := summary.Rollout{EvaluationID: name, Agent: s.Agents[0], State: eval.StateCompleted, Evaluation: &eval.Evaluation{ID: name, Criteria: map[string]json.RawMessage{"e": nil}}}
			switch y {
			case open:
				r.State, s.Final = eval.StateSuspended, false
			case lost:
				r.State = eval.StateFaulted
			case own:
				r.State, r.AgentsFault = eval.StateFaulted, true
			default:
				r.Results = []eval.Result{{EvaluatorID: "e", EvaluatorName: "e", Score: ptr(y), Scale: 1}}
			}
			statistics.Add(r)
		}
	}
	statistics.Close()
	return s
}

// Given sides whose tasks and images are known, then only those that differ are named, each evaluation
// once, the first ones of many; what one side does not know is no difference.
func TestTasksAndImagesThatDiffer(t *testing.T) {
	y := make([]float64, 14)
	a, b := scores("a", y...), scores("b", y...)
	for i := range y {
		x, z := &a.Evaluations[i], &b.Evaluations[i]
		x.Task, x.Images, z.Task = "aaaa", []string{"sha256:0123456789abcdef"}, "aaaa"
		z.Images = x.Images
		switch i {
		case 0:
			x.Task, x.Images = "", nil // of an earlier version
		case 1:
			x.Images, z.Images = []string{"2", "1"}, []string{"1", "2"}
		case 2:
			z.Task = "bbbb"
		default:
			z.Images = []string{"sha256:f", "sha256:e"}
		}
	}
	d, err := Compare(a, b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	names := ""
	for i := 4; i <= 13; i++ {
		names += fmt.Sprintf("e%d (0123456789ab in A, e and f in B), ", i)
	}
	want := []string{"tasks: 1 of 13 evaluations have other files: e3 (aaaa in A, bbbb in B)",
		"images: 11 of 13 evaluations ran in another image: " + names + "and 1 more"}
	if got := d.PlanDifferences[len(d.PlanDifferences)-min(2, len(d.PlanDifferences)):]; !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	same := scores("a", y...)
	if d, err := Compare(same, scores("b", y...), Options{}); err != nil || strings.Contains(strings.Join(d.PlanDifferences, ""), "evaluations") {
		t.Errorf("%v, %v", d, err)
	}
}

// scores are evaluations of one epoch.
func scores(id string, y ...float64) Side {
	var evaluations [][]float64
	for _, one := range y {
		evaluations = append(evaluations, []float64{one})
	}
	return side(id, 1, evaluations...)
}

// passing are n evaluations of which the first ones fail.
func passing(id string, n, fails int) Side {
	y := make([]float64, n)
	for i := fails; i < n; i++ {
		y[i] = 1
	}
	return scores(id, y...)
}

func mustCompare(t *testing.T, a, b Side, o Options) *Document {
	t.Helper()
	if o.Power == 0 {
		o.Settings = stats.DefaultSettings
	}
	d, err := Compare(a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestV20Verdicts(t *testing.T) {
	var v struct {
		Rows []struct {
			CI          [2]float64
			Margin      float64
			Verdict     Verdict
			NoWorseThan summary.GateVerdict
		}
	}
	vector(t, "V20", &v)
	for _, row := range v.Rows {
		if got := verdict(&row.CI[0], &row.CI[1], &row.Margin, 0.01); got != row.Verdict {
			t.Errorf("%+v: got %s", row, got)
		}
		if got := noWorse(row.CI[0], row.CI[1], row.Margin); got != row.NoWorseThan {
			t.Errorf("%+v: got %s", row, got)
		}
	}
	if got := verdict(ptr(0.01), ptr(0.2), nil, 0.06); got != Undecided {
		t.Errorf("an interval above 0 that is likely by chance: %s", got)
	}
	if got := verdict(nil, nil, ptr(1), 0.01); got != Undecided {
		t.Errorf("no interval: %s", got)
	}
}

func TestV22MissingPairs(t *testing.T) {
	var v struct {
		Pairs  int
		Delta  float64
		Bounds [2]float64
	}
	vector(t, "V22", &v)
	a, b := scores("a", 1, 0, 1, 1, lost, 0.5), scores("b", 1, 1, 0, lost, 1, 1)
	d := mustCompare(t, a, b, Options{})
	if d.Pairs != v.Pairs || len(d.Missing) != 2 || d.Missing[0].EvaluationID != "e4" || d.Missing[0].Open || d.Missing[0].B != nil {
		t.Errorf("got %+v", d)
	}
	near(t, "delta", d.Comparisons[0].Delta, v.Delta)
	near(t, "worst", d.Comparisons[0].Bounds[0], v.Bounds[0])
	near(t, "best", d.Comparisons[0].Bounds[1], v.Bounds[1])

	zero := mustCompare(t, a, b, Options{MissingZero: true})
	if zero.Pairs != 6 || len(zero.Missing) != 0 {
		t.Errorf("got %+v", zero)
	}
	near(t, "delta with 0 for what is missing", zero.Comparisons[0].Delta, (0+1-1-1+1+0.5)/6)
}

// V3: what its environment lost could have failed.
func TestLostPairsMayHaveFailed(t *testing.T) {
	nothing := Options{NoWorseThan: ptr(0), Margin: ptr(0.5)}
	d := mustCompare(t, scores("a", repeat(40, 0.9, 0, 0)...), scores("b", repeat(5, 0.9, 35, lost)...), nothing)
	g := d.Gates[0]
	if g.Verdict != summary.GateUndecided || g.Lost != 35 || g.Open != 0 || *g.Low > -0.7 || g.EvaluationsNeeded != nil || d.Comparisons[0].Verdict != Undecided {
		t.Errorf("35 of 40 were lost: got %+v, %+v", g, d.Comparisons[0])
	}
	half := Options{NoWorseThan: ptr(0.5)}
	d = mustCompare(t, passing("a", 10, 0), scores("b", repeat(5, 1, 5, lost)...), half)
	if d.Gates[0].Verdict != summary.GateUndecided {
		t.Errorf("5 of 10 were lost: got %+v", d.Gates[0])
	}
	d = mustCompare(t, passing("a", 40, 0), scores("b", repeat(20, 0, 20, lost)...), nothing)
	if d.Gates[0].Verdict != summary.GateFail {
		t.Errorf("whatever was lost, half have failed: got %+v", d.Gates[0])
	}
	// V5: three of four epochs were lost.
	d = mustCompare(t, side("a", 4, []float64{1, 1, 1, 1}, []float64{1, 1, 1, 1}), side("b", 4, []float64{1, lost, lost, lost}, []float64{1, 1, 1, 1}), nothing)
	if r := d.Comparisons[0]; d.Gates[0].Lost != 1 || r.Bounds[0] != -0.375 || r.Bounds[1] != 0 {
		t.Errorf("epochs were lost: got %+v, bounds %v", d.Gates[0], r.Bounds)
	}
}

// V13: the bounds of an evaluator's row left out the evaluations that were lost on both sides.
func TestBoundsOfEvaluators(t *testing.T) {
	d := mustCompare(t, scores("a", 1, 0, lost), scores("b", 1, 0, lost), Options{})
	for _, r := range d.Comparisons {
		near(t, r.By+" worst", r.Bounds[0], -1.0/3)
		near(t, r.By+" best", r.Bounds[1], 1.0/3)
	}
}

func TestV24WholeComparison(t *testing.T) {
	var v struct {
		Delta, SE, SignFlipP float64
		CI95, Bootstrap      [2]float64
		Verdict              Verdict
	}
	vector(t, "V24", &v)
	a := side("a", 2, []float64{1, 1}, []float64{1, 0}, []float64{0, 0}, []float64{1, 1}, []float64{0, 1}, []float64{0, 0})
	b := side("b", 2, []float64{1, 1}, []float64{1, 1}, []float64{1, 0}, []float64{1, 0}, []float64{1, 1}, []float64{0, 1})
	d := mustCompare(t, a, b, Options{Settings: stats.Settings{Power: 0.8, Resamples: 10_000, Seed: 1, Interval: stats.Student}})
	r := d.Comparisons[0]
	if r.By != "score" || r.Verdict != v.Verdict || len(d.Comparisons) != 3 || d.Comparisons[2].By != "evaluator:e" {
		t.Errorf("got %+v", d)
	}
	near(t, "delta", r.Delta, v.Delta)
	near(t, "standard error", *r.StandardError, v.SE)
	near(t, "low", *r.Low, v.CI95[0])
	near(t, "high", *r.High, v.CI95[1])
	near(t, "sign flip", r.SignFlipP, v.SignFlipP)
	near(t, "adjusted", r.HolmP, 1)
	near(t, "bootstrap", r.Bootstrap.High, v.Bootstrap[1])
	if len(d.Items) != 5 || d.Items[0].EvaluationID != "e4" || d.Items[0].D != -0.5 || d.Items[0].EpochsB != 2 {
		t.Errorf("items: got %+v", d.Items)
	}
}

// A regression of 6 in 40 is one, of 1 in 8 it may be.
func TestGates(t *testing.T) {
	zero := Options{NoWorseThan: ptr(0), BetterThan: ptr(0)}
	for _, c := range []struct {
		name              string
		a, b              Side
		noWorse, better   summary.GateVerdict
		openEvaluations   int
		evaluationsWanted int
	}{
		{"6 of 40 became worse", passing("a", 40, 0), passing("b", 40, 6), summary.GateFail, summary.GateFail, 0, 0},
		{"1 of 8 became worse", passing("a", 8, 0), passing("b", 8, 1), summary.GateUndecided, summary.GateUndecided, 0, 63},
		{"10 of 40 became better", passing("a", 40, 10), passing("b", 40, 0), summary.GatePass, summary.GatePass, 0, 0},
		{"the same scores", scores("a", 0.5, 0.25, 1), scores("b", 0.5, 0.25, 1), summary.GateUndecided, summary.GateUndecided, 0, 0},
		{"one pair of scores has a wide one", scores("a", 0.5), scores("b", 0.75), summary.GateUndecided, summary.GateUndecided, 0, 0},
		{"one pair of verdicts has a wide one", scores("a", 0), scores("b", 1), summary.GateUndecided, summary.GateUndecided, 0, 0},
		{"open evaluations may save it", passing("a", 40, 4), withOpen(passing("b", 40, 4), 8), summary.GateUndecided, summary.GateUndecided, 8, 0},
		{"open evaluations cannot save it", passing("a", 40, 0), withOpen(passing("b", 40, 20), 2), summary.GateFail, summary.GateFail, 2, 0},
		{"the agent's own faults are failures", passing("a", 40, 0), scores("b", repeat(34, 1, 6, own)...), summary.GateFail, summary.GateFail, 0, 0},
	} {
		d := mustCompare(t, c.a, c.b, zero)
		if d.Gates[0].Verdict != c.noWorse || d.Gates[1].Verdict != c.better || d.Gates[0].Open != c.openEvaluations {
			t.Errorf("%s: got %+v", c.name, d.Gates)
		}
		if n := d.Gates[0].EvaluationsNeeded; c.evaluationsWanted > 0 && (n == nil || *n != c.evaluationsWanted) {
			t.Errorf("%s: needs %v evaluations", c.name, n)
		}
	}
}

// Evaluations that all pass or fail alike on both sides are no proof that the next one will. How many
// are proof is said, and so many are.
func TestGatesWhereNothingDiffers(t *testing.T) {
	for _, c := range []struct {
		name      string
		agents, n int
		margin    float64
		verdict   summary.GateVerdict
		needed    int
	}{
		{"one agent", 1, 17, 0.01, summary.GateUndecided, 276},
		{"one agent, enough", 1, 276, 0.01, summary.GatePass, 0},
		{"two agents", 2, 17, 0.05, summary.GateUndecided, 55},
		{"two agents, enough", 2, 55, 0.05, summary.GatePass, 0},
	} {
		for _, score := range []float64{0, 1} {
			a := agents(c.agents, scores("a", repeat(c.n, score, 0, 0)...))
			b := agents(c.agents, scores("b", repeat(c.n, score, 0, 0)...))
			d := mustCompare(t, a, b, Options{NoWorseThan: &c.margin, Margin: &c.margin})
			g := d.Gates[0]
			if g.Verdict != c.verdict || (c.needed > 0) != (g.EvaluationsNeeded != nil) || c.needed > 0 && *g.EvaluationsNeeded != c.needed {
				t.Errorf("%s, score %v: got %+v", c.name, score, g)
			}
			if r := d.Comparisons[0]; (r.Verdict == Equivalent) != (c.verdict == summary.GatePass) || r.Evaluations != c.n || r.N != c.n*c.agents {
				t.Errorf("%s, score %v: got %+v", c.name, score, r)
			}
		}
	}
}

// agents has the evaluations of a side for n agents, which all come to the same.
func agents(n int, s Side) Side {
	one := s.Evaluations
	s.Agents, s.Evaluations = nil, nil
	for i := range n {
		s.Agents = append(s.Agents, fmt.Sprint("agent ", i+1))
		for _, e := range one {
			e.Agent = s.Agents[i]
			s.Evaluations = append(s.Evaluations, e)
		}
	}
	s.N = len(s.Evaluations)
	return s
}

// With several agents the numbers that are needed are of evaluations, which all agents run, and what
// differs in an evaluation is said once.
func TestEvaluationsAreNoPairs(t *testing.T) {
	a, b := scores("a", 0.5, 0.25, 1, 0, 0.5), scores("b", 0.5, 0.5, 1, 0.25, 0.25)
	one := mustCompare(t, a, b, Options{Margin: ptr(0.1)}).Comparisons[0]
	three := mustCompare(t, agents(3, a), agents(3, b), Options{Margin: ptr(0.1)}).Comparisons[0]
	if three.N != 15 || three.Evaluations != 5 || one.Evaluations != 5 || *three.EvaluationsNeeded != *one.EvaluationsNeeded {
		t.Errorf("got %+v of %d, one agent needs %d", three, *three.EvaluationsNeeded, *one.EvaluationsNeeded)
	}

	b.Evaluations[1].Digest = "x"
	_, err := Compare(agents(2, a), agents(2, b), Options{Settings: stats.DefaultSettings})
	if err == nil || !strings.HasPrefix(err.Error(), "the eval sets differ: evaluation e2 has other inputs or criteria;") {
		t.Errorf("got %v", err)
	}
	d := mustCompare(t, agents(2, scores("a", 1, 0, 0)), agents(2, scores("b", 1)), Options{AllowDifferentSets: true})
	if len(d.OnlyA) != 2 || len(d.SetDifferences) != 2 {
		t.Errorf("got %v, %v", d.OnlyA, d.SetDifferences)
	}
}

// repeat is n times x, then m times y.
func repeat(n int, x float64, m int, y float64) (out []float64) {
	for range n {
		out = append(out, x)
	}
	for range m {
		out = append(out, y)
	}
	return out
}

// withOpen has the last n evaluations of a side suspended.
func withOpen(s Side, n int) Side {
	y := make([]float64, 0, len(s.Evaluations))
	for _, e := range s.Evaluations {
		y = append(y, *e.Score.Value)
	}
	for i := range n {
		y[len(y)-1-i] = open
	}
	return scores(s.RunID, y...)
}

func TestWhatCannotBeCompared(t *testing.T) {
	two := func(s Side) Side {
		s.Agents = []string{"x", "y"}
		return s
	}
	for _, c := range []struct {
		name    string
		a, b    Side
		o       Options
		message string
	}{
		{"nothing scored on both sides", scores("a", 1, lost), scores("b", lost, 1), Options{}, "no evaluation is scored on both sides"},
		{"an evaluation that one side lacks", scores("a", 1, 0), scores("b", 1), Options{}, "evaluation e2 is only in A; --allow-different-sets"},
		{"other inputs", changed(scores("a", 1), func(s *Side) { s.Evaluations[0].Digest = "x" }), scores("b", 1), Options{}, "evaluation e1 has other inputs or criteria"},
		{"another evaluator", changed(scores("a", 1), func(s *Side) { s.Evaluators[0].Digest = "x" }), scores("b", 1), Options{}, "evaluator e has another configuration"},
		{"an evaluator more", changed(scores("a", 1), func(s *Side) { s.Evaluators = append(s.Evaluators, Evaluator{ID: "f"}) }), scores("b", 1), Options{}, "evaluator f is only in A"},
		{"another score that passes", changed(scores("a", 1), func(s *Side) { s.Pass = 0.5 }), scores("b", 1), Options{}, "a rollout passes from 0.5 on in A and from 1 on in B"},
		{"several agents against one", two(scores("a", 1)), scores("b", 1), Options{}, "the agents differ: a has x, y, b has agent of b"},
		{"an agent that is not there", changed(scores("a", 1), func(s *Side) { s.Agent = "z" }), scores("b", 1), Options{}, `has no agent "z"`},
		{"a figure that is none", scores("a", 1), scores("b", 1), Options{By: []string{"speed"}}, "expected score, passRate, evaluator:ID"},
		{"an evaluator that is none", scores("a", 1), scores("b", 1), Options{By: []string{"evaluator:f"}}, `has no evaluator "f"; it has e`},
	} {
		c.o.Settings = stats.DefaultSettings
		if _, err := Compare(c.a, c.b, c.o); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	d := mustCompare(t, scores("a", 1, 0), scores("b", 1), Options{AllowDifferentSets: true})
	if len(d.SetDifferences) != 1 || d.OnlyA[0] != "e2" || d.Pairs != 1 {
		t.Errorf("got %+v", d)
	}
	if _, err := SelfTest(scores("a", 1, 0), "", 1); err == nil || !strings.Contains(err.Error(), "--epochs 2") {
		t.Errorf("one epoch: %v", err)
	}
}

func changed(s Side, change func(*Side)) Side {
	change(&s)
	return s
}

// A coin has no difference to itself: the shown test must not find one in more than 5 % of runs,
// and the self-test must say so. Both must find a true difference of 0.5 in 40 evaluations.
func TestFalseAlarmsAndPower(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	const seeds, n = 200, 40
	alarms, found, calibrated := 0, 0, 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 11)) //nolint:gosec // cases, no secrets
		flip := func(p float64) float64 {
			if r.Float64() < p {
				return 1
			}
			return 0
		}
		runOf := func(p float64) Side {
			var evaluations [][]float64
			for range n {
				evaluations = append(evaluations, []float64{flip(p), flip(p)})
			}
			return side("coin", 2, evaluations...)
		}
		o := Options{By: []string{"score"}, Settings: stats.Settings{Power: 0.8, Seed: seed}}
		if d := mustCompare(t, runOf(0.5), runOf(0.5), o); d.Comparisons[0].P() <= 0.05 {
			alarms++
		}
		if d := mustCompare(t, runOf(0.25), runOf(0.75), o); d.Comparisons[0].Verdict == Improved {
			found++
		}
		if seed%50 != 0 {
			continue // the self-test takes longer
		}
		d, err := SelfTest(runOf(0.5), "score", seed)
		if err != nil {
			t.Fatal(err)
		}
		if d.AA.SignFlip.Calibrated {
			calibrated++
		}
	}
	// The Wilson interval of 19 in 200 begins at 0.0617; that of 16 in 200 holds 0.05.
	if alarms > 16 {
		t.Errorf("%d false alarms in %d comparisons", alarms, seeds)
	}
	if found < seeds*8/10 {
		t.Errorf("a difference of 0.5 was found %d times in %d", found, seeds)
	}
	if calibrated < 3 {
		t.Errorf("%d of 4 self-tests are calibrated", calibrated)
	}
	t.Logf("false alarms %d, found %d of %d, calibrated %d of 4", alarms, found, seeds, calibrated)
}

// Two runs of 10,000 evaluations that differ in a figure each.
func BenchmarkCompare10000(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // cases, no secrets
	runOf := func() Side {
		y := make([]float64, 10_000)
		for i := range y {
			y[i] = r.Float64()
		}
		return scores("r", y...)
	}
	x, y := runOf(), runOf()
	for b.Loop() {
		if _, err := Compare(x, y, Options{Settings: stats.DefaultSettings}); err != nil {
			b.Fatal(err)
		}
	}
}
