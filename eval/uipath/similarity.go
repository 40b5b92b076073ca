package uipath

import (
	"context"
	"math"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// hasLeaves reports whether an expected output has any leaf to find.
func hasLeaves(n *input.Node) bool {
	switch n.Kind {
	case input.Object:
		return slices.ContainsFunc(n.Members, func(m input.Member) bool { return hasLeaves(m.Value) })
	case input.Array:
		return slices.ContainsFunc(n.Items, hasLeaves)
	}
	return true
}

// similarityDetails are spelled in snake_case, as UiPath spells them here.
type similarityDetails struct {
	Expected string  `json:"expected"`
	Actual   string  `json:"actual"`
	Matched  float64 `json:"matched_leaves"`
	Total    float64 `json:"total_leaves"`
}

var jsonSimilarityType = evaluator.Kind{
	OutputAlone: true,
	Read:        jsonSimilarity,
	About: "Scores how much of the expected output is in the output, leaf by leaf, from 0 to 1: texts by their " +
		"edit distance, numbers by how " +
		"near they are. What only the output has does not count, so an expected output of `{}` is always met.",
	Keys:     outputKeys,
	Tells:    hasLeaves,
	Criteria: []evaluator.Key{evaluator.ExpectedOutputKey},
}

// jsonSimilarity scores how much of the expected output is found in the actual one, leaf by leaf.
func jsonSimilarity(e *evaluator.Evaluator, c *evaluator.Config) {
	o := readOutput(c)
	e.ExpectsOutput, e.Score, o.relation = true, o.score, eval.Includes
	o.compare = func(ctx context.Context, expected, actual any) evaluator.Outcome {
		matched, total, err := similarity(ctx, expected, actual)
		if err != nil {
			return evaluator.Outcome{Err: err}
		}
		return evaluator.Outcome{
			Score:   share(matched, total),
			Details: similarityDetails{pyvalue.Str(expected), pyvalue.Str(actual), matched, total},
		}
	}
}

// share returns the score for a number of matched leaves; an expectation without leaves is always
// met.
func share(matched, total float64) float64 {
	if total == 0 {
		return 1
	}
	return max(0, min(1, matched/total))
}

// similarity counts the leaves of expected and how far actual matches them. Leaves that only actual
// has do not count.
func similarity(ctx context.Context, expected, actual any) (matched, total float64, err error) {
	switch e := expected.(type) {
	case *pyvalue.Object:
		a, _ := actual.(*pyvalue.Object)
		for _, key := range e.Keys {
			child, found := any(nil), false
			if a != nil {
				child, found = a.Values[key]
			}
			if err := addSimilarity(ctx, e.Values[key], child, found, &matched, &total); err != nil {
				return 0, 0, err
			}
		}
		return matched, total, nil
	case []any:
		a, _ := actual.([]any)
		for i, item := range e {
			child, found := any(nil), i < len(a)
			if found {
				child = a[i]
			}
			if err := addSimilarity(ctx, item, child, found, &matched, &total); err != nil {
				return 0, 0, err
			}
		}
		return matched, total, nil
	}
	matched, err = leafSimilarity(ctx, expected, actual)
	return matched, 1, err
}

func addSimilarity(ctx context.Context, expected, actual any, found bool, matched, total *float64) error {
	if !found {
		*total += leaves(expected)
		return nil
	}
	m, t, err := similarity(ctx, expected, actual)
	*matched += m
	*total += t
	return err
}

func leafSimilarity(ctx context.Context, expected, actual any) (float64, error) {
	switch e := expected.(type) {
	case pyvalue.Number:
		if a, ok := actual.(pyvalue.Number); ok {
			return numberSimilarity(e.Float, a.Float), nil
		}
	case string:
		if a, ok := actual.(string); ok {
			return stringSimilarity(ctx, e, a)
		}
	case bool:
		a, ok := actual.(bool)
		return pyvalue.Truth(ok && e == a), nil
	case nil:
		return pyvalue.Truth(actual == nil), nil
	}
	return 0, nil
}

func numberSimilarity(expected, actual float64) float64 {
	const zero = 1e-12
	if math.Abs(expected) <= zero {
		return pyvalue.Truth(math.Abs(actual) <= zero)
	}
	s := 1 - math.Abs(expected-actual)/math.Abs(expected)
	if math.IsNaN(s) { // both are infinite
		return pyvalue.Truth(expected == actual)
	}
	return max(0, min(1, s))
}

func leaves(v any) float64 {
	n := 0.0
	switch v := v.(type) {
	case *pyvalue.Object:
		for _, child := range v.Values {
			n += leaves(child)
		}
	case []any:
		for _, child := range v {
			n += leaves(child)
		}
	default:
		n = 1
	}
	return n
}

func stringSimilarity(ctx context.Context, expected, actual string) (float64, error) {
	if expected == actual {
		return 1, nil
	}
	e, a := []rune(expected), []rune(actual)
	d, err := distance(ctx, e, a)
	if err != nil {
		return 0, err
	}
	return 1 - float64(d)/float64(max(len(e), len(a))), nil
}

// distance is the Levenshtein distance in code points. It looks at the context between rows,
// because the two texts are an agent's and may be megabytes; that is why the library that suggests
// names is not used here.
func distance(ctx context.Context, a, b []rune) (int, error) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if len(b) > len(a) {
		a, b = b, a
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range a {
		if i%64 == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		diagonal := row[0]
		row[0] = i + 1
		for j, s := range b {
			cost := diagonal
			if r != s {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)], nil
}
