package compare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
)

// figures is one figure of all evaluations that both sides have.
type figures struct {
	by     string
	all    []sides
	paired stats.Paired
	// difference is the difference of the pairs, once there is a row.
	difference stats.Difference
	// severalAgents says that items and missing evaluations need the name of their agent.
	severalAgents bool
}

// sides is a figure of one evaluation.
type sides struct {
	pair   pair
	fa, fb summary.Figure
	a, b   *float64 // nil on a side that cannot be compared
}

// byTokens and byCost are the figures that are better the lower they are. They have no bounds, and
// a missing one is never taken for 0.
const (
	byTokens = "tokens"
	byCost   = "cost"
)

func isUsage(by string) bool { return by == byTokens || by == byCost }

func figureOf(e *Evaluation, by string) (summary.Figure, bool) {
	switch by {
	case "score":
		return e.Score, true
	case "passRate":
		return e.PassRate, true
	case byTokens:
		return e.Tokens, e.Tokens.Value != nil
	case byCost:
		return e.Cost, e.Cost.Value != nil
	}
	f, ok := e.Evaluators[strings.TrimPrefix(by, "evaluator:")]
	return f, ok
}

func newFigures(by string, pairs []pair, missingZero bool) *figures {
	f := &figures{by: by, paired: stats.Paired{Unbounded: isUsage(by)}}
	for _, p := range pairs {
		f.severalAgents = f.severalAgents || p.a.Agent != pairs[0].a.Agent
		s := sides{pair: p}
		var okA, okB bool
		s.fa, okA = figureOf(p.a, by)
		s.fb, okB = figureOf(p.b, by)
		if !okA && !okB {
			continue
		}
		if unknown := (summary.Figure{High: 1}); !okA {
			s.fa = unknown
		} else if !okB {
			s.fb = unknown
		}
		s.a, s.b = s.fa.Value, s.fb.Value
		if zero := 0.0; missingZero && !isUsage(by) {
			if s.a == nil && s.b != nil && !s.fa.Open {
				s.a, s.fa.Low, s.fa.High = &zero, 0, 0
			} else if s.b == nil && s.a != nil && !s.fb.Open {
				s.b, s.fb.Low, s.fb.High = &zero, 0, 0
			}
		}
		f.all = append(f.all, s)
		if s.a != nil && s.b != nil {
			f.paired.Add(p.a.Cluster, *s.a, *s.b)
		}
	}
	return f
}

// whyNoPairs says why no evaluation is scored on both sides.
func (f *figures) whyNoPairs(a, b *Side) string {
	if len(f.all) == 0 {
		if len(a.Evaluations) == 0 || len(b.Evaluations) == 0 {
			return "a side has no evaluations"
		}
		return fmt.Sprintf("their ids differ, A has %s and B has %s", firstIDs(a), firstIDs(b))
	}
	missing := func(name string, score func(sides) (*float64, bool)) string {
		n, open := 0, 0
		for _, s := range f.all {
			if value, may := score(s); value == nil {
				n++
				if may {
					open++
				}
			}
		}
		if open > 0 {
			return fmt.Sprintf("%d without a score in %s, %d of them still open", n, name, open)
		}
		return fmt.Sprintf("%d without a score in %s", n, name)
	}
	return fmt.Sprintf("of %d that both have, %s, and %s", len(f.all),
		missing("A", func(s sides) (*float64, bool) { return s.a, s.fa.Open }),
		missing("B", func(s sides) (*float64, bool) { return s.b, s.fb.Open }))
}

// firstIDs names a few evaluations of a side by their ids.
func firstIDs(s *Side) string {
	var ids []string
	for i := range s.Evaluations {
		ids = append(ids, s.Evaluations[i].EvaluationID)
	}
	return abridged(slices.Compact(ids))
}

// atBounds returns the pairs as if everything that is missing had turned out worst for B, and best.
func (f *figures) atBounds() (worst, best *stats.Paired) {
	worst, best = new(stats.Paired), new(stats.Paired)
	for _, s := range f.all {
		worst.Add(s.pair.a.Cluster, s.fa.High, s.fb.Low)
		best.Add(s.pair.a.Cluster, s.fa.Low, s.fb.High)
	}
	return worst, best
}

// unknown counts the evaluations whose missing scores may still come, and those whose will not.
func (f *figures) unknown() (open, lost int) {
	for _, s := range f.all {
		switch {
		case s.fa.Open || s.fb.Open:
			open++
		case s.fa.Low < s.fa.High || s.fb.Low < s.fb.High:
			lost++
		}
	}
	return open, lost
}

