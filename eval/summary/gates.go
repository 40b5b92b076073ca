package summary

import (
	"maps"
	"slices"

	"github.com/evalrun/evalrun/eval"
)

// goal is a threshold with the figure that it judges.
type goal struct {
	what      string
	threshold eval.Threshold
	figure    func(*tally) *figure
	// evaluator is the id of the evaluator that gives the score, else empty.
	evaluator string
}

// goalsOf returns the thresholds in a fixed order.
func goalsOf(t eval.Thresholds) (out []goal) {
	add := func(what string, threshold *eval.Threshold, figure func(*tally) *figure) {
		if threshold != nil {
			out = append(out, goal{what: what, threshold: *threshold, figure: figure})
		}
	}
	score := func(t *tally) *figure { return &t.score }
	add("score", t.Score, score)
	add("scoreWithFaulted", t.ScoreWithFaulted, score)
	add("passRate", t.PassRate, func(t *tally) *figure { return &t.passRate })
	for _, id := range slices.Sorted(maps.Keys(t.Evaluators)) {
		out = append(out, goal{"evaluators." + id, t.Evaluators[id],
			func(t *tally) *figure { return &t.evaluator(id, id).score }, id})
	}
	return out
}

// gatesOf judges the thresholds of a set for each agent, and then those for all together.
func gatesOf(set *eval.Set, agents []*tally) (out []Gate) {
	all, several := goalsOf(set.Thresholds), len(agents) > 1
	for _, t := range agents {
		for _, one := range all {
			if !several || one.threshold.Agents != eval.AgentsTogether {
				out = append(out, one.gate(t))
			}
		}
	}
	for _, one := range all {
		if several && one.threshold.Agents == eval.AgentsTogether {
			out = append(out, judge(one.threshold, one.what, "", together(agents, one.figure), set.Interval))
		}
	}
	return out
}

// together returns a figure of all agents, in which an evaluation is still one cluster.
func together(agents []*tally, figureOf func(*tally) *figure) *figure {
	var f figure
	for _, t := range agents {
		f.join(figureOf(t))
	}
	return &f
}

// gate judges the threshold for one agent. A precision or the like can become anything as long as
// something is missing.
func (one goal) gate(t *tally) Gate {
	f := one.figure(t)
	if e := t.byID[one.evaluator]; one.evaluator != "" && e.isClassification() {
		g := Gate{What: one.what, Agent: t.agent, Min: one.threshold.Min, By: eval.ByPoint,
			Value: e.summary(t.set.Interval).ScoreStrict, High: 1, Missing: f.missing}
		if g.Value != nil && f.missing == 0 {
			g.Low, g.High = *g.Value, *g.Value
		}
		g.Verdict = gateVerdict(one.threshold, g.Low, g.High)
		return g
	}
	return judge(one.threshold, one.what, t.agent, f, t.set.Interval)
}
