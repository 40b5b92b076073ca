package summary

import (
	"fmt"
	"math"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
)

// GateVerdict says whether a threshold is met.
type GateVerdict string

// These are the verdicts. A gate is undecided as long as the missing figures, or its interval,
// allow both.
const (
	GatePass      GateVerdict = "pass"
	GateFail      GateVerdict = "fail"
	GateUndecided GateVerdict = "undecided"
)

// Gate is a threshold as it was judged for one agent.
type Gate struct {
	// What is score, scoreWithFaulted (its old name), passRate or evaluators.ID.
	What string `json:"what"`
	// Agent is empty for all agents together.
	Agent string  `json:"agent"`
	Min   float64 `json:"min"`
	// By is how it was judged: ByPoint or ByInterval.
	By string `json:"by"`
	// Value is the figure as far as it is known. Low and High are the figure if everything that is
	// missing were 0, or 1. By interval they are the lower end of the interval of the one, and the
	// upper end of that of the other.
	Value   *float64    `json:"value"`
	Low     float64     `json:"low"`
	High    float64     `json:"high"`
	Verdict GateVerdict `json:"verdict"`
	// Missing counts the evaluations whose figure is not known, not all of it, or may change.
	Missing int `json:"missing,omitempty"`
	// Interval is the method of the interval, if the set chose it.
	Interval stats.Method `json:"interval,omitempty"`
	// Ran holds the bounds and verdict by the evaluators that were run alone; nil if all were.
	Ran *GateBounds `json:"ran,omitempty"`
	// FalseFail says how likely the gate is to fail if the true rate is the one observed, and if it is
	// 0.05 above the minimum. It is set if every evaluation passes or does not.
	FalseFail []FalseFail `json:"falseFail,omitempty"`
	// EvaluationsNeeded is how many evaluations like these an undecided interval would need.
	EvaluationsNeeded int `json:"evaluationsNeeded,omitempty"`
}

// GateBounds are the bounds of a gate with its verdict.
type GateBounds struct {
	Low     float64     `json:"low"`
	High    float64     `json:"high"`
	Verdict GateVerdict `json:"verdict"`
}

// FalseFail is the probability P that a gate fails if each evaluation passes with probability At.
type FalseFail struct {
	At float64 `json:"at"`
	P  float64 `json:"p"`
}

// judge judges a figure, at the worst and at the best that the missing parts may bring.
func judge(t eval.Threshold, what, agent string, f *figure, method stats.Method) Gate {
	g := Gate{What: what, Agent: agent, Min: t.Min, By: eval.ByPoint, Value: f.Mean(), Missing: f.missing}
	if t.By == eval.ByInterval {
		g.By, g.Interval = eval.ByInterval, method
	}
	all := boundsOf(t, &f.all, method)
	g.Low, g.High, g.Verdict = all.Low, all.High, all.Verdict
	if ran := boundsOf(t, &f.ran, method); ran != all {
		g.Ran = &ran
	}
	if f.missing > 0 || f.Len() == 0 {
		return g
	}
	if f.Binary() {
		g.FalseFail = falseFails(t, f.Len(), *g.Value)
	}
	if t.By == eval.ByInterval && g.Verdict == GateUndecided {
		g.EvaluationsNeeded = f.Needed(t.Min, method)
	}
	return g
}

// boundsOf judges the bounds of a figure: by their means, or by the ends of their intervals.
func boundsOf(t eval.Threshold, b *bounds, method stats.Method) GateBounds {
	low, high := b.least.Mean(), b.most.Mean()
	if t.By == eval.ByInterval {
		low, high = b.least.Estimate(method).Low, b.most.Estimate(method).High
	}
	if low == nil || high == nil {
		return GateBounds{0, 1, gateVerdict(t, 0, 1)}
	}
	return GateBounds{*low, *high, gateVerdict(t, *low, *high)}
}

func gateVerdict(t eval.Threshold, low, high float64) GateVerdict {
	switch {
	case eval.Passes(low, t.Min):
		return GatePass
	case !eval.Passes(high, t.Min):
		return GateFail
	}
	return GateUndecided
}

func falseFails(t eval.Threshold, n int, observed float64) (out []FalseFail) {
	fails := stats.PointFails
	if t.By == eval.ByInterval {
		fails = stats.IntervalFails
	}
	for _, at := range []float64{observed, t.Min + 0.05} {
		if at <= 1 {
			out = append(out, FalseFail{at, fails(n, t.Min, at)})
		}
	}
	return out
}

// String says how the gate was judged, without its agent.
func (g Gate) String() string {
	g.Low, g.High = rounded(g.Low), rounded(g.High)
	if g.Value != nil {
		value := rounded(*g.Value)
		g.Value = &value
	}
	if g.By == eval.ByInterval {
		return g.intervalString()
	}
	open := g.High > g.Low
	switch {
	case g.Verdict == GateFail && open:
		return fmt.Sprintf("%s: %.6g at most, whatever is missing, which is less than %g", g.What, g.High, g.Min)
	case g.Verdict == GateFail:
		return fmt.Sprintf("%s: %.6g is less than %g", g.What, g.High, g.Min)
	case g.Verdict == GateUndecided:
		return fmt.Sprintf("%s: undecided, from %.6g to %.6g by what is missing, expected at least %g", g.What, g.Low,
			g.High, g.Min)
	case open:
		return fmt.Sprintf("%s: %.6g at least, whatever is missing, expected at least %g", g.What, g.Low, g.Min)
	}
	return fmt.Sprintf("%s: %.6g, expected at least %g", g.What, g.Low, g.Min)
}

// rounded drops the rounding errors of sums, such as 5.55e-17.
func rounded(x float64) float64 { return math.Round(x*1e6) / 1e6 }

func (g Gate) intervalString() string {
	interval := fmt.Sprintf("interval from %.3f to %.3f", g.Low, g.High)
	if g.Value != nil {
		interval = fmt.Sprintf("%.6g, %s", *g.Value, interval)
	}
	if g.Interval == stats.Student {
		interval += " by Student's t, which assumes that rare large losses would have been seen"
	}
	if g.Missing > 0 {
		interval += " with what is missing"
	}
	switch {
	case g.Verdict == GatePass:
		return fmt.Sprintf("%s: %s, expected at least %g", g.What, interval, g.Min)
	case g.Verdict == GateFail:
		return fmt.Sprintf("%s: %s, all of it less than %g", g.What, interval, g.Min)
	case g.EvaluationsNeeded > 0:
		return fmt.Sprintf("%s: undecided, %s, expected at least %g; about %d evaluations like these would decide it",
			g.What, interval, g.Min, g.EvaluationsNeeded)
	}
	return fmt.Sprintf("%s: undecided, %s, expected at least %g", g.What, interval, g.Min)
}
