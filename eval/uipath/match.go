package uipath

import (
	"context"
	"errors"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

var exactMatchType = evaluator.Kind{
	OutputAlone: true,
	Read:        exactMatch,
	About: "Scores 1 if the output, or a part of it, equals the expected output, else 0. If one side is a text, " +
		"both are compared " +
		"as Python prints them: `\"8.0\"` equals 8. Inside objects and arrays, texts are compared as they are.",
	Keys: append([]evaluator.Key{caseSensitiveKey, negatedKey, aggregatorsKey,
		{Name: "classes", Kind: input.Array, About: "the labels, for `aggregators`"}}, outputKeys...),
	Criteria: []evaluator.Key{evaluator.ExpectedOutputKey},
}

// exactMatch scores 1 if the output equals the expected output. If one side is a string
// both are compared as Python prints them, so that "8.0" equals 8.
func exactMatch(e *evaluator.Evaluator, c *evaluator.Config) {
	o := readOutput(c)
	caseSensitive, negated := c.Bool("caseSensitive"), c.Bool("negated")
	e.ExpectsOutput, e.Score = true, o.score
	e.Classification = readAggregators(c, e.Def.Name, o.lines != "", caseSensitive, negated)
	o.relation = evaluator.Unless(negated, eval.Equals, eval.NotEquals)
	o.compare = func(_ context.Context, expected, actual any) evaluator.Outcome {
		return evaluator.Outcome{
			Score:   pyvalue.Truth(matches(expected, actual, caseSensitive) != negated),
			Details: comparison{pyvalue.Str(expected), pyvalue.Str(actual)},
		}
	}
}

func matches(expected, actual any, caseSensitive bool) bool {
	_, expectedText := expected.(string)
	_, actualText := actual.(string)
	if !expectedText && !actualText {
		return pyvalue.Equal(expected, actual)
	}
	e, a := pyvalue.Str(expected), pyvalue.Str(actual)
	if !caseSensitive {
		e, a = pyvalue.Lower(e), pyvalue.Lower(a)
	}
	return e == a
}

var containsType = evaluator.Kind{
	OutputAlone: true,
	Read:        contains,
	About: "Scores 1 if the output, or a part of it, contains the search text, else 0. What is no text is " +
		"searched as Python prints it: " +
		"`True`, `8.0`, `{'a': 1.0}`.",
	Keys:     append([]evaluator.Key{caseSensitiveKey, negatedKey}, outputKeys...),
	Tells:    func(text *input.Node) bool { return text.Kind != input.String || text.Text != "" },
	Criteria: []evaluator.Key{{Name: "searchText", Required: true, About: "the text to be found"}},
}

// contains scores 1 if the output, as Python prints it, contains the search text.
func contains(e *evaluator.Evaluator, c *evaluator.Config) {
	o := readOutput(c)
	caseSensitive, negated := c.Bool("caseSensitive"), c.Bool("negated")
	e.Score = o.score
	o.expectedWhole, o.relation = true, evaluator.Unless(negated, eval.Contains, eval.NotContains)
	o.expected = func(criteria *pyvalue.Object) (any, error) {
		v, ok := criteria.Get("searchText", "search_text")
		if !ok {
			return nil, errors.New("criteria: searchText is missing")
		}
		return v, nil
	}
	o.compare = func(_ context.Context, expected, actual any) evaluator.Outcome {
		search, text := pyvalue.Str(expected), pyvalue.Str(actual)
		if !caseSensitive {
			search, text = pyvalue.Lower(search), pyvalue.Lower(text)
		}
		return evaluator.Outcome{Score: pyvalue.Truth(strings.Contains(text, search) != negated),
			Details: comparison{search, text}}
	}
}
