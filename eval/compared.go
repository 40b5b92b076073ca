package eval

import (
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// compared is a comparison before it is written as JSON.
type compared struct {
	expected, actual any
	relation         Relation
}

// comparison is nil if there was none, or if it cannot be written as JSON.
func (c *compared) comparison() *Comparison {
	if c == nil {
		return nil
	}
	expected, err := jsonobj.Marshal(c.expected)
	if err != nil {
		return nil
	}
	actual, err := jsonobj.Marshal(c.actual)
	if err != nil {
		return nil
	}
	return &Comparison{expected, actual, c.relation}
}

// unless is the first relation, or if negated the second.
func unless(negated bool, positive, negative Relation) Relation {
	if negated {
		return negative
	}
	return positive
}
