package web

import "github.com/evalrun/evalrun/eval"

// pair is the result of an evaluation for an agent, over its epochs.
type pair struct {
	// score is the score of the statistics: the scores of the epochs reduced as the set says. A fault
	// of the agent counts as 0 and a fault of the environment is missing. It is nil while an epoch can
	// change, and if no score is known.
	score *float64
	// spread says how flaky it is: 0 if all epochs have passed or none has, at most 0.25.
	spread           float64
	working, waiting int64
}

// pairs returns the pairs of an evaluation, by the places of their agents.
func (o *overview) pairs(e *evaluation) []pair {
	out := make([]pair, len(o.agents))
	type epochs struct {
		known            []float64
		scored, unscored bool
		open             bool
	}
	all := make([]epochs, len(o.agents))
	for _, at := range e.rows {
		r := &o.rows[at]
		p, x := &out[r.agent], &all[r.agent]
		p.working += r.Clocks.WorkingMs
		p.waiting += r.Clocks.WaitingMs
		switch {
		case r.Outdated:
			x.open = true
		case r.Score != nil:
			x.known, x.scored = append(x.known, *r.Score), true
		case r.AgentsFault:
			x.known = append(x.known, 0)
		case r.Status == "unscored":
			x.unscored = true
		case r.Status != "faulted" && r.Status != "cancelled":
			x.open = true
		}
	}
	for i, x := range all {
		if x.open || len(x.known) == 0 || x.unscored && !x.scored {
			continue // as in the statistics, faults alone make no score if nothing can score the evaluation
		}
		score := o.head.Statistics.Reduce.Reduce(x.known, o.pass)
		out[i].score = &score
		share := eval.PassShare(x.known, o.pass)
		out[i].spread = share * (1 - share)
	}
	return out
}

// lowest returns the lowest of the agents' scores, nil if none of them has one.
func lowest(pairs []pair, agents []int) (out *float64) {
	for _, i := range agents {
		if s := pairs[i].score; s != nil && (out == nil || *s < *out) {
			out = s
		}
	}
	return out
}

// flakiest returns the spread of the agent whose epochs agree least.
func flakiest(pairs []pair, agents []int) (out float64) {
	for _, i := range agents {
		out = max(out, pairs[i].spread)
	}
	return out
}

// pairColumns returns the scores and the spreads of an evaluation by agent, in millionths, -1 for a
// missing score.
func pairColumns(pairs []pair) (scores, spreads []int) {
	for _, p := range pairs {
		scores, spreads = append(scores, millionths(p.score)), append(spreads, millionths(&p.spread))
	}
	return scores, spreads
}

// changedPairs returns the pairs of rollouts by the places of their evaluation and agent, each
// once, with score and spread as the columns have them.
func (o *overview) changedPairs(rows []int) [][4]int {
	out := [][4]int{}
	pairs := map[int][]pair{}
	seen := map[[2]int]bool{}
	for _, at := range rows {
		r := &o.rows[at]
		if seen[[2]int{r.evaluation, r.agent}] {
			continue
		}
		seen[[2]int{r.evaluation, r.agent}] = true
		if pairs[r.evaluation] == nil {
			pairs[r.evaluation] = o.pairs(&o.evaluations[r.evaluation])
		}
		p := pairs[r.evaluation][r.agent]
		out = append(out, [4]int{r.evaluation, r.agent, millionths(p.score), millionths(&p.spread)})
	}
	return out
}
