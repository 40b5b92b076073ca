package summary

import (
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
)

// TestJobVectors has vectors of how a benchmark harness scores a job: how rewards, faults and missing
// results count. What differs on purpose is in docs/compatibility.md.
func TestJobVectors(t *testing.T) {
	verifier := func(rewards ...float64) (out []Rollout) {
		for i, r := range rewards {
			out = append(out, completed(string(rune('a'+i)), score(eval.Verifier.ID, r)))
		}
		return out
	}
	set := func() *eval.Set { return &eval.Set{Evaluators: []eval.Definition{eval.Verifier}} }
	t.Run("the mean reward is over what was scored", func(t *testing.T) {
		evaltest.Near(t, "score", summarize(set(), append(verifier(1, 0.5), in(eval.StateFaulted, "x"), in(eval.StateSuspended, "y"))...).Score.Mean, 0.75)
	})
	t.Run("there is none if nothing was", func(t *testing.T) {
		evaltest.Absent(t, "score", summarize(set(), in(eval.StateFaulted, "x")).Score.Mean)
	})
	t.Run("1.0 passes, 0 and 0.5 fail, a faulted one is neither", func(t *testing.T) {
		s := summarize(set(), append(verifier(1, 0, 0.5), in(eval.StateFaulted, "x"))...)
		evaltest.Near(t, "pass rate", s.PassRate.Mean, 1.0/3)
		if s.Rollouts.Completed != 3 || s.Rollouts.Faulted != 1 {
			t.Errorf("%+v", s.Rollouts)
		}
	})
	for name, tt := range map[string]struct {
		rollouts []Rollout
		want     float64
	}{
		"5 of 10":                         {verifier(1, 1, 1, 1, 1, 0, 0, 0, 0, 0), 0.5},
		"5 of 8, errors being left out":   {append(verifier(1, 1, 1, 1, 1, 0, 0, 0), in(eval.StateFaulted, "x"), in(eval.StateFaulted, "y")), 5.0 / 8},
		"a reward that is nearly 1 fails": {verifier(0.999, 1), 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			evaltest.Near(t, "pass rate", summarize(set(), tt.rollouts...).PassRate.Mean, tt.want)
		})
	}
	t.Run("0 of 0 has no rate", func(t *testing.T) {
		evaltest.Absent(t, "pass rate", summarize(set(), in(eval.StateFaulted, "x")).PassRate.Mean)
	})
}
