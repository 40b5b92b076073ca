// Package summary folds the results of rollouts into the statistics of a run: means with intervals,
// pass rates, costs, the agreement of judges, and a [Gate] for each threshold.
package summary

import (
	"cmp"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
)

// Statistics folds rollouts into a Summary. It keeps only a few numbers of an evaluation that is
// over.
type Statistics struct {
	set *eval.Set
	// built are the set's evaluators by id.
	built  map[string]*evaluator.Evaluator
	agents []*tally
	group  []Rollout
	judges judgeTally
	// Outcomes, if not nil, is called with each evaluation and agent when all epochs are there.
	Outcomes func(Outcome)
}

// New starts the statistics of a run of the set. The kinds are those of its evaluators; for an
// evaluator of another kind only the scores are summed up.
func New(set *eval.Set, kinds evaluator.Kinds) *Statistics {
	s := &Statistics{set: set, built: map[string]*evaluator.Evaluator{}}
	for _, def := range set.Evaluators {
		if e, err := kinds.New(def); err == nil {
			s.built[def.ID] = e
		}
	}
	return s
}

// Add adds one rollout. All planned epochs of one evaluation and agent must come, one after
// another.
func (s *Statistics) Add(r Rollout) {
	if len(s.group) > 0 && (s.group[0].EvaluationID != r.EvaluationID || s.group[0].Agent != r.Agent) {
		s.Close()
	}
	s.group = append(s.group, r)
	s.judges.add(r.Results)
}

// Close ends the evaluation that was added last.
func (s *Statistics) Close() {
	if len(s.group) == 0 {
		return
	}
	out := s.tally(s.group[0].Agent).add(s.group)
	if s.Outcomes != nil {
		s.Outcomes(out)
	}
	clear(s.group)
	s.group = s.group[:0]
}

func (s *Statistics) tally(agent string) *tally {
	for _, t := range s.agents {
		if t.agent == agent {
			return t
		}
	}
	t := &tally{agent: agent, set: s.set, built: s.built, byID: map[string]*evaluatorTally{},
		tags: tagTallies{}}
	for _, def := range s.set.Evaluators {
		e := t.evaluator(def.ID, def.Name)
		def.NotRun = "" // an evaluator that was not run scores in the same way once it is
		e.digest = def.Digest()
	}
	s.agents = append(s.agents, t)
	return t
}

// Summary returns the statistics of the rollouts that were added. It ends the evaluation that was
// added last, so call it after the last rollout.
func (s *Statistics) Summary() Summary {
	s.Close()
	if len(s.agents) == 0 {
		s.tally("") // names the evaluators although there are no rollouts
	}
	summary := Summary{Epochs: max(s.set.Epochs, 1), Reduce: s.set.Reduce, Interval: s.set.Interval,
		Thresholds: s.set.Thresholds, Gates: []Gate{}, Dataset: map[string]eval.DatasetResult{}}
	several := len(s.agents) > 1
	for _, t := range s.agents {
		one := t.summary()
		if several {
			summary.Agents = append(summary.Agents, one)
			summary.addCounts(one)
		} else {
			summary.AgentSummary = one
		}
		for key, result := range t.datasets() {
			if several {
				key += "::" + t.agent
			}
			summary.Dataset[key] = result
		}
	}
	summary.Judges = s.judges.summaries(s.set.Evaluators, s.built)
	summary.Gates = append(summary.Gates, gatesOf(s.set, s.agents)...)
	return summary
}

// Flaky is an evaluation with epochs that pass and epochs that do not.
type Flaky struct {
	EvaluationID string `json:"evaluationId"`
	Passes       int    `json:"passes"`
	N            int    `json:"n"`
}

// consistency says which evaluations pass in some, in all and in no epochs. The first are sorted by
// how little certain they are.
func consistency(counts []Flaky) (flaky []Flaky, always, never []string) {
	for _, one := range counts {
		switch one.Passes {
		case 0:
			never = append(never, one.EvaluationID)
		case one.N:
			always = append(always, one.EvaluationID)
		default:
			flaky = append(flaky, one)
		}
	}
	spread := func(f Flaky) float64 { return float64(f.Passes*(f.N-f.Passes)) / float64(f.N*f.N) }
	slices.SortStableFunc(flaky, func(a, b Flaky) int { return cmp.Compare(spread(b), spread(a)) })
	return flaky, always, never
}
