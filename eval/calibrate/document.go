package calibrate

import (
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
)

// Document is a calibration.
type Document struct {
	SchemaVersion     string `json:"schemaVersion"`
	RunID             string `json:"runId"`
	EvaluationSetName string `json:"evaluationSetName"`
	// Pass is the least score that passes.
	Pass float64 `json:"pass"`
	// Labels counts the labels, Labelled the rollouts that have one, and Tied those with as many
	// labels for as against, which count for nothing.
	Labels   int `json:"labels"`
	Labelled int `json:"labelled"`
	Tied     int `json:"tied"`
	// Unknown are the labels that belong to no rollout of the run.
	Unknown []Unknown `json:"unknown"`
	// Binary says that all labels are 0 or 1: then kappa counts, else the weighted one.
	Binary bool `json:"binary"`
	// PeopleAlpha is Krippendorff's alpha of the people among each other, nil if each rollout has one
	// label. EvaluatorsAlpha is that of several evaluators among each other.
	PeopleAlpha     *float64    `json:"peopleAlpha"`
	EvaluatorsAlpha *float64    `json:"evaluatorsAlpha,omitempty"`
	Evaluators      []Evaluator `json:"evaluators"`
	Gates           []Gate      `json:"gates"`
}

// Unknown is a label that belongs to no rollout.
type Unknown struct {
	Line         int    `json:"line,omitempty"`
	EvaluationID string `json:"evaluationId"`
	Agent        string `json:"agent,omitempty"`
	Epoch        int    `json:"epoch,omitempty"`
	Reason       string `json:"reason"`
}

// Evaluator says how far one evaluator agrees with the people.
type Evaluator struct {
	EvaluatorID string `json:"evaluatorId"`
	// N counts the rollouts with a label and a score, Unscored those with a label alone.
	N        int `json:"n"`
	Unscored int `json:"unscored"`
	stats.Calibration
	// Corrected is the rate of all rollouts that pass, without the errors of the evaluator; nil if
	// it is hardly better than chance.
	Corrected *stats.Corrected `json:"corrected"`
	// Disagreements are the rollouts that pass by only one of both, the widest first.
	Disagreements []Disagreement `json:"disagreements"`
}

// Disagreement is a rollout that passes by the people or by the evaluator alone.
type Disagreement struct {
	EvaluationID string  `json:"evaluationId"`
	Agent        string  `json:"agent"`
	Epoch        int     `json:"epoch"`
	RolloutID    string  `json:"rolloutId"`
	People       float64 `json:"people"`
	Judge        float64 `json:"judge"`
}

// Gate is a demand on an evaluator's kappa, judged by its interval.
type Gate struct {
	EvaluatorID string `json:"evaluatorId"`
	// What is kappa or weightedKappa.
	What string  `json:"what"`
	Min  float64 `json:"min"`
	stats.Coefficient
	Verdict summary.GateVerdict `json:"verdict"`
}
