package eval

import (
	"context"
	"errors"
	"strings"
)

// comparison is the details object of the evaluators that compare two texts.
type comparison struct {
	Expected string `json:"expected"`
	Actual   string `json:"actual"`
}

// exactMatch scores 1 if the output equals the expected output. If one side is a string
// both are compared as Python prints them, so that "8.0" equals 8.
func exactMatch(e *evaluator, c *config) {
	o := readOutput(c)
	caseSensitive := c.Bool("caseSensitive", false)
	negated := c.Bool("negated", false)
	e.expectsOutput, e.score = true, o.score
	e.dataset = readAggregators(c, e.def.Name, o.lines != "", caseSensitive, negated)
	o.relation = unless(negated, Equals, NotEquals)
	o.compare = func(_ context.Context, expected, actual any) outcome {
		return outcome{
			score:   truth(matches(expected, actual, caseSensitive) != negated),
			details: comparison{str(expected), str(actual)},
		}
	}
}

func matches(expected, actual any, caseSensitive bool) bool {
	_, expectedText := expected.(string)
	_, actualText := actual.(string)
	if !expectedText && !actualText {
		return equal(expected, actual)
	}
	e, a := str(expected), str(actual)
	if !caseSensitive {
		e, a = toLower(e), toLower(a)
	}
	return e == a
}

// contains scores 1 if the output, as Python prints it, contains the search text.
func contains(e *evaluator, c *config) {
	o := readOutput(c)
	caseSensitive := c.Bool("caseSensitive", false)
	negated := c.Bool("negated", false)
	e.score = o.score
	o.expectedWhole, o.relation = true, unless(negated, Contains, NotContains)
	o.expected = func(criteria *object) (any, error) {
		v, ok := criteria.get("searchText", "search_text")
		if !ok {
			return nil, errors.New("criteria: searchText is missing")
		}
		return v, nil
	}
	o.compare = func(_ context.Context, expected, actual any) outcome {
		search, text := str(expected), str(actual)
		if !caseSensitive {
			search, text = toLower(search), toLower(text)
		}
		return outcome{score: truth(strings.Contains(text, search) != negated), details: comparison{search, text}}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
