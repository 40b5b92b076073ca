package summary

import (
	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/stats"
)

// Summary are the statistics of a run. All scores are from 0 to 1, whatever the scale of the
// evaluator. Nothing is averaged over agents: with several agents the Summary itself has the counts
// alone, and Agents the rest.
type Summary struct {
	Epochs int          `json:"epochs"`
	Reduce eval.Reducer `json:"reduce"`
	// Interval is set if the set chose how intervals are computed.
	Interval   stats.Method    `json:"interval,omitempty"`
	Thresholds eval.Thresholds `json:"thresholds"`
	AgentSummary
	// Agents has one entry an agent if there is more than one, in the order of the plan.
	Agents []AgentSummary `json:"agents,omitempty"`
	// Gates are the thresholds as they were judged, for each agent.
	Gates []Gate `json:"gates"`
	// Judges says what the judges of the evaluators did, for all agents.
	Judges []JudgeSummary `json:"judges,omitempty"`
	// Dataset holds set-level results under <evaluator name>::<type>; the results document has its
	// own place for it.
	Dataset map[string]eval.DatasetResult `json:"-"`
}

// PerAgent has one entry for each agent.
func (s Summary) PerAgent() []AgentSummary {
	if len(s.Agents) > 0 {
		return s.Agents
	}
	return []AgentSummary{s.AgentSummary}
}

func (s *Summary) addCounts(one AgentSummary) {
	s.Rollouts.add(one.Rollouts)
	s.Coverage.add(one.Coverage)
	s.Faults.Agent += one.Faults.Agent
	s.Faults.Environment += one.Faults.Environment
	s.Evaluators, s.PassK = []EvaluatorSummary{}, []stats.PassK{}
	s.Usage = s.Usage.plus(one.Usage)
}

// AgentSummary are the statistics of one agent.
type AgentSummary struct {
	Agent string `json:"agent,omitempty"`
	// Rollouts counts the rollouts by state, Faults the faulted ones by owner, Coverage the
	// evaluations by their outcome.
	Rollouts RolloutCounts `json:"rollouts"`
	Faults   FaultCounts   `json:"faults"`
	Coverage Coverage      `json:"coverage"`
	// Score is over the evaluations' reduced scores with the agent's own faults as 0; ScoreCompleted
	// leaves faulted rollouts out. Both leave out missing scores.
	Score          stats.Estimate `json:"score"`
	ScoreCompleted stats.Estimate `json:"scoreCompleted"`
	// PassRate is over the shares of the evaluations' epochs that pass. The agent's own faults do not
	// pass.
	PassRate stats.Estimate `json:"passRate"`
	// EvaluationsPassed counts the evaluations whose reduced score is at least Thresholds.Pass.
	EvaluationsPassed int `json:"evaluationsPassed"`
	// EvaluatorScore is the weighted mean of the evaluators' scores, as UiPath computes the score of a
	// set; nil if there are none.
	EvaluatorScore *float64 `json:"evaluatorScore"`
	// Evaluators has one entry an evaluator, in the order of the set.
	Evaluators []EvaluatorSummary `json:"evaluators"`
	// PassK has one entry for each k from 1 to the number of epochs, over completed rollouts.
	// PassKWithFaulted has the agent's faults as failures, if there are any; PassKCommon is over
	// the evaluations with all their epochs, if others have fewer.
	PassK            []stats.PassK `json:"passK"`
	PassKWithFaulted []stats.PassK `json:"passKWithFaulted,omitempty"`
	PassKCommon      []stats.PassK `json:"passKCommon,omitempty"`
	// With several epochs, Variance says where the scores vary, and the others which evaluations pass
	// in some epochs, in all and in none. The last two say nothing of a difference between agents.
	Variance   *stats.Variance `json:"variance,omitempty"`
	Flaky      []Flaky         `json:"flaky,omitempty"`
	AlwaysPass []string        `json:"alwaysPass,omitempty"`
	NeverPass  []string        `json:"neverPass,omitempty"`
	// Usage is the rollouts' use of models; nil if none has reported it.
	Usage *UsageSummary `json:"usage,omitempty"`
	// TaskMetrics are the metrics of the registry's data set, if the run has one, in its order.
	TaskMetrics []TaskMetric `json:"taskMetrics,omitempty"`
	// Tags has one entry a tag, if evaluations have any.
	Tags []TagSummary `json:"tags,omitempty"`
}

