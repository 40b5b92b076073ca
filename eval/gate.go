package eval

import (
	"fmt"
	"maps"
	"slices"
)

// Verdict says whether a threshold is met.
type Verdict string

// The verdicts. A gate is undecided as long as what is missing allows both.
const (
	GatePass      Verdict = "pass"
	GateFail      Verdict = "fail"
	GateUndecided Verdict = "undecided"
)

// Gate is a threshold as it was judged for one agent.
type Gate struct {
	// What is score, scoreWithFaulted (its old name), passRate or evaluators.ID.
	What  string  `json:"what"`
	Agent string  `json:"agent"`
	Min   float64 `json:"min"`
	// By is how it was judged: "point", by the value itself.
	By string `json:"by"`
	// Value is the figure as far as it is known; Low and High what it would be if everything that
	// is missing were 0, or 1.
	Value   *float64 `json:"value"`
	Low     float64  `json:"low"`
	High    float64  `json:"high"`
	Verdict Verdict  `json:"verdict"`
}

// gates judges the thresholds, in a fixed order.
func (t *tally) gates() []Gate {
	var out []Gate
	judge := func(what string, least *float64, value *float64, low, high float64) {
		if least == nil {
			return
		}
		g := Gate{What: what, Agent: t.agent, Min: *least, By: "point", Value: value, Low: low, High: high, Verdict: GateUndecided}
		switch {
		case passes(low, *least):
			g.Verdict = GatePass
		case !passes(high, *least):
			g.Verdict = GateFail
		}
		out = append(out, g)
	}
	thresholds := t.set.Thresholds
	low, high := t.score.bounds()
	score := t.score.Estimate().Mean
	judge("score", thresholds.Score, score, low, high)
	judge("scoreWithFaulted", thresholds.ScoreWithFaulted, score, low, high)
	low, high = t.passRate.bounds()
	judge("passRate", thresholds.PassRate, t.passRate.Estimate().Mean, low, high)
	for _, id := range slices.Sorted(maps.Keys(thresholds.Evaluators)) {
		least := thresholds.Evaluators[id]
		value, low, high := t.evaluator(id, id).bounds()
		judge("evaluators."+id, &least, value, low, high)
	}
	return out
}

// bounds are the figure that a threshold on the evaluator is judged on, and what it is at least and
// at most. A precision or the like can become anything as long as something is missing.
func (e *evaluatorTally) bounds() (value *float64, low, high float64) {
	if !e.isClassification() {
		low, high = e.score.bounds()
		return e.score.Estimate().Mean, low, high
	}
	value = e.summary().ScoreStrict
	if value == nil || e.score.missing > 0 {
		return value, 0, 1
	}
	return value, *value, *value
}

// String says how the gate was judged, without its agent.
func (g Gate) String() string {
	open := g.High > g.Low
	switch {
	case g.Verdict == GateFail && open:
		return fmt.Sprintf("%s: %.6g at most, whatever is missing, which is less than %g", g.What, g.High, g.Min)
	case g.Verdict == GateFail:
		return fmt.Sprintf("%s: %.6g is less than %g", g.What, g.High, g.Min)
	case g.Verdict == GateUndecided:
		return fmt.Sprintf("%s: undecided, from %.6g to %.6g by what is missing, expected at least %g", g.What, g.Low, g.High, g.Min)
	case open:
		return fmt.Sprintf("%s: %.6g at least, whatever is missing, expected at least %g", g.What, g.Low, g.Min)
	}
	return fmt.Sprintf("%s: %.6g, expected at least %g", g.What, g.Low, g.Min)
}
