package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
)

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

func (e *epochs) figure(reduce func([]float64) float64) Figure {
	f := Figure{Low: reduce(e.least), High: reduce(e.most), Open: e.open > 0, Epochs: slices.Clone(e.known)}
	if len(e.known) > 0 && e.open == 0 && !e.unfinished {
		value := reduce(e.known)
		f.Value = &value
	}
	return f
}

// Digest is the same for definitions that score in the same way. Which run a reference like "latest"
// meant is no part of it.
func (d Definition) Digest() string {
	d.Name, d.Weight, d.Reference = "", 0, nil
	data, err := json.Marshal(d)
	if err != nil {
		return "" // its configuration was JSON when it was read
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Reduce makes one score of the scores of an evaluation's epochs, of which there is at least one.
func (r Reducer) Reduce(scores []float64, pass float64) float64 { return r.reduce(scores, pass) }

// PassShare is the share of the scores that pass.
func PassShare(scores []float64, pass float64) float64 {
	return float64(passing(scores, pass)) / float64(len(scores))
}
