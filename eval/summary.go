package eval

import (
	"fmt"
	"maps"
	"slices"
)

// Summary are the statistics of a run. All scores are from 0 to 1, whatever the scale of the evaluator.
type Summary struct {
	// Rollouts counts the rollouts by state.
	Rollouts RolloutCounts `json:"rollouts"`
	// Evaluations counts the evaluations, one for each agent, by what became of them.
	Evaluations EvaluationCounts `json:"evaluations"`
	// Score is over the evaluations' reduced scores without faulted rollouts, ScoreWithFaulted counts those as 0.
	Score            Estimate `json:"score"`
	ScoreWithFaulted Estimate `json:"scoreWithFaulted"`
	// EvaluatorScore is the weighted mean of the evaluators' scores, as UiPath computes the score of a set; nil without any.
	EvaluatorScore *float64 `json:"evaluatorScore"`
	// Evaluators has one entry an evaluator, in the order of the set.
	Evaluators []EvaluatorSummary `json:"evaluators"`
	// PassK has one entry for each k from 1 to the number of epochs.
	PassK []PassK `json:"passK"`
	// Agents breaks the summary down by agent if there is more than one.
	Agents map[string]Summary `json:"agents,omitempty"`
	// Dataset holds set-level results under <evaluator name>::<type>; the results document has its own place for it.
	Dataset map[string]DatasetResult `json:"-"`
}

// RolloutCounts counts rollouts by state. Open are those that are pending, running or evaluating.
type RolloutCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Suspended int `json:"suspended"`
	Faulted   int `json:"faulted"`
	Cancelled int `json:"cancelled"`
	NotRun    int `json:"notRun"`
	Open      int `json:"open"`
}

func (c *RolloutCounts) count(state State) {
	c.Total++
	switch state {
	case StateCompleted:
		c.Completed++
	case StateSuspended:
		c.Suspended++
	case StateFaulted:
		c.Faulted++
	case StateCancelled:
		c.Cancelled++
	case StateNotRun:
		c.NotRun++
	default:
		c.Open++
	}
}

// EvaluationCounts counts evaluations.
type EvaluationCounts struct {
	Total int `json:"total"`
	// Scored have a reduced score; Incomplete have epochs that are not terminal; Unscored are complete and have no score.
	Scored     int `json:"scored"`
	Incomplete int `json:"incomplete"`
	Unscored   int `json:"unscored"`
}

// EvaluatorSummary is what one evaluator says of the set.
type EvaluatorSummary struct {
	ID     string  `json:"id"`
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	Estimate
	// Score is the evaluator's score of the set: the mean, or for a classification its precision, recall or F-score.
	Score *float64 `json:"score"`
	// Errors counts the rollouts in which the evaluator failed, NotRun those in which it could not be run.
	Errors int `json:"errors"`
	NotRun int `json:"notRun"`
}

// PassK says how likely it is that of k attempts at an evaluation at least one passes (pass@k) and that all pass
// (pass^k), as unbiased estimates averaged over the N evaluations with at least k completed epochs.
type PassK struct {
	K        int      `json:"k"`
	N        int      `json:"n"`
	PassAtK  *float64 `json:"passAtK"`
	PassHatK *float64 `json:"passHatK"`
}

func (t *tally) summary() Summary {
	s := Summary{
		Rollouts: t.rollouts, Evaluations: t.evaluations,
		Score: t.score.estimate(), ScoreWithFaulted: t.withFaulted.estimate(),
		Evaluators: make([]EvaluatorSummary, 0, len(t.evaluators)), PassK: make([]PassK, len(t.attempts)),
		Dataset: map[string]DatasetResult{},
	}
	var sum, weights float64
	for _, e := range t.evaluators {
		one := e.summary()
		s.Evaluators = append(s.Evaluators, one)
		if one.Score != nil {
			sum += e.weight * *one.Score
			weights += e.weight
		}
		if e.classification != nil {
			maps.Copy(s.Dataset, e.classification.results(e.confusion))
		}
	}
	if weights > 0 {
		mean := sum / weights
		s.EvaluatorScore = &mean
	}
	for i, a := range t.attempts {
		s.PassK[i] = PassK{K: i + 1, N: a.n}
		if a.n > 0 {
			atLeast, all := a.atLeast/float64(a.n), a.all/float64(a.n)
			s.PassK[i].PassAtK, s.PassK[i].PassHatK = &atLeast, &all
		}
	}
	return s
}

func (e *evaluatorTally) summary() EvaluatorSummary {
	s := EvaluatorSummary{ID: e.id, Name: e.name, Weight: e.weight, Estimate: e.moments.estimate(), Errors: e.errors, NotRun: e.notRun}
	s.Score = s.Mean
	if e.classification != nil && e.classification.score != nil && e.confusion.total > 0 {
		score := e.classification.score(e.confusion)
		s.Score = &score
	}
	return s
}

// Judge gives a sentence for each threshold that the summary does not meet, in a fixed order. A threshold on something that was
// never scored is not met. Over several agents it judges them together.
func (t Thresholds) Judge(s Summary) []string {
	var failed []string
	judge := func(what string, got *float64, least float64) {
		switch {
		case got == nil:
			failed = append(failed, fmt.Sprintf("%s: nothing was scored, expected at least %g", what, least))
		case !passes(*got, least):
			failed = append(failed, fmt.Sprintf("%s: %.6g is less than %g", what, *got, least))
		}
	}
	if t.Score != nil {
		judge("score", s.Score.Mean, *t.Score)
	}
	if t.ScoreWithFaulted != nil {
		judge("score with faulted rollouts as 0", s.ScoreWithFaulted.Mean, *t.ScoreWithFaulted)
	}
	if t.PassRate != nil {
		judge("pass rate", s.Score.PassRate, *t.PassRate)
	}
	for _, id := range slices.Sorted(maps.Keys(t.Evaluators)) {
		var got *float64
		for _, e := range s.Evaluators {
			if e.ID == id {
				got = e.Score
			}
		}
		judge("evaluator "+id, got, t.Evaluators[id])
	}
	return failed
}
