package compare

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/input"
)

// ErrNoPairs says that two sides have no scored evaluation in common. The error that wraps it says
// why.
var ErrNoPairs = errors.New("nothing can be compared: no evaluation is scored on both sides")

// DifferentSetsError says that the evaluations or evaluators of two sides differ.
type DifferentSetsError struct{ Differences []string }

func (e *DifferentSetsError) Error() string {
	return fmt.Sprintf("the eval sets differ: %s; --allow-different-sets compares what both have", abridged(e.Differences))
}

// Compare compares a baseline with a candidate. An error other than ErrNoPairs is about the
// arguments.
func Compare(a, b Side, o Options) (*Document, error) {
	if err := errors.Join(a.only(), b.only()); err != nil {
		return nil, err
	}
	if err := sameAgents(&a, &b); err != nil {
		return nil, err
	}
	if o.Interval == "" && a.Interval == b.Interval {
		o.Interval = a.Interval
	}
	d := &Document{SchemaVersion: Version, A: a.Source, B: b.Source,
		OnlyA: []string{}, OnlyB: []string{}, Missing: []Missing{},
		SetDifferences: []string{}, PlanDifferences: []string{}, Gates: []Gate{}, Items: []Item{}}
	pairs := d.pair(&a, &b)
	d.differences(&a, &b, pairs)
	if len(d.SetDifferences) > 0 && !o.AllowDifferentSets {
		return nil, &DifferentSetsError{d.SetDifferences}
	}
	by, err := o.figures(&a, &b)
	if err != nil {
		return nil, err
	}
	var rows []*figures
	for i, name := range by {
		f := newFigures(name, pairs, o.MissingZero)
		if i == 0 {
			if f.paired.Len() == 0 {
				return nil, fmt.Errorf("%w: %s", ErrNoPairs, f.whyNoPairs(&a, &b))
			}
			d.Pairs, d.Missing, d.Items = f.paired.Len(), f.missing(), f.items()
		}
		if f.paired.Len() > 0 {
			d.Comparisons = append(d.Comparisons, f.row(o, rows))
			rows = append(rows, f)
		}
		if i == 0 {
			d.gates(f, o)
		}
	}
	judge(d.Comparisons)
	d.name(&a, &b)
	return d, nil
}

// sameAgents makes sure that each agent has a counterpart on the other side.
func sameAgents(a, b *Side) error {
	x, y := slices.Sorted(slices.Values(a.Agents)), slices.Sorted(slices.Values(b.Agents))
	if len(x) == 1 && len(y) == 1 || slices.Equal(x, y) {
		return nil
	}
	return fmt.Errorf("the agents differ: %s has %s, %s has %s; choose one of each with --agents A,B",
		a.RunID, input.List(a.Agents), b.RunID, input.List(b.Agents))
}

// SameResults reports whether both sides are the same rollouts with the same scores.
func SameResults(a, b *Side) bool {
	same := func(x, y Evaluation) bool {
		return x.EvaluationID == y.EvaluationID && x.Agent == y.Agent &&
			slices.EqualFunc(x.Rollouts, y.Rollouts, func(x, y Rollout) bool {
				return x.RolloutID == y.RolloutID && x.RolloutID != "" && x.Status == y.Status &&
					(x.Score == nil) == (y.Score == nil) && (x.Score == nil || *x.Score == *y.Score)
			})
	}
	return a.RunID == b.RunID && a.Agent == b.Agent &&
		len(a.Evaluations) > 0 && len(a.Evaluations[0].Rollouts) > 0 &&
		slices.EqualFunc(a.Evaluations, b.Evaluations, same)
}

// pair finds the evaluations that both sides have, and those that only one has.
func (d *Document) pair(a, b *Side) (pairs []pair) {
	keysA, ofA := a.index()
	keysB, ofB := b.index()
	for _, k := range keysA {
		if ofB[k] == nil {
			d.OnlyA = append(d.OnlyA, k.evaluation)
		} else {
			pairs = append(pairs, pair{ofA[k], ofB[k]})
		}
	}
	for _, k := range keysB {
		if ofA[k] == nil {
			d.OnlyB = append(d.OnlyB, k.evaluation)
		}
	}
	d.OnlyA, d.OnlyB = distinct(d.OnlyA), distinct(d.OnlyB)
	return pairs
}

