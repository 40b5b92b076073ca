package summary

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
