package summary

import (
	"maps"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/stats"
)

// tally sums up all evaluations of one agent. Nothing is averaged over agents, except for a
// threshold that says so.
type tally struct {
	agent           string
	set             *eval.Set
	built           map[string]*evaluator.Evaluator
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

// evaluator finds the tally of an evaluator, and makes one if it comes for the first time.
func (t *tally) evaluator(id, name string) *evaluatorTally {
	if e := t.byID[id]; e != nil {
		return e
	}
	e := &evaluatorTally{id: id, name: name, weight: weightOf(t.set.Evaluators, id)}
	if built := t.built[id]; built != nil && built.Classification != nil {
		e.classification = built.Classification
		e.confusion, e.strict = e.classification.NewConfusion(), e.classification.NewConfusion()
	}
	t.byID[id] = e
	t.evaluators = append(t.evaluators, e)
	return e
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
		case r.State == eval.StateCompleted:
			t.addResults(r, finished)
			score.scored(weigh(t.set.Evaluators, r.Results))
			if s := RolloutScore(t.set.Evaluators, r.Results); s != nil {
				completed.know(*s)
			} else {
				unscored++
			}
		case r.State == eval.StateFaulted && r.AgentsFault:
			t.faults.Agent++
			score.know(0)
			t.forEachExpected(r, func(e *evaluatorTally) {
				e.epochs.know(0)
				if finished {
					e.lose(r)
				}
			})
		case r.State == eval.StateFaulted:
			t.faults.Environment++
			score.miss()
			t.forEachExpected(r, func(e *evaluatorTally) { e.epochs.miss() })
		default:
			cancelled = cancelled || r.State == eval.StateCancelled
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
		score.known = nil // the agent's faults alone do not make a score if nothing can score the evaluation
	}
	t.cover(score, unscored > 0, cancelled)
	cluster, pass := rollouts[0].cluster(), t.set.Thresholds.Pass
	reduce := func(scores []float64) float64 { return t.set.Reduce.Reduce(scores, pass) }
	share := func(scores []float64) float64 { return eval.PassShare(scores, pass) }
	t.score.add(cluster, score, reduce)
	t.passRate.add(cluster, score, share)
	isPassed := finished && len(score.known) > 0 && eval.Passes(reduce(score.known), pass)
	t.tags.add(rollouts[0].Evaluation, cluster, score, reduce, share, isPassed)
	if finished {
		if isPassed {
			t.passed++
		}
		if len(completed.known) > 0 {
			t.completed.Add(cluster, reduce(completed.known))
		}
		if n := len(completed.known); n > 0 {
			t.attempts = append(t.attempts,
				stats.Attempted{N: n, Passed: eval.Passing(completed.known, pass), Cluster: cluster})
		}
		if n := len(score.known); n > 0 {
			passed := eval.Passing(score.known, pass)
			t.withFaulted = append(t.withFaulted, stats.Attempted{N: n, Passed: passed, Cluster: cluster})
			if t.set.Epochs > 1 {
				t.variance = append(t.variance, stats.EpochsOf(score.known))
				t.passes = append(t.passes, Flaky{rollouts[0].EvaluationID, passed, n})
			}
		}
	}
	out = Outcome{EvaluationID: rollouts[0].EvaluationID, Agent: t.agent, Cluster: cluster,
		Score: score.figure(reduce), PassRate: score.figure(share), Evaluators: map[string]Figure{}}
	out.Tokens, out.Cost = t.usage.add(rollouts, t.set.Limits.BoundUsage(), finished)
	for _, e := range t.evaluators {
		if len(e.epochs.least) > 0 {
			e.epochs.unfinished = !finished
			out.Evaluators[e.id] = e.epochs.figure(reduce)
		}
		e.close(cluster, reduce, share, pass, finished)
	}
	return out
}

// cover counts the outcome of an evaluation.
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

// forEachExpected calls f for each evaluator that was to score the rollout. A task's verifier is
// one even if the set does not define it.
func (t *tally) forEachExpected(r Rollout, f func(*evaluatorTally)) {
	for _, def := range t.set.Evaluators {
		if r.Evaluation.Asks(def) {
			f(t.byID[def.ID])
		}
	}
	isVerifier := func(def eval.Definition) bool { return def.Type == eval.TypeVerifier }
	if r.Evaluation.Asks(eval.Verifier) && !slices.ContainsFunc(t.set.Evaluators, isVerifier) {
		f(t.evaluator(eval.Verifier.ID, eval.Verifier.Name))
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

func (t *tally) summary() AgentSummary {
	s := AgentSummary{
		Agent: t.agent, Rollouts: t.rollouts, Faults: t.faults, Coverage: t.coverage,
		Score: t.score.Estimate(t.set.Interval), ScoreCompleted: t.completed.Estimate(t.set.Interval),
		PassRate: t.passRate.Estimate(t.set.Interval), EvaluationsPassed: t.passed,
		Evaluators: make([]EvaluatorSummary, 0, len(t.evaluators)),
	}
	var sum, weights float64
	for _, e := range t.evaluators {
		one := e.summary(t.set.Interval)
		s.Evaluators = append(s.Evaluators, one)
		if one.Score != nil {
			sum += e.weight * *one.Score
			weights += e.weight
		}
	}
	if weights > 0 {
		mean := sum / weights
		s.EvaluatorScore = &mean
	}
	most := max(t.set.Epochs, 1)
	s.PassK = t.attempts.Curve(most)
	if t.faults.Agent > 0 {
		s.PassKWithFaulted = t.withFaulted.Curve(most)
	}
	if common := t.attempts.Common(most); common != nil {
		s.PassKCommon = common.Curve(most)
	}
	s.Variance = stats.Components(t.variance)
	s.Flaky, s.AlwaysPass, s.NeverPass = consistency(t.passes)
	s.Usage = t.usage.summary()
	s.Tags = t.tags.summaries(t.set.Interval)
	s.TaskMetrics = t.metrics.summaries(t.set.TaskDataset)
	return s
}

func (t *tally) datasets() map[string]eval.DatasetResult {
	out := map[string]eval.DatasetResult{}
	for _, e := range t.evaluators {
		if e.classification != nil {
			maps.Copy(out, e.classification.Results(e.confusion))
		}
	}
	return out
}
