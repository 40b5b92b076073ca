package eval

import (
	"encoding/json"
)

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
