package eval

import (
	"context"
	"errors"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

var exactMatchType = evaluatorType{
	read: exactMatch,
	about: "Scores 1 if the output, or a part of it, equals the expected output, else 0. If one side is a text, both are compared " +
		"as Python prints them: `\"8.0\"` equals 8. Inside objects and arrays, texts are compared as they are.",
	keys: append([]key{caseSensitiveKey, negatedKey, aggregatorsKey,
		{name: "classes", kind: input.Array, about: "the labels, for `aggregators`"}}, outputKeys...),
	criteria: []key{expectedOutputKey},
}

// exactMatch scores 1 if the output equals the expected output. If one side is a string
// both are compared as Python prints them, so that "8.0" equals 8.
func exactMatch(e *evaluator, c *config) {
	o := readOutput(c)
	caseSensitive, negated := c.Bool("caseSensitive"), c.Bool("negated")
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

var containsType = evaluatorType{
	read: contains,
	about: "Scores 1 if the output, or a part of it, contains the search text, else 0. What is no text is searched as Python prints it: " +
		"`True`, `8.0`, `{'a': 1.0}`.",
	keys:     append([]key{caseSensitiveKey, negatedKey}, outputKeys...),
	tells:    func(text *input.Node) bool { return text.Kind != input.String || text.Text != "" },
	criteria: []key{{name: "searchText", required: true, about: "the text to be found"}},
}

// contains scores 1 if the output, as Python prints it, contains the search text.
func contains(e *evaluator, c *config) {
	o := readOutput(c)
	caseSensitive, negated := c.Bool("caseSensitive"), c.Bool("negated")
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
