package verdict

import (
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/schemas"
)

// runOf is a run of four rollouts, one each of four evaluations, of which 20 % pass.
func runOf(n summary.RolloutCounts, c summary.Coverage, gates ...summary.GateVerdict) *schemas.Head {
	n.Total, c.Evaluations = 4, 4
	share := 0.2
	s := &summary.Summary{AgentSummary: summary.AgentSummary{Rollouts: n, Coverage: c, PassRate: stats.Estimate{Mean: &share}, EvaluationsPassed: 1,
		Evaluators: []summary.EvaluatorSummary{{ID: "exact"}}}}
	for _, v := range gates {
		s.Gates = append(s.Gates, summary.Gate{What: "score", Min: 0.8, High: 0.5, By: eval.ByPoint, Verdict: v})
	}
	return &schemas.Head{Final: n.Open+n.Suspended+n.Scoring == 0, Statistics: s}
}

func TestVerdicts(t *testing.T) {
	all, three := summary.RolloutCounts{Completed: 4}, summary.RolloutCounts{Completed: 3, Faulted: 1}
	waits := summary.RolloutCounts{Completed: 3, Suspended: 1}
	scored, partly := summary.Coverage{Scored: 4, EvaluatorResults: 4}, summary.Coverage{Scored: 3, Unscored: 1, EvaluatorResults: 3}
	broken := summary.Coverage{Scored: 4, EvaluatorResults: 3, EvaluatorErrors: 1}
	notRun := summary.Coverage{Scored: 4, EvaluatorResults: 4, EvaluatorsNotRun: 2}
	const pass, fail, undecided = summary.GatePass, summary.GateFail, summary.GateUndecided
	one, _ := ParseTolerance("1")
	quarter, _ := ParseTolerance("25%")
	all100, _ := ParseTolerance("100%")
	for name, c := range map[string]struct {
		run    *schemas.Head
		accept Accept
		want   Verdict
		says   string
	}{
		"all is well":                   {runOf(all, scored, pass), Accept{}, Passed, "passed: 1 of 1 gate met"},
		"a threshold is not met":        {runOf(all, scored, pass, fail), Accept{}, Failed, "failed: 1 of 2 gates not met"},
		"a threshold is undecided":      {runOf(all, scored, undecided), Accept{}, Undecided, "undecided: 1 of 1 gate"},
		"not met comes first":           {runOf(all, scored, undecided, fail), Accept{}, Failed, "failed: 1 of 2 gates not met"},
		"no threshold":                  {runOf(all, scored), Accept{}, Finished, "finished, no gate: 20 % passed"}, // V10
		"a rollout faulted":             {runOf(three, scored, fail), Accept{}, Faulted, "faulted: 1 of 4 rollouts; 1 of 1 gate not met"},
		"one may fault":                 {runOf(three, scored), Accept{Faulted: one}, Finished, "finished, no gate: 20 % passed"},
		"a quarter may fault":           {runOf(three, scored, pass), Accept{Faulted: quarter}, Passed, "passed: 1 of 1 gate met"},
		"an evaluator failed":           {runOf(all, broken), Accept{}, Faulted, "evaluators failed: 1 of 4 times"},
		"an evaluator may fail":         {runOf(all, broken, pass), Accept{EvaluatorErrors: one}, Passed, "passed: 1 of 1 gate met"},
		"evaluators were not run":       {runOf(all, notRun, pass), Accept{}, Faulted, "evaluators not run: 2 of 6 times"}, // V2
		"and a gate is lost whatever":   {runOf(all, notRun, fail), Accept{}, Faulted, "evaluators not run: 2 of 6 times; 1 of 1 gate not met"},
		"that is accepted":              {runOf(all, notRun, undecided), Accept{NotRun: true}, Undecided, "undecided: 1 of 1 gate"},
		"something was not scored":      {runOf(all, partly), Accept{}, Faulted, "not all scored: 1 of 4 evaluations"},
		"unscored is accepted":          {runOf(all, partly, pass), Accept{Unscored: true}, Passed, "passed: 1 of 1 gate met"},
		"nothing scores":                {runOf(all, summary.Coverage{Unscored: 4}), Accept{}, Faulted, "not all scored: 4 of 4 evaluations"}, // V9
		"nothing was scored":            {runOf(all, summary.Coverage{}), Accept{}, Faulted, "nothing scored"},
		"unscored covers no faults":     {runOf(summary.RolloutCounts{Faulted: 4}, summary.Coverage{Faulted: 4}), Accept{Faulted: all100, Unscored: true}, Faulted, "nothing scored"},
		"everything was cancelled":      {runOf(summary.RolloutCounts{Cancelled: 4}, summary.Coverage{Cancelled: 4}), Accept{Unscored: true}, Faulted, "cancelled: nothing was scored"},
		"something was cancelled":       {runOf(summary.RolloutCounts{Completed: 3, Cancelled: 1}, scored), Accept{}, Finished, "cancelled: 1 of 4 rollouts; no gate: 20 % passed"},
		"something waits":               {runOf(waits, scored, undecided), Accept{}, Suspended, "suspended: 1 rollout waits"},
		"a threshold is lost already":   {runOf(waits, scored, fail, fail, undecided), Accept{}, Suspended, "fails already: 2 of 3 gates cannot be met; 1 rollout waits"}, // V11
		"also while rollouts run":       {runOf(summary.RolloutCounts{Open: 2, Completed: 2}, scored, fail), Accept{}, Suspended, "fails already: 1 of 1 gate cannot be met; 2 rollouts to go"},
		"rollouts run, others wait":     {runOf(summary.RolloutCounts{Open: 1, Suspended: 1, Scoring: 2}, scored), Accept{}, Suspended, "running: 1 rollout to go; 3 rollouts wait"},
		"waiting is accepted":           {runOf(waits, scored, pass), Accept{Suspended: true}, Passed, "passed: 1 of 1 gate met; 1 rollout waits"},
		"and a threshold is lost":       {runOf(waits, scored, fail), Accept{Suspended: true}, Failed, "failed: 1 of 1 gate not met"},
		"and there is no threshold":     {runOf(waits, scored), Accept{Suspended: true}, Finished, "suspended: 1 rollout waits; no gate: 20 % passed"},
		"a document without statistics": {&schemas.Head{Status: schemas.Successful}, Accept{}, Finished, "successful"},
	} {
		got := Of(c.run, c.accept, "an example")
		if got.Verdict != c.want || got.Headline() != c.says {
			t.Errorf("%s: %v, %q (%s), expected %v, %q", name, got.Verdict, got.Headline(), got.Reason, c.want, c.says)
		}
	}
}

// A share is never rounded to all or to nothing.
func TestPercent(t *testing.T) {
	for share, want := range map[float64]string{0: "0 %", 0.0001: "1 %", 0.204: "20 %", 0.9999: "99 %", 1: "100 %"} {
		if got := percent(share); got != want {
			t.Errorf("%v: %s, expected %s", share, got, want)
		}
	}
}

func TestTolerance(t *testing.T) {
	for text, c := range map[string]struct {
		ok           bool
		of4, exceeds int // exceeds is the least number of 4 that is too much
	}{
		"0": {true, 4, 1}, "2": {true, 4, 3}, "50%": {true, 4, 3}, "0%": {true, 4, 1}, "12.5%": {true, 4, 1}, "100%": {true, 4, 5},
		"": {}, "-1": {}, "1.5": {}, "101%": {}, "-1%": {}, "NaN%": {}, "%": {},
	} {
		got, err := ParseTolerance(text)
		if (err == nil) != c.ok {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if c.ok && (got.exceeded(c.exceeds-1, c.of4) || !got.exceeded(c.exceeds, c.of4)) {
			t.Errorf("%q: %d are too much, or %d are not", text, c.exceeds-1, c.exceeds)
		}
	}
}
