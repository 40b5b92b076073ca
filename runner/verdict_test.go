package runner

import (
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

func TestJudge(t *testing.T) {
	final := store.Run{FinishedAt: time.Now(), Counts: store.Counts{Total: 4, Completed: 4}}
	faulted := store.Run{FinishedAt: time.Now(), Counts: store.Counts{Total: 4, Completed: 3, Faulted: 1}}
	open := store.Run{Counts: store.Counts{Total: 4, Completed: 3, Suspended: 1}}
	scored := eval.Coverage{Evaluations: 4, Scored: 4, EvaluatorResults: 4}
	stats := func(c eval.Coverage, verdicts ...eval.GateVerdict) (out eval.Summary) {
		out.Coverage = c
		for _, v := range verdicts {
			out.Gates = append(out.Gates, eval.Gate{What: "score", Min: 0.8, By: "point", Verdict: v})
		}
		return out
	}
	one, _ := ParseTolerance("1")
	quarter, _ := ParseTolerance("25%")
	for name, c := range map[string]struct {
		run    store.Run
		stats  eval.Summary
		accept Accept
		want   Verdict
	}{
		"all is well":                              {final, stats(scored, eval.GatePass), Accept{}, Passed},
		"a threshold is not met":                   {final, stats(scored, eval.GatePass, eval.GateFail), Accept{}, Failed},
		"a threshold is undecided":                 {final, stats(scored, eval.GateUndecided), Accept{}, Undecided},
		"not met comes before undecided":           {final, stats(scored, eval.GateUndecided, eval.GateFail), Accept{}, Failed},
		"a rollout faulted":                        {faulted, stats(scored, eval.GateFail), Accept{}, Faulted},
		"one may fault":                            {faulted, stats(scored), Accept{Faulted: one}, Passed},
		"a quarter may fault":                      {faulted, stats(scored), Accept{Faulted: quarter}, Passed},
		"an evaluator failed":                      {final, stats(eval.Coverage{Evaluations: 4, Scored: 4, EvaluatorResults: 3, EvaluatorErrors: 1}), Accept{}, Faulted},
		"an evaluator may fail":                    {final, stats(eval.Coverage{Evaluations: 4, Scored: 4, EvaluatorResults: 3, EvaluatorErrors: 1}), Accept{EvaluatorErrors: one}, Passed},
		"something was not scored":                 {final, stats(eval.Coverage{Evaluations: 4, Scored: 3, Unscored: 1, EvaluatorResults: 3}), Accept{}, Faulted},
		"unscored is accepted":                     {final, stats(eval.Coverage{Evaluations: 4, Scored: 3, Unscored: 1, EvaluatorResults: 3}), Accept{Unscored: true}, Passed},
		"nothing was scored":                       {final, stats(eval.Coverage{Evaluations: 4}), Accept{}, Faulted},
		"everything was cancelled":                 {final, stats(eval.Coverage{Evaluations: 4, Cancelled: 4}), Accept{Unscored: true}, Faulted},
		"something waits":                          {open, stats(scored), Accept{}, Suspended},
		"something waits, and a threshold is lost": {open, stats(scored, eval.GateFail), Accept{}, Suspended},
		"waiting is accepted":                      {open, stats(scored, eval.GatePass), Accept{Suspended: true}, Passed},
		"waiting is accepted, a threshold lost":    {open, stats(scored, eval.GateFail), Accept{Suspended: true}, Failed},
	} {
		if got, reason := verdictOf(c.run, true, c.stats, c.accept, "an example"); got != c.want {
			t.Errorf("%s: %v (%s), expected %v", name, got, reason, c.want)
		}
	}
	if got, reason := verdictOf(final, false, stats(eval.Coverage{Evaluations: 4}), Accept{}, ""); got != Passed {
		t.Errorf("without evaluators: %v (%s)", got, reason)
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
