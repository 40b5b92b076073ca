package summary

import (
	"github.com/evalrun/evalrun/eval"
)

// Rollout is what the statistics need to know of one rollout.
type Rollout struct {
	EvaluationID string
	Agent        string
	Epoch        int
	State        eval.State
	// AgentsFault says that the fault of a faulted rollout is the agent's own: it is a failure of
	// the agent, with the score 0. The faults of its environment are missing data.
	AgentsFault bool
	// Evaluation says what is asked of the rollout. Where it is nil, the evaluators that have a
	// result are taken for those that were asked.
	Evaluation *eval.Evaluation
	// Usage is what the agent has used of models, by model; nil if that is not known.
	Usage []eval.Usage
	// Results are the evaluators' results; they are read only if the rollout is completed.
	Results []eval.Result
}

// cluster is the group of evaluations that the rollout's evaluation belongs to: the one that it
// names, or itself alone.
func (r Rollout) cluster() string { return eval.ClusterOf(r.EvaluationID, r.Evaluation) }
