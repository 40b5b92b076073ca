package eval

import (
	"encoding/json"
)

// Comparison is a pair of values that an evaluator has compared and found wanting.
type Comparison struct {
	// Expected and Actual are JSON, as the evaluator has chosen them from criteria and output. Of
	// calls of tools Expected are those that were not matched, and Actual beside each the call that
	// comes nearest, null if there is none.
	Expected json.RawMessage `json:"expected"`
	Actual   json.RawMessage `json:"actual"`
	// Relation is what was to hold between the two.
	Relation Relation `json:"relation"`
}

// Relation is what is to hold of an actual and an expected value.
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
