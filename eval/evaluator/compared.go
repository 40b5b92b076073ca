package evaluator

import (
	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Compared is a comparison before it is written as JSON.
type Compared struct {
	Expected, Actual any
	Relation         eval.Relation
}

// comparison returns nil if there was no comparison, or if it cannot be written as JSON.
func (c *Compared) comparison() *eval.Comparison {
	if c == nil {
		return nil
	}
	expected, err := jsonobj.Marshal(c.Expected)
	if err != nil {
		return nil
	}
	actual, err := jsonobj.Marshal(c.Actual)
	if err != nil {
		return nil
	}
	return &eval.Comparison{Expected: expected, Actual: actual, Relation: c.Relation}
}

// Unless returns the first relation, or if negated the second.
func Unless(negated bool, positive, negative eval.Relation) eval.Relation {
	if negated {
		return negative
	}
	return positive
}