// distinct returns each id once: an evaluation comes once for each agent.
func distinct(ids []string) []string {
	seen := make(map[string]bool, len(ids))
	return slices.DeleteFunc(ids, func(id string) bool {
		again := seen[id]
		seen[id] = true
		return again
	})
}

// differences lists how the plans of the two runs differ.
func (d *Document) differences(a, b *Side, pairs []pair) {
	d.judgeDifferences(a, b)
	set := func(format string, args ...any) {
		d.SetDifferences = append(d.SetDifferences, fmt.Sprintf(format, args...))
	}
	said := map[string]bool{} // an evaluation has a pair for each agent
	for _, p := range pairs {
		if id := p.a.EvaluationID; p.a.Digest != p.b.Digest && !said[id] {
			said[id] = true
			set("evaluation %s has other inputs or criteria", id)
		}
	}
	for _, id := range d.OnlyA {
		set("evaluation %s is only in A", id)
	}
	for _, id := range d.OnlyB {
		set("evaluation %s is only in B", id)
	}
	for _, one := range a.Evaluators {
		other := b.evaluator(one.ID)
		switch {
		case other == nil:
			set("evaluator %s is only in A", one.ID)
		case one.Digest != other.Digest && one.Digest != "" && other.Digest != "":
			set("evaluator %s has another configuration", one.ID)
		}
	}
	for _, one := range b.Evaluators {
		if a.evaluator(one.ID) == nil {
			set("evaluator %s is only in B", one.ID)
		}
	}
	if x, y := cmp.Or(a.Reduce, eval.ReduceMean), cmp.Or(b.Reduce, eval.ReduceMean); x != y {
		set("epochs are reduced by %s in A and by %s in B", x, y)
	}
	if a.Pass != b.Pass {
		set("a rollout passes from %g on in A and from %g on in B", a.Pass, b.Pass)
	}
	plan := func(what, x, y string) {
		if x != y {
			d.PlanDifferences = append(d.PlanDifferences,
				fmt.Sprintf("%s: %s in A, %s in B", what, cmp.Or(x, "none"), cmp.Or(y, "none")))
		}
	}
	plan("epochs", fmt.Sprint(a.Epochs), fmt.Sprint(b.Epochs))
	names := map[string]bool{}
	for name := range a.About {
		names[name] = true
	}
	for name := range b.About {
		names[name] = true
	}
	for _, name := range sorted(names) {
		plan(name, a.About[name], b.About[name])
	}
	d.environmentDifferences(pairs)
}

// name adds the names of evaluators.
func (d *Document) name(a, b *Side) {
	names := map[string]string{}
	for _, one := range slices.Concat(a.Evaluators, b.Evaluators) { // the candidate's, where they differ
		if one.Name != one.ID {
			names[one.ID] = one.Name
		}
	}
	for i := range d.Comparisons {
		if id, ok := strings.CutPrefix(d.Comparisons[i].By, "evaluator:"); ok {
			d.Comparisons[i].Name = names[id]
		}
	}
	for i := range d.Items {
		for k := range d.Items[i].Changes {
			c := &d.Items[i].Changes[k]
			c.Name = names[c.Evaluator]
		}
	}
}

// figures returns the names of the figures to compare, checked.
func (o Options) figures(a, b *Side) ([]string, error) {
	by := o.By
	if len(by) == 0 {
		by = []string{"score", "passRate"}
		for _, one := range a.Evaluators {
			if b.evaluator(one.ID) != nil {
				by = append(by, "evaluator:"+one.ID)
			}
		}
		by = append(by, byTokens, byCost) // left out where neither is known
	}
	if isUsage(by[0]) && (o.NoWorseThan != nil || o.BetterThan != nil) {
		return nil, fmt.Errorf("--by %s: gates judge scores; name a score first, and %s after it", by[0], by[0])
	}
	for _, name := range by {
		if err := checkFigure(name, a, b); err != nil {
			return nil, err
		}
	}
	return by, nil
}

func checkFigure(name string, sides ...*Side) error {
	id, isEvaluator := strings.CutPrefix(name, "evaluator:")
	if !isEvaluator && name != "score" && name != "passRate" && !isUsage(name) {
		return fmt.Errorf("--by: expected score, passRate, evaluator:ID, tokens or cost, got %q", name)
	}
	for _, s := range sides {
		if isEvaluator && s.evaluator(id) == nil {
			var all []string
			for _, one := range s.Evaluators {
				all = append(all, one.ID)
			}
			return fmt.Errorf("--by %s: run %s has no evaluator %q; it has %s", name, s.RunID, id, input.List(all))
		}
	}
	return nil
}

