package eval

// Statistics folds rollouts into a Summary. Its memory does not grow with the number of rollouts: of an evaluation that is
// over only sums are kept.
type Statistics struct {
	set             *Set
	classifications map[string]*classification
	total           *tally
	agents          map[string]*tally
	group           group
}

// group holds the rollouts of one evaluation and agent until the last of them has come.
type group struct {
	evaluation, agent string
	rollouts          []Rollout
}

// NewStatistics starts the statistics of a run of the set. Set.Epochs is how many rollouts make an evaluation complete.
func NewStatistics(set *Set) *Statistics {
	s := &Statistics{set: set, classifications: map[string]*classification{}, agents: map[string]*tally{}}
	for _, def := range set.Evaluators {
		if e, err := build(def); err == nil && e.dataset != nil {
			s.classifications[def.ID] = e.dataset
		}
	}
	s.total = s.newTally()
	return s
}

// Add adds one rollout. All epochs of one evaluation and agent must come one after another.
func (s *Statistics) Add(r Rollout) {
	if len(s.group.rollouts) > 0 && (s.group.evaluation != r.EvaluationID || s.group.agent != r.Agent) {
		s.closeGroup()
	}
	s.group.evaluation, s.group.agent = r.EvaluationID, r.Agent
	s.group.rollouts = append(s.group.rollouts, r)
}

func (s *Statistics) closeGroup() {
	if len(s.group.rollouts) == 0 {
		return
	}
	agent := s.agents[s.group.agent]
	if agent == nil {
		agent = s.newTally()
		s.agents[s.group.agent] = agent
	}
	s.total.add(s.group.rollouts)
	agent.add(s.group.rollouts)
	clear(s.group.rollouts)
	s.group.rollouts = s.group.rollouts[:0]
}

// Summary gives the statistics of what was added. It ends the evaluation that was added last, so that it is asked for
// after the last rollout.
func (s *Statistics) Summary() Summary {
	s.closeGroup()
	summary := s.total.summary()
	if len(s.agents) > 1 {
		summary.Agents = make(map[string]Summary, len(s.agents))
		for name, t := range s.agents {
			summary.Agents[name] = t.summary()
		}
	}
	return summary
}

// tally holds the sums over all evaluations, of one agent or of all.
type tally struct {
	set                *Set
	classifications    map[string]*classification
	rollouts           RolloutCounts
	evaluations        EvaluationCounts
	score, withFaulted moments
	evaluators         []*evaluatorTally
	byID               map[string]*evaluatorTally
	// attempts[k-1] sums pass@k and pass^k.
	attempts []attempts
}

type evaluatorTally struct {
	id, name       string
	weight         float64
	moments        moments
	errors, notRun int
	classification *classification
	confusion      *confusion
	// epochs are the scores in the evaluation that is being added.
	epochs []float64
}

type attempts struct {
	n            int
	atLeast, all float64
}

func (s *Statistics) newTally() *tally {
	t := &tally{set: s.set, classifications: s.classifications, byID: map[string]*evaluatorTally{},
		attempts: make([]attempts, max(s.set.Epochs, 1))}
	for _, def := range s.set.Evaluators {
		t.evaluator(def.ID, def.Name)
	}
	return t
}

// evaluator finds the tally of an evaluator, and makes one if it comes for the first time, as a task's verifier does.
func (t *tally) evaluator(id, name string) *evaluatorTally {
	if e := t.byID[id]; e != nil {
		return e
	}
	e := &evaluatorTally{id: id, name: name, weight: weightOf(t.set.Evaluators, id), classification: t.classifications[id]}
	if e.classification != nil {
		e.confusion = e.classification.newConfusion()
	}
	t.byID[id] = e
	t.evaluators = append(t.evaluators, e)
	return e
}

// add adds all the rollouts of one evaluation and agent.
func (t *tally) add(rollouts []Rollout) {
	complete := len(rollouts) >= t.set.Epochs
	notRun := true
	for _, r := range rollouts {
		t.rollouts.count(r.State)
		complete = complete && r.State.IsTerminal()
		notRun = notRun && r.State == StateNotRun
	}
	t.evaluations.Total++
	if !complete && !notRun {
		t.evaluations.Incomplete++
		return
	}
	scores := make([]float64, 0, len(rollouts))
	faulted := 0
	for _, r := range rollouts {
		switch r.State {
		case StateFaulted:
			faulted++
		case StateCompleted:
			t.addResults(r.Results)
			if score := RolloutScore(t.set.Evaluators, r.Results); score != nil {
				scores = append(scores, *score)
			}
		}
	}
	t.addScores(scores, faulted)
	for _, e := range t.evaluators {
		if reduced := t.set.Reduce.reduce(e.epochs, t.set.Thresholds.Pass); reduced != nil {
			e.moments.add(*reduced, t.set.Thresholds.Pass)
		}
		e.epochs = e.epochs[:0]
	}
}

func (t *tally) addScores(scores []float64, faulted int) {
	pass := t.set.Thresholds.Pass
	if reduced := t.set.Reduce.reduce(scores, pass); reduced != nil {
		t.evaluations.Scored++
		t.score.add(*reduced, pass)
		t.addAttempts(scores)
	} else {
		t.evaluations.Unscored++
	}
	if reduced := t.set.Reduce.reduce(append(scores, make([]float64, faulted)...), pass); reduced != nil {
		t.withFaulted.add(*reduced, pass)
	}
}

// addResults adds one rollout's results to their evaluators. Several results of one evaluator count as their mean, as
// they do for UiPath.
func (t *tally) addResults(results []Result) {
	sums := map[*evaluatorTally][]float64{}
	for _, result := range results {
		if result.Line {
			continue
		}
		e := t.evaluator(result.EvaluatorID, result.EvaluatorName)
		if result.NotRun != "" {
			e.notRun++
			continue
		}
		if result.Error != "" {
			e.errors++
		}
		if e.classification != nil {
			e.classification.add(e.confusion, result)
		}
		if score := result.normalized(); score != nil {
			sums[e] = append(sums[e], *score)
		}
	}
	for e, scores := range sums {
		e.epochs = append(e.epochs, *ReduceMean.reduce(scores, 1))
	}
}

// addAttempts adds the unbiased estimates of pass@k and pass^k from n attempts of which c passed: the shares of the
// C(n,k) choices of k attempts in which at least one passed, and in which all did.
func (t *tally) addAttempts(scores []float64) {
	n, c := len(scores), 0
	for _, score := range scores {
		if passes(score, t.set.Thresholds.Pass) {
			c++
		}
	}
	for len(t.attempts) < n {
		t.attempts = append(t.attempts, attempts{})
	}
	for k := 1; k <= n; k++ {
		a := &t.attempts[k-1]
		a.n++
		a.atLeast += 1 - choices(n-c, n, k)
		a.all += choices(c, n, k)
	}
}
