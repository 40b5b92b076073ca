package summary

import (
	"github.com/evalrun/evalrun/eval"
)

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
