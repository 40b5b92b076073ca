package summary

// Outcome is what one evaluation came to for one agent.
type Outcome struct {
	EvaluationID string
	Agent        string
	// Cluster is that of the evaluation, or a name that only this evaluation has.
	Cluster  string
	Score    Figure
	PassRate Figure
	// Evaluators holds those that were to score the evaluation, by id.
	Evaluators map[string]Figure
	// Tokens and Cost are what its rollouts have used of models, on average. They have no bounds.
	Tokens Figure
	Cost   Figure
}

// Figure is one figure of an evaluation over its epochs.
type Figure struct {
	// Value is nil if it is not known, or may change.
	Value *float64
	// Low and High are what it comes to if everything that is missing is 0, and if it is 1.
	Low, High float64
	// Open says that an epoch may still bring something, or was cancelled.
	Open bool
	// Epochs are the scores that are known.
	Epochs []float64
}