// judge adjusts the p-values, and gives each row its verdict. The first row is the one to be
// tested, and keeps its own p-value.
func judge(rows []Row) {
	all := make([]float64, len(rows))
	for i := range rows {
		all[i] = rows[i].P()
	}
	for i, p := range stats.Holm(all) {
		r := &rows[i]
		r.HolmP = p
		if i == 0 {
			p = r.P()
		}
		r.Verdict = verdict(r.low, r.high, r.Margin, p)
		if r.LowerIsBetter && r.Verdict != Undecided {
			r.Verdict = map[Verdict]Verdict{Improved: Regressed, Regressed: Improved}[r.Verdict]
		}
	}
}

// verdict judges an interval. A change must also be unlikely by chance.
func verdict(low, high, margin *float64, p float64) Verdict {
	switch {
	case low == nil || high == nil:
	case *low > 0 && p <= 0.05:
		return Improved
	case *high < 0 && p <= 0.05:
		return Regressed
	case margin != nil && -*margin <= *low && *high <= *margin:
		return Equivalent
	}
	return Undecided
}

// gates judges the demands on the first row.
func (d *Document) gates(f *figures, o Options) {
	open, lost := f.unknown()
	first := &d.Comparisons[0]
	add := func(rule string, margin *float64, limit float64, judge func(low, high, margin float64) summary.GateVerdict) {
		g := Gate{Rule: rule, By: f.by, Margin: *margin, Open: open, Lost: lost, Verdict: summary.GateUndecided}
		if first.low != nil && first.high != nil {
			g.Low, g.High, g.Verdict = first.low, first.high, judge(*first.low, *first.high, *margin)
		}
		if g.Verdict == summary.GateUndecided && open+lost == 0 {
			g.EvaluationsNeeded = f.needed(first, first.Delta-limit)
		}
		d.Gates = append(d.Gates, g)
	}
	if m := o.NoWorseThan; m != nil {
		add("noWorseThan", m, -*m, noWorse)
	}
	if m := o.BetterThan; m != nil {
		add("betterThan", m, *m, better)
	}
}

func noWorse(low, high, margin float64) summary.GateVerdict {
	switch {
	case low >= -margin:
		return summary.GatePass
	case high < -margin:
		return summary.GateFail
	}
	return summary.GateUndecided
}

func better(low, high, margin float64) summary.GateVerdict {
	switch {
	case low > margin:
		return summary.GatePass
	case high <= margin:
		return summary.GateFail
	}
	return summary.GateUndecided
}

// SelfTest compares halves of the epochs of one run.
func SelfTest(a Side, by string, seed uint64) (*SelfTestDocument, error) {
	if err := a.only(); err != nil {
		return nil, err
	}
	by = cmp.Or(by, "score")
	if isUsage(by) {
		return nil, fmt.Errorf("--by %s: expected a score, whose chance is tested", by)
	}
	if err := checkFigure(by, &a); err != nil {
		return nil, err
	}
	var evaluations []stats.Repeated
	for i := range a.Evaluations {
		e := &a.Evaluations[i]
		if f, ok := figureOf(e, by); ok && f.Value != nil && len(f.Epochs) > 1 {
			evaluations = append(evaluations, stats.Repeated{Cluster: e.Cluster, Scores: f.Epochs})
		}
	}
	reduce := func(scores []float64) float64 { return a.Reduce.Reduce(scores, a.Pass) }
	if by == "passRate" {
		reduce = func(scores []float64) float64 { return eval.PassShare(scores, a.Pass) }
	}
	out := &SelfTestDocument{SchemaVersion: Version, A: a.Source, By: by,
		Evaluations: len(evaluations), AA: stats.AA(evaluations, reduce, seed)}
	if out.AA == nil {
		return nil, fmt.Errorf(
			"run %s cannot be compared with itself: that needs two evaluations (or clusters) with at least two scored epochs; run it with --epochs 2 or more",
			a.RunID)
	}
	return out, nil
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for name := range set {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