// RolloutCounts counts rollouts by state. Open are those that are pending, running or evaluating.
type RolloutCounts struct {
	Total     int `json:"total"`
	Completed int `json:"completed"`
	Suspended int `json:"suspended"`
	// Scoring counts the rollouts whose agent has finished and that wait for a score.
	Scoring   int `json:"scoring,omitempty"`
	Faulted   int `json:"faulted"`
	Cancelled int `json:"cancelled"`
	Open      int `json:"open"`
}

func (c *RolloutCounts) count(state eval.State) {
	c.Total++
	switch state {
	case eval.StateCompleted:
		c.Completed++
	case eval.StateSuspended:
		c.Suspended++
	case eval.StateScoring:
		c.Scoring++
	case eval.StateFaulted:
		c.Faulted++
	case eval.StateCancelled:
		c.Cancelled++
	default:
		c.Open++
	}
}

func (c *RolloutCounts) add(other RolloutCounts) {
	c.Total += other.Total
	c.Completed += other.Completed
	c.Suspended += other.Suspended
	c.Scoring += other.Scoring
	c.Faulted += other.Faulted
	c.Cancelled += other.Cancelled
	c.Open += other.Open
}

// FaultCounts counts faulted rollouts by the owner of the fault.
type FaultCounts struct {
	Agent       int `json:"agent"`
	Environment int `json:"environment"`
}

// Coverage counts the evaluations that have a score, and the others by the reason why they have
// none: each counts once.
type Coverage struct {
	Evaluations int `json:"evaluations"`
	Scored      int `json:"scored"`
	// Unscored are complete, and no evaluator gave a score. Incomplete can still change. Of
	// Cancelled and Faulted no epoch was scored because it was cancelled, or faulted by its
	// environment.
	Unscored   int `json:"unscored"`
	Incomplete int `json:"incomplete"`
	Cancelled  int `json:"cancelled"`
	Faulted    int `json:"faulted"`
	// EvaluatorResults counts the scores that evaluators gave, EvaluatorErrors how often one failed
	// instead, EvaluatorsNotRun how often one could not be run.
	EvaluatorResults int `json:"evaluatorResults"`
	EvaluatorErrors  int `json:"evaluatorErrors"`
	EvaluatorsNotRun int `json:"evaluatorsNotRun"`
}

func (c *Coverage) add(other Coverage) {
	c.Evaluations += other.Evaluations
	c.Scored += other.Scored
	c.Unscored += other.Unscored
	c.Incomplete += other.Incomplete
	c.Cancelled += other.Cancelled
	c.Faulted += other.Faulted
	c.EvaluatorResults += other.EvaluatorResults
	c.EvaluatorErrors += other.EvaluatorErrors
	c.EvaluatorsNotRun += other.EvaluatorsNotRun
}

// EvaluatorSummary sums up one evaluator over the set. The agent's own faults count as 0 if the
// evaluator was to score them.
type EvaluatorSummary struct {
	ID     string  `json:"id"`
	Name   string  `json:"name"`
	Weight float64 `json:"weight"`
	// Digest is the same for evaluators that score in the same way.
	Digest string `json:"digest,omitempty"`
	stats.Estimate
	PassRate          stats.Estimate `json:"passRate"`
	EvaluationsPassed int            `json:"evaluationsPassed"`
	// Score is the evaluator's score of the set as UiPath computes it: the mean over completed
	// rollouts, or for a classification its precision, recall or F-score over those predictions
	// that are among its classes.
	Score *float64 `json:"score"`
	// ScoreStrict is the score of a classification that counts every other prediction as a wrong one.
	// Thresholds are judged on it. Skipped counts those predictions.
	ScoreStrict *float64 `json:"scoreStrict,omitempty"`
	Skipped     int      `json:"nSkipped,omitempty"`
	// Errors counts the rollouts in which the evaluator failed, NotRun those in which it could not
	// be run.
	Errors int `json:"errors"`
	NotRun int `json:"notRun"`
}