// row compares the figure. There must be a pair. It takes the results of an earlier row with the
// same pairs, as the score has where there is one evaluator.
func (f *figures) row(o Options, earlier []*figures) Row {
	i := slices.IndexFunc(earlier, func(other *figures) bool { return f.paired.Equal(&other.paired) })
	if i >= 0 {
		f.difference = earlier[i].difference
	} else {
		f.difference = f.paired.Difference(o.Settings)
	}
	r := Row{By: f.by, Evaluations: f.evaluations(), Difference: f.difference, Margin: o.Margin}
	if isUsage(f.by) {
		r.LowerIsBetter, r.Margin = true, nil
		r.Regressions, r.Improvements = r.Improvements, r.Regressions
		r.low, r.high = r.Low, r.High
		r.EvaluationsNeeded = f.needed(&r, r.Delta)
		return r
	}
	distance := r.Delta
	if o.Margin != nil {
		distance = *o.Margin
	}
	r.EvaluationsNeeded = f.needed(&r, distance)
	worst, best := f.atBounds()
	r.Bounds = []float64{worst.Mean(), best.Mean()}
	r.low, r.high = r.Low, r.High
	if open, lost := f.unknown(); open+lost > 0 {
		r.low, _ = worst.Interval(o.Interval)
		_, r.high = best.Interval(o.Interval)
	}
	return r
}

// evaluations counts the evaluations of the pairs.
func (f *figures) evaluations() int {
	ids := map[string]bool{}
	for _, s := range f.all {
		if s.a != nil && s.b != nil {
			ids[s.pair.a.EvaluationID] = true
		}
	}
	return len(ids)
}

// needed returns how many evaluations give the pairs that a difference of distance needs; nil if
// that is not known.
func (f *figures) needed(r *Row, distance float64) *int {
	n := f.paired.Needed(r.Difference, distance)
	if n != nil {
		*n = (*n*r.Evaluations + r.N - 1) / r.N
	}
	return n
}

// missing returns the evaluations that are in no pair.
func (f *figures) missing() []Missing {
	out := []Missing{}
	for _, s := range f.all {
		if s.a == nil || s.b == nil {
			out = append(out, Missing{EvaluationID: s.pair.a.EvaluationID, Agent: f.agent(s), A: s.a, B: s.b,
				Open: s.a == nil && s.fa.Open || s.b == nil && s.fb.Open})
		}
	}
	return out
}

// items returns the evaluations that differ.
func (f *figures) items() []Item {
	out := []Item{}
	for _, s := range f.all {
		if s.a == nil || s.b == nil || math.Abs(*s.b-*s.a) < 1e-12 {
			continue
		}
		out = append(out, Item{EvaluationID: s.pair.a.EvaluationID, EvaluationName: s.pair.b.Name,
			Agent: f.agent(s), A: *s.a, B: *s.b, D: *s.b - *s.a,
			EpochsA: len(s.fa.Epochs), EpochsB: len(s.fb.Epochs), FaultsA: s.pair.a.Faults, FaultsB: s.pair.b.Faults,
			RolloutsA: s.pair.a.Rollouts, RolloutsB: s.pair.b.Rollouts, Changes: s.pair.changes()})
	}
	slices.SortStableFunc(out, func(x, y Item) int {
		sign := cmp.Compare(x.D, 0) - cmp.Compare(y.D, 0)
		if isUsage(f.by) {
			sign = -sign
		}
		return cmp.Or(sign, cmp.Compare(math.Abs(y.D), math.Abs(x.D)))
	})
	return out
}

// changes returns the evaluators whose scores differ between A and B.
func (p pair) changes() (out []Change) {
	ids := slices.Collect(maps.Keys(p.a.Evaluators))
	for id := range p.b.Evaluators {
		if _, ok := p.a.Evaluators[id]; !ok {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		a, b := p.a.Evaluators[id].Value, p.b.Evaluators[id].Value
		if a == nil && b == nil || a != nil && b != nil && math.Abs(*a-*b) < 1e-12 {
			continue
		}
		out = append(out, Change{Evaluator: id, A: a, B: b})
	}
	return out
}

func (f *figures) agent(s sides) string {
	if f.severalAgents {
		return s.pair.a.Agent
	}
	return ""
}

// pair is an evaluation that both sides have.
type pair struct{ a, b *Evaluation }

// abridged returns a list for a message, not thousands of lines.
func abridged(all []string) string {
	const most = 10
	if more := len(all) - most; more > 0 {
		all = append(slices.Clone(all[:most]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
