package eval

import (
	"maps"
	"slices"
)

// judged is a threshold with the figure that it judges.
type judged struct {
	what      string
	threshold Threshold
	figure    func(*tally) *figure
	// evaluator is the id of the evaluator whose score it is, else empty.
	evaluator string
}

// judged are the thresholds in a fixed order.
func (t Thresholds) judged() (out []judged) {
	add := func(what string, threshold *Threshold, figure func(*tally) *figure) {
		if threshold != nil {
			out = append(out, judged{what: what, threshold: *threshold, figure: figure})
		}
	}
	score := func(t *tally) *figure { return &t.score }
	add("score", t.Score, score)
	add("scoreWithFaulted", t.ScoreWithFaulted, score)
	add("passRate", t.PassRate, func(t *tally) *figure { return &t.passRate })
	for _, id := range slices.Sorted(maps.Keys(t.Evaluators)) {
		out = append(out, judged{"evaluators." + id, t.Evaluators[id], func(t *tally) *figure { return &t.evaluator(id, id).score }, id})
	}
	return out
}

// gates judges the thresholds for each agent, and then those that are of all together.
func (s *Statistics) gates() (out []Gate) {
	all, several := s.set.Thresholds.judged(), len(s.agents) > 1
	for _, t := range s.agents {
		for _, j := range all {
			if !several || !j.threshold.together() {
				out = append(out, j.gate(t))
			}
		}
	}
	for _, j := range all {
		if several && j.threshold.together() {
			out = append(out, j.threshold.judge(j.what, "", s.together(j.figure), s.set.Interval))
		}
	}
	return out
}

// together is a figure of all agents, in which an evaluation is still one cluster.
func (s *Statistics) together(figureOf func(*tally) *figure) *figure {
	var f figure
	for _, t := range s.agents {
		f.join(figureOf(t))
	}
	return &f
}

// gate judges the threshold for one agent. A precision or the like can become anything as long as
// something is missing.
func (j judged) gate(t *tally) Gate {
	f := j.figure(t)
	if e := t.byID[j.evaluator]; j.evaluator != "" && e.isClassification() {
		g := Gate{What: j.what, Agent: t.agent, Min: j.threshold.Min, By: ByPoint, Value: e.summary(t.set.Interval).ScoreStrict, High: 1, Missing: f.missing}
		if g.Value != nil && f.missing == 0 {
			g.Low, g.High = *g.Value, *g.Value
		}
		g.Verdict = j.threshold.verdict(g.Low, g.High)
		return g
	}
	return j.threshold.judge(j.what, t.agent, f, t.set.Interval)
}
