package eval

import (
	"fmt"

	"github.com/evalrun/evalrun/eval/stats"
)

// TooFew is a threshold by interval that no result can meet, because there are too few evaluations:
// even if all of them pass, the interval reaches below the minimum.
type TooFew struct {
	Key       []string // where the threshold is, below thresholds
	Threshold Threshold
	Needed    int
	Has       int
}

// TooFew lists the thresholds that no result of the set can meet. The set may have further tasks,
// which are not among its evaluations yet. With Student's t nothing can be said where a score may
// be neither 0 nor 1: two that are nearly equal may be enough.
func (s *Set) TooFew(tasks int) (out []TooFew) {
	check := func(t *Threshold, asked func(*Evaluation) bool, tasks int, key ...string) {
		if t == nil || t.By != ByInterval || t.Agents == AgentsTogether { // it depends on how many agents there will be
			return
		}
		if s.Interval == stats.Student && (key[0] != "passRate" || s.Epochs > 1) {
			return
		}
		n := 0
		var passing stats.Sample // all evaluations that are asked, as if they passed
		add := func(cluster string) {
			n++
			passing.Add(cluster, 1)
		}
		for i := range s.Evaluations {
			if e := &s.Evaluations[i]; asked(e) {
				add(ClusterOf(e.ID, e))
			}
		}
		for i := range tasks {
			add(fmt.Sprint("task ", i))
		}
		if n == 0 {
			passing.Add("", 1) // so that Needed can tell how many there would have to be
		}
		if needed := passing.Needed(t.Min, s.Interval); n < needed {
			out = append(out, TooFew{key, *t, needed, n})
		}
	}
	every := func(*Evaluation) bool { return true }
	check(s.Thresholds.Score, every, tasks, "score")
	check(s.Thresholds.ScoreWithFaulted, every, tasks, "scoreWithFaulted")
	check(s.Thresholds.PassRate, every, tasks, "passRate")
	for _, def := range s.Evaluators {
		if t, ok := s.Thresholds.Evaluators[def.ID]; ok {
			check(&t, func(e *Evaluation) bool { return e.Asks(def) }, 0, "evaluators", def.ID)
		}
	}
	return out
}
