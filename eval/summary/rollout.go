package summary

import "github.com/evalrun/evalrun/eval"

// Rollout has the facts of one rollout that the statistics need.
type Rollout struct {
	EvaluationID string
	Agent        string
	Epoch        int
	State        eval.State
	// AgentsFault says that the fault of a faulted rollout is the agent's own: it is a failure of
	// the agent, with the score 0. The faults of its environment are missing data.
	AgentsFault bool
	// Evaluation is the evaluation of the rollout. If it is nil, the evaluators that have a result are
	// taken for those that were asked.
	Evaluation *eval.Evaluation
	// Usage is the agent's use of models, by model; nil if that is not known.
	Usage []eval.Usage
	// Results are the evaluators' results; they are read only if the rollout is completed.
	Results []eval.Result
}

// cluster returns the group of evaluations to which the rollout's evaluation belongs: the one that
// it names, or itself alone.
func (r Rollout) cluster() string { return eval.ClusterOf(r.EvaluationID, r.Evaluation) }

// Outcome is the outcome of one evaluation for one agent.
type Outcome struct {
	EvaluationID string
	Agent        string
	// Cluster is the cluster of the evaluation, or a name that only this evaluation has.
	Cluster  string
	Score    Figure
	PassRate Figure
	// Evaluators holds the figures of the evaluators that were to score the evaluation, by id.
	Evaluators map[string]Figure
	// Tokens and Cost are the average use of models by its rollouts. They have no bounds.
	Tokens Figure
	Cost   Figure
}

// Figure is one figure of an evaluation over its epochs.
type Figure struct {
	// Value is nil if it is not known, or may change.
	Value *float64
	// Low and High are the figure if everything that is missing is 0, and if it is 1.
	Low, High float64
	// Open says that an epoch may still bring a figure, or was cancelled.
	Open bool
	// Epochs are the known scores.
	Epochs []float64
}
