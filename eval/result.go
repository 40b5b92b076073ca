package eval

import (
	"encoding/json"
	"time"
)

// Result is the result of one evaluator for one rollout. Score is nil if the evaluator was not run,
// which NotRun says, or if it failed, which Error says. If the agent's output or the criteria do
// not fit the evaluator (wrong path, missing criteria, unknown class), Error says so and Score is
// 0.
type Result struct {
	EvaluatorID   string `json:"evaluatorId"`
	EvaluatorName string `json:"evaluatorName"`
	// Score is on the evaluator's own scale: 0 to 1, or 0 to 100 for legacy evaluators.
	Score *float64 `json:"score"`
	// Scale is 1 or 100: the score that means perfect.
	Scale float64 `json:"scale"`
	// Ratings are the ratings of the people who were asked; the score was made of them.
	Ratings []Rating `json:"ratings,omitempty"`
	// Details is a string or an object, nil if the evaluator has none.
	Details json.RawMessage `json:"details,omitempty"`
	// Comparison holds the values that the evaluator compared, nil if it compares nothing or the score
	// is the best.
	Comparison *Comparison `json:"comparison,omitempty"`
	// Error says what went wrong. ErrorCategory says it in one word if a judge gave no verdict.
	Error         string        `json:"error,omitempty"`
	ErrorCategory JudgeCategory `json:"errorCategory,omitempty"`
	// NotRun says why there is no score.
	NotRun string `json:"notRun,omitempty"`
	// Line marks the result of one line of a line-by-line evaluator; it counts in no average.
	Line bool `json:"line,omitempty"`
	// Judge says how the result came about; nil if no model was asked.
	Judge *Judged `json:"judge,omitempty"`
	// StartedAt is when the evaluator was asked; for one that waited, the last time. It is zero if the
	// evaluator was not run. Duration is how long it then took.
	StartedAt time.Time     `json:"startedAt,omitzero"`
	Duration  time.Duration `json:"durationNs"`
}

// Normalized is a result's score from 0 to 1, nil if the result counts in no average.
func (r Result) Normalized() *float64 {
	if r.Line || r.Score == nil {
		return nil
	}
	score := *r.Score
	if r.Scale > 0 {
		score /= r.Scale
	}
	return &score
}

// Failed reports whether the evaluator itself failed, so that there is no score.
func (r Result) Failed() bool { return r.Score == nil && r.Error != "" }

// Rating is the rating of a rollout by one person.
type Rating struct {
	// Rater names the person, if that was said.
	Rater string `json:"rater,omitempty"`
	// Score is from 0 to 1; for a label it is 1 if the label passes.
	Score float64 `json:"score"`
	Label string  `json:"label,omitempty"`
	// Justification is the person's reason.
	Justification string    `json:"justification,omitempty"`
	At            time.Time `json:"at"`
}

// Comparison is a pair of values that an evaluator has compared and found wanting.
type Comparison struct {
	// Expected and Actual are JSON that the evaluator chose from the criteria and the output. For
	// calls of tools Expected lists those that were not matched, and Actual holds beside each the call
	// that comes nearest, null if there is none.
	Expected json.RawMessage `json:"expected"`
	Actual   json.RawMessage `json:"actual"`
	// Relation is the relation that the two values should have had.
	Relation Relation `json:"relation"`
}

// Relation is the relation that an actual value should have to an expected one.
type Relation string

// The relations.
const (
	Equals      Relation = "equals"
	NotEquals   Relation = "notEquals"
	Contains    Relation = "contains" // the actual text, the expected one
	NotContains Relation = "notContains"
	Includes    Relation = "includes" // the actual value may have more members than the expected one
	Counts      Relation = "counts"   // how often each tool was called, as [">=", 2]
	Calls       Relation = "calls"    // calls of tools, which may have more arguments than expected
)
