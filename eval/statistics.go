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
		e := t.evaluator(def.ID, def.Name)
		def.NotRun = "" // an evaluator that was not run scores in the same way once it is
		e.digest = def.Digest()
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
	summary := Summary{Epochs: max(s.set.Epochs, 1), Reduce: s.set.Reduce, Interval: s.set.Interval, Thresholds: s.set.Thresholds, Gates: []Gate{}, Dataset: map[string]DatasetResult{}}
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
	agent           string
	set             *Set
	classifications map[string]*classification
	rollouts        RolloutCounts
	faults          FaultCounts
	coverage        Coverage
	score, passRate figure
	completed       stats.Sample
	passed          int
	evaluators      []*evaluatorTally
	byID            map[string]*evaluatorTally
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
	// least and most have what each epoch comes to if everything that is missing of it is 0, and if it
	// is 1. In ranLeast and ranMost evaluators that were not run are left out.
	least, most, ranLeast, ranMost []float64
	// open counts the epochs that may bring something still, and those that were cancelled.
	open int
	// missing says that something of an epoch is not known.
	missing bool
	// unfinished says that an epoch can still change.
	unfinished bool
}

func (e *epochs) know(x float64) {
	e.known = append(e.known, x)
	e.bound(x, x, x, x)
}

// miss adds an epoch of which nothing is known: it is open, was cancelled, lost or not scored.
func (e *epochs) miss() {
	e.missing = true
	e.bound(0, 1, 0, 1)
}

func (e *epochs) bound(least, most, ranLeast, ranMost float64) {
	e.least, e.most = append(e.least, least), append(e.most, most)
	e.ranLeast, e.ranMost = append(e.ranLeast, ranLeast), append(e.ranMost, ranMost)
}

// weighted is a mean of results, of which some are missing: the evaluator failed, or was not run.
type weighted struct{ sum, known, failed, notRun float64 }

func (w *weighted) add(r Result, weight float64) {
	switch score := r.normalized(); {
	case r.Line:
	case score != nil:
		w.sum += weight * *score
		w.known += weight
	case r.NotRun != "":
		w.notRun += weight
	case r.Failed():
		w.failed += weight
	}
}

// scored adds a scored epoch. What is missing of it is in its bounds.
func (e *epochs) scored(w weighted) {
	if w.known == 0 {
		e.miss()
		return
	}
	e.known = append(e.known, w.sum/w.known)
	e.missing = e.missing || w.failed+w.notRun > 0
	ran, all := w.known+w.failed, w.known+w.failed+w.notRun
	e.bound(w.sum/all, (w.sum+w.failed+w.notRun)/all, w.sum/ran, (w.sum+w.failed)/ran)
}

// reset makes room for the next evaluation.
func (e *epochs) reset() {
	*e = epochs{known: e.known[:0], least: e.least[:0], most: e.most[:0], ranLeast: e.ranLeast[:0], ranMost: e.ranMost[:0]}
}

// figure is a figure of each evaluation whose figure is known.
type figure struct {
	stats.Sample
	// all has every evaluation with what is missing of it, ran with what evaluators that were not run
	// have left out.
	all, ran bounds
	// missing counts the evaluations whose figure is not known or may change.
	missing int
}

// bounds are of every evaluation: what it comes to if all that is missing is 0, and if it is 1.
type bounds struct{ least, most stats.Sample }

func (b *bounds) add(cluster string, least, most float64) {
	b.least.Add(cluster, least)
	b.most.Add(cluster, most)
}

func (b *bounds) join(other *bounds) {
	b.least.Join(other.least)
	b.most.Join(other.most)
}

// add adds an evaluation. What is missing of it is in the bounds alone.
func (f *figure) add(cluster string, e epochs, reduce func([]float64) float64) {
	if len(e.known) > 0 && !e.unfinished {
		f.Add(cluster, reduce(e.known))
	}
	f.all.add(cluster, reduce(e.least), reduce(e.most))
	f.ran.add(cluster, reduce(e.ranLeast), reduce(e.ranMost))
	if e.missing {
		f.missing++
	}
}

// join puts the evaluations of another agent to those of this one.
func (f *figure) join(other *figure) {
	f.Join(other.Sample)
	f.all.join(&other.all)
	f.ran.join(&other.ran)
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
			score.scored(weigh(t.set.Evaluators, r.Results))
			if s := RolloutScore(t.set.Evaluators, r.Results); s != nil {
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
			score.miss()
			t.forEachExpected(r, func(e *evaluatorTally) { e.epochs.miss() })
		default:
			cancelled = cancelled || r.State == StateCancelled
			score.open++
			score.miss()
			t.forEachExpected(r, func(e *evaluatorTally) {
				e.epochs.open++
				e.epochs.miss()
			})
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
			t.completed.Add(cluster, reduce(completed.known))
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
		if len(e.epochs.least) > 0 {
			e.epochs.unfinished = !finished
			out.Evaluators[e.id] = e.epochs.figure(reduce)
		}
		e.close(cluster, reduce, share, pass, finished)
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

// forEachExpected calls f for each evaluator that was to score the rollout. A task's verifier is one
// also where the set does not define it.
func (t *tally) forEachExpected(r Rollout, f func(*evaluatorTally)) {
	for _, def := range t.set.Evaluators {
		if r.Evaluation.asks(def) {
			f(t.byID[def.ID])
		}
	}
	isVerifier := func(def Definition) bool { return def.Type == TypeVerifier }
	if r.Evaluation.asks(Verifier) && !slices.ContainsFunc(t.set.Evaluators, isVerifier) {
		f(t.evaluator(Verifier.ID, Verifier.Name))
	}
}

// addResults adds one rollout's results to their evaluators. Several results of one evaluator count
// as their mean, as they do for UiPath. Predictions of an evaluation that is not finished are not
// counted yet.
func (t *tally) addResults(r Rollout, finished bool) {
	scores := map[*evaluatorTally]weighted{}
	for _, result := range r.Results {
		if result.Line {
			continue
		}
		e := t.evaluator(result.EvaluatorID, result.EvaluatorName)
		one := scores[e]
		one.add(result, 1)
		scores[e] = one
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
	}
	for e, w := range scores {
		e.epochs.scored(w)
		if w.known > 0 {
			e.completed.know(w.sum / w.known)
		}
	}
	t.forEachExpected(r, func(e *evaluatorTally) {
		if _, ok := scores[e]; !ok {
			e.epochs.miss()
		}
	})
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
func (e *evaluatorTally) close(cluster string, reduce, share func([]float64) float64, pass float64, finished bool) {
	if len(e.epochs.least) > 0 {
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
	e.epochs.reset()
	e.completed.reset()
}
