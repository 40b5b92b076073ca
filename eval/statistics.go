package eval

import (
	"slices"

	"github.com/evalrun/evalrun/eval/stats"
)

// Statistics folds rollouts into a Summary. Of an evaluation that is over only a few numbers are
// kept.
type Statistics struct {
	set             *Set
	classifications map[string]*classification
	agents          []*tally
	group           []Rollout
	judges          judgeTally
	// Outcomes, if not nil, is called with each evaluation and agent when all epochs are there.
	Outcomes func(Outcome)
}

// NewStatistics starts the statistics of a run of the set.
func NewStatistics(set *Set) *Statistics {
	s := &Statistics{set: set, classifications: map[string]*classification{}}
	for _, def := range set.Evaluators {
		if e, err := build(def); err == nil && e.dataset != nil {
			s.classifications[def.ID] = e.dataset
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
	t := &tally{agent: agent, set: s.set, classifications: s.classifications, byID: map[string]*evaluatorTally{}, tags: tagTallies{}}
	for _, def := range s.set.Evaluators {
		t.evaluator(def.ID, def.Name).digest = def.Digest()
	}
	s.agents = append(s.agents, t)
	return t
}

// Summary gives the statistics of what was added. It ends the evaluation that was added last, so
// that it is asked for after the last rollout.
func (s *Statistics) Summary() Summary {
	s.Close()
	if len(s.agents) == 0 {
		s.tally("") // the evaluators are named although there is nothing
	}
	summary := Summary{Epochs: max(s.set.Epochs, 1), Reduce: s.set.Reduce, Thresholds: s.set.Thresholds, Gates: []Gate{}, Dataset: map[string]DatasetResult{}}
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
	summary.Judges = s.judges.summaries(s.set.Evaluators)
	summary.Gates = append(summary.Gates, s.gates()...)
	return summary
}

// tally holds what is kept of all evaluations of one agent. Nothing is averaged over agents, except
// for a threshold that says so.
type tally struct {
	agent            string
	set              *Set
	classifications  map[string]*classification
	rollouts         RolloutCounts
	faults           FaultCounts
	coverage         Coverage
	score, completed figure
	passRate         figure
	passed           int
	evaluators       []*evaluatorTally
	byID             map[string]*evaluatorTally
	// attempts are over completed rollouts, withFaulted has the agent's faults as failures.
	attempts, withFaulted stats.Attempts
	// variance has the epochs of each evaluation, passes how many of them passed.
	variance []stats.Epochs
	passes   []Flaky
	usage    usageTally
	tags     tagTallies
	metrics  metricTally
}

type evaluatorTally struct {
	id, name        string
	digest          string
	weight          float64
	score, passRate figure
	// plain is over completed rollouts alone, as UiPath averages.
	plain          stats.Sample
	passed         int
	errors, notRun int
	classification *classification
	// confusion leaves out what UiPath leaves out; in strict, a prediction outside the classes is a
	// wrong one.
	confusion, strict *confusion
	// epochs and completed are those of the evaluation that is being added.
	epochs, completed epochs
}

// evaluator finds the tally of an evaluator, and makes one if it comes for the first time.
func (t *tally) evaluator(id, name string) *evaluatorTally {
	if e := t.byID[id]; e != nil {
		return e
	}
	e := &evaluatorTally{id: id, name: name, weight: weightOf(t.set.Evaluators, id), classification: t.classifications[id]}
	if e.classification != nil {
		e.confusion, e.strict = e.classification.newConfusion(), e.classification.newConfusion()
	}
	t.byID[id] = e
	t.evaluators = append(t.evaluators, e)
	return e
}

// epochs are what is known of a figure in the epochs of one evaluation.
type epochs struct {
	known []float64
	// open counts the epochs that may bring something still, and those that were cancelled.
	open int
	// unfinished says that an epoch can still change.
	unfinished bool
}

func (e *epochs) know(x float64) { e.known = append(e.known, x) }

// figure is a figure of each evaluation whose figure is known.
type figure struct {
	stats.Sample
	// least and most are of every evaluation: what those that are missing could bring.
	least, most stats.Sample
	// missing counts the evaluations whose figure is not known or may change.
	missing int
}

// add adds an evaluation. An epoch that was lost to its environment is left out where others are
// known; where none is, the figure is missing.
func (f *figure) add(cluster string, e epochs, reduce func([]float64) float64) {
	if len(e.known) > 0 && !e.unfinished {
		f.Add(cluster, reduce(e.known))
	}
	least, most := e.bounds(reduce)
	f.least.Add(cluster, least)
	f.most.Add(cluster, most)
	if e.open > 0 || len(e.known) == 0 {
		f.missing++
	}
}

// bounds are what the epochs of an evaluation come to if all that is open, or all of them where
// nothing is known, were 0, and if it were 1.
func (e *epochs) bounds(reduce func([]float64) float64) (least, most float64) {
	switch {
	case e.open == 0 && len(e.known) == 0:
		return 0, 1
	case e.open == 0:
		least = reduce(e.known)
		return least, least
	}
	filled := append(append([]float64{}, e.known...), make([]float64, e.open)...)
	least = reduce(filled)
	for i := len(e.known); i < len(filled); i++ {
		filled[i] = 1
	}
	return least, reduce(filled)
}

// join puts the evaluations of another agent to those of this one.
func (f *figure) join(other *figure) {
	f.Join(other.Sample)
	f.least.Join(other.least)
	f.most.Join(other.most)
	f.missing += other.missing
}

// add adds all the rollouts of one evaluation.
func (t *tally) add(rollouts []Rollout) (out Outcome) {
	var score, completed epochs
	unscored, cancelled := 0, false
	finished := !slices.ContainsFunc(rollouts, func(r Rollout) bool { return !r.State.IsTerminal() })
	for _, r := range rollouts {
		t.rollouts.count(r.State)
		t.metrics.add(r)
		switch {
		case r.State == StateCompleted:
			t.addResults(r, finished)
			if s := RolloutScore(t.set.Evaluators, r.Results); s != nil {
				score.know(*s)
				completed.know(*s)
			} else {
				unscored++
			}
		case r.State == StateFaulted && r.AgentsFault:
			t.faults.Agent++
			score.know(0)
			t.forEachExpected(r, func(e *evaluatorTally) {
				e.epochs.know(0)
				if finished {
					e.lose(r)
				}
			})
		case r.State == StateFaulted:
			t.faults.Environment++
		default:
			cancelled = cancelled || r.State == StateCancelled
			score.open++
			t.forEachExpected(r, func(e *evaluatorTally) { e.epochs.open++ })
		}
	}
	score.unfinished = !finished
	if unscored > 0 && len(completed.known) == 0 {
		score.known = nil // the agent's faults alone are no score of an evaluation that nothing can score
	}
	t.cover(score, unscored > 0, cancelled)
	cluster, pass := rollouts[0].cluster(), t.set.Thresholds.Pass
	reduce := func(scores []float64) float64 { return t.set.Reduce.reduce(scores, pass) }
	share := func(scores []float64) float64 { return PassShare(scores, pass) }
	t.score.add(cluster, score, reduce)
	t.passRate.add(cluster, score, share)
	isPassed := finished && len(score.known) > 0 && passes(reduce(score.known), pass)
	t.tags.add(rollouts[0].Evaluation, cluster, score, reduce, share, isPassed)
	if finished {
		if isPassed {
			t.passed++
		}
		if len(completed.known) > 0 {
			t.completed.add(cluster, completed, reduce)
		}
		if n := len(completed.known); n > 0 {
			t.attempts = append(t.attempts, stats.Attempted{N: n, Passed: passing(completed.known, pass), Cluster: cluster})
		}
		if n := len(score.known); n > 0 {
			passed := passing(score.known, pass)
			t.withFaulted = append(t.withFaulted, stats.Attempted{N: n, Passed: passed, Cluster: cluster})
			if t.set.Epochs > 1 {
				t.variance = append(t.variance, stats.EpochsOf(score.known))
				t.passes = append(t.passes, Flaky{rollouts[0].EvaluationID, passed, n})
			}
		}
	}
	out = Outcome{EvaluationID: rollouts[0].EvaluationID, Agent: t.agent, Cluster: cluster,
		Score: score.figure(reduce), PassRate: score.figure(share), Evaluators: map[string]Figure{}}
	out.Tokens, out.Cost = t.usage.add(rollouts, t.set.Limits.boundUsage(), finished)
	for _, e := range t.evaluators {
		if len(e.epochs.known)+e.epochs.open > 0 {
			e.epochs.unfinished = !finished
			out.Evaluators[e.id] = e.epochs.figure(reduce)
		}
		e.close(cluster, reduce, share, pass, finished, rollouts[0].Evaluation.asks(Definition{ID: e.id, Type: t.typeOf(e.id)}))
	}
	return out
}

// cover counts what has become of an evaluation.
func (t *tally) cover(score epochs, unscored, cancelled bool) {
	c := &t.coverage
	c.Evaluations++
	switch {
	case score.unfinished:
		c.Incomplete++
	case len(score.known) > 0:
		c.Scored++
	case unscored:
		c.Unscored++
	case cancelled:
		c.Cancelled++
	default:
		c.Faulted++
	}
}

func (t *tally) typeOf(id string) string {
	for _, def := range t.set.Evaluators {
		if def.ID == id {
			return def.Type
		}
	}
	return ""
}

// forEachExpected calls f for each evaluator that was to score the rollout.
func (t *tally) forEachExpected(r Rollout, f func(*evaluatorTally)) {
	for _, def := range t.set.Evaluators {
		if r.Evaluation.asks(def) {
			f(t.byID[def.ID])
		}
	}
}

// addResults adds one rollout's results to their evaluators. Several results of one evaluator count
// as their mean, as they do for UiPath. Predictions of an evaluation that is not finished are not
// counted yet.
func (t *tally) addResults(r Rollout, finished bool) {
	scores := map[*evaluatorTally][]float64{}
	for _, result := range r.Results {
		if result.Line {
			continue
		}
		e := t.evaluator(result.EvaluatorID, result.EvaluatorName)
		switch {
		case result.NotRun != "":
			e.notRun++
			t.coverage.EvaluatorsNotRun++
			continue
		case result.Failed():
			e.errors++
			t.coverage.EvaluatorErrors++
			continue
		}
		t.coverage.EvaluatorResults++
		if e.classification != nil && finished {
			e.classify(r, result)
		}
		if score := result.normalized(); score != nil {
			scores[e] = append(scores[e], *score)
		}
	}
	for e, x := range scores {
		e.epochs.know(mean(x))
		e.completed.know(mean(x))
	}
}

// classify counts a prediction. One without labels in its result, as where the agent's output has
// none, is wrong if it is known what was expected.
func (e *evaluatorTally) classify(r Rollout, result Result) {
	e.classification.add(e.confusion, result)
	if result.Error != "" {
		e.lose(r)
		return
	}
	e.classification.add(e.strict, result)
}

// lose counts a prediction that was not made, or that is none of the classes.
func (e *evaluatorTally) lose(r Rollout) {
	if e.classification != nil {
		e.classification.lose(e.strict, r.Evaluation)
	}
}

// close ends the evaluation that is being added.
func (e *evaluatorTally) close(cluster string, reduce, share func([]float64) float64, pass float64, finished, expected bool) {
	if expected || len(e.epochs.known) > 0 {
		e.epochs.unfinished = !finished
		e.score.add(cluster, e.epochs, reduce)
		e.passRate.add(cluster, e.epochs, share)
		if finished && len(e.epochs.known) > 0 && passes(reduce(e.epochs.known), pass) {
			e.passed++
		}
	}
	if finished && len(e.completed.known) > 0 {
		e.plain.Add(cluster, reduce(e.completed.known))
	}
	e.epochs = epochs{known: e.epochs.known[:0]}
	e.completed = epochs{known: e.completed.known[:0]}
}
