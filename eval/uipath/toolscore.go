package uipath

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/input"
)

// orderDetails are the details of the tool call order evaluator.
type orderDetails struct {
	Actual   string `json:"actual"`
	Expected string `json:"expected"`
	LCS      []any  `json:"lcs"`
}

var toolCallOrderType = evaluator.Kind{
	Read: toolCallOrder,
	About: "Scores the longest common subsequence of the expected and the actual tool calls, as a share of the " +
		"expected ones.",
	Keys: []evaluator.Key{strictKey},
	Criteria: []evaluator.Key{{Name: "toolCallsOrder", Kind: input.Array, Required: true,
		About: "the names of the tools, or their ids, in the order in which they should be called"}},
}

// toolCallOrder scores the longest common subsequence of the expected and the actual calls; strict
// wants them equal.
func toolCallOrder(e *evaluator.Evaluator, c *evaluator.Config) {
	strict := c.Bool("strict")
	e.Score = func(_ context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		v, _ := criteria.Get("toolCallsOrder", "tool_calls_order")
		expected, ok := v.([]any)
		if !ok {
			return evaluator.Failed("criteria: toolCallsOrder: expected an array of tool names, got %s",
				pyvalue.KindOf(v))
		}
		for _, name := range expected {
			if _, ok := name.(string); !ok {
				return evaluator.Failed("criteria: toolCallsOrder: expected an array of tool names, got %s in it",
					pyvalue.KindOf(name))
			}
		}
		calls := spans.ToolCalls(s.Trace)
		out := orderScore(calls, expected, strict)
		out.Compared = &evaluator.Compared{Expected: expected, Actual: names(calls), Relation: eval.Equals}
		return out
	}
}

func orderScore(calls []spans.ToolCall, expected []any, strict bool) evaluator.Outcome {
	details := orderDetails{pyvalue.Repr(names(calls)), pyvalue.Repr(expected), []any{}}
	switch {
	case len(expected) == 0 && len(calls) == 0:
		return evaluator.Outcome{Score: 1, Details: details}
	case len(expected) == 0 || len(calls) == 0:
		return evaluator.Outcome{Details: details}
	case strict:
		if len(calls) != len(expected) {
			return evaluator.Outcome{Details: details}
		}
		for i := range calls {
			if !calls[i].Is(expected[i].(string)) {
				return evaluator.Outcome{Details: details}
			}
		}
		details.LCS = expected
		return evaluator.Outcome{Score: 1, Details: details}
	}
	details.LCS = commonSubsequence(calls, expected)
	return evaluator.Outcome{Score: float64(len(details.LCS)) / float64(len(expected)), Details: details}
}

// names returns the names by which criteria know the tools that were called.
func names(calls []spans.ToolCall) []any {
	out := make([]any, len(calls))
	for i, call := range calls {
		out[i] = call.Known()
	}
	return out
}

// commonSubsequence returns the longest common subsequence. Of several it returns the one that
// UiPath's tie-break finds, which on the way back leaves an actual call out only if that is
// strictly better than leaving an expected one out.
func commonSubsequence(calls []spans.ToolCall, expected []any) []any {
	length := make([][]int, len(calls)+1)
	length[0] = make([]int, len(expected)+1)
	for i := range calls {
		length[i+1] = make([]int, len(expected)+1)
		for j := range expected {
			if calls[i].Is(expected[j].(string)) {
				length[i+1][j+1] = length[i][j] + 1
			} else {
				length[i+1][j+1] = max(length[i][j+1], length[i+1][j])
			}
		}
	}
	i, j := len(calls), len(expected)
	lcs := make([]any, length[i][j])
	for at := len(lcs); i > 0 && j > 0; {
		switch {
		case calls[i-1].Is(expected[j-1].(string)):
			i, j, at = i-1, j-1, at-1
			lcs[at] = expected[j]
		case length[i-1][j] > length[i][j-1]:
			i--
		default:
			j--
		}
	}
	return lcs
}

// explanation makes the details of a tool call evaluator: both sides as Python prints them, and
// under the evaluator's own key one sentence for each comparison.
type explanation struct {
	key              string
	what             string // what the evaluator checks, as a sentence names it
	expected, actual string
}

func (x explanation) details(sentences *pyvalue.Object) *pyvalue.Object {
	o := pyvalue.New()
	o.Set("expected", x.expected)
	o.Set("actual", x.actual)
	o.Set(x.key, sentences)
	return o
}

func (x explanation) only(key, text string) *pyvalue.Object {
	o := pyvalue.New()
	o.Set(key, text)
	return x.details(o)
}

// emptyScore settles the cases in which one side has no calls at all. That gives 0 even if no call
// is expected, as in {"a": ["=", 0]}: UiPath does the same.
func (x explanation) emptyScore(expected, actual int) (evaluator.Outcome, bool) {
	switch {
	case expected == 0 && actual == 0:
		return evaluator.Outcome{Score: 1,
			Details: x.only("_result", "Both expected and actual "+x.what+" are empty")}, true
	case expected == 0 || actual == 0:
		return evaluator.Outcome{Details: x.only("_result", "Either expected or actual "+x.what+" are empty")}, true
	}
	return evaluator.Outcome{}, false
}

// comparators are the relations that a tool call count may have to its expectation.
var comparators = map[string]func(actual, expected float64) bool{
	">":  func(a, e float64) bool { return a > e },
	"<":  func(a, e float64) bool { return a < e },
	">=": func(a, e float64) bool { return a >= e },
	"<=": func(a, e float64) bool { return a <= e },
	"=":  func(a, e float64) bool { return a == e },
	"==": func(a, e float64) bool { return a == e },
	"!=": func(a, e float64) bool { return a != e },
}

var toolCallCountType = evaluator.Kind{
	Read:  toolCallCount,
	About: "Scores the share of the tools that were called as often as expected.",
	Keys:  []evaluator.Key{strictKey},
	Criteria: []evaluator.Key{{Name: "toolCallsCount", Kind: input.Object, Required: true,
		About: "for each tool a relation (`=`, `!=`, `>`, `>=`, `<`, `<=`) and a number: `{\"search\": [\">=\", 2]}`"}},
}

// toolCallCount scores the share of tools that were called as often as expected; strict is all or
// nothing.
func toolCallCount(e *evaluator.Evaluator, c *evaluator.Config) {
	strict := c.Bool("strict")
	e.Score = func(_ context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		v, _ := criteria.Get("toolCallsCount", "tool_calls_count")
		expected, ok := v.(*pyvalue.Object)
		if !ok {
			return evaluator.Failed(`criteria: toolCallsCount: expected an object such as {"tool": ["=", 1]}, got %s`,
				pyvalue.KindOf(v))
		}
		calls := spans.ToolCalls(s.Trace)
		out := countScore(calls, expected, strict)
		out.Compared = &evaluator.Compared{Expected: expected, Actual: countCalls(calls), Relation: eval.Counts}
		return out
	}
}

func countScore(calls []spans.ToolCall, expected *pyvalue.Object, strict bool) evaluator.Outcome {
	counts := countCalls(calls)
	x := explanation{key: "explained_tool_calls_count", what: "tool calls", actual: pyvalue.Repr(counts)}
	wants, shown := make([]countExpectation, len(expected.Keys)), pyvalue.New()
	for i, name := range expected.Keys {
		want, err := readCountExpectation(name, expected.Values[name])
		if err != nil {
			return evaluator.Outcome{Err: err}
		}
		wants[i] = want
		shown.Set(name, pyvalue.Tuple{want.op, want.count})
	}
	x.expected = pyvalue.Repr(shown)
	if out, done := x.emptyScore(len(wants), len(calls)); done {
		return out
	}
	sentences, passed := pyvalue.New(), 0.0
	for i, name := range expected.Keys {
		count, ok := counts.Values[name]
		if !ok {
			if count, ok = counts.Values[spans.Sanitize(name)]; !ok {
				count = wholeNumber(0)
			}
		}
		score := pyvalue.Truth(comparators[wants[i].op](count.(pyvalue.Number).Float,
			wants[i].count.Float)) // countCalls puts nothing else in
		text := fmt.Sprintf("Actual: %s, Expected: %s, Score: %s", pyvalue.Str(count), pyvalue.Str(wants[i].count),
			pyvalue.ReprFloat(score))
		sentences.Set(name, text)
		if strict && score == 0 {
			return evaluator.Outcome{Details: x.only(name, text)}
		}
		passed += score
	}
	return evaluator.Outcome{Score: passed / float64(len(wants)), Details: x.details(sentences)}
}

// countCalls counts the calls of each tool by the name that criteria may give it: its id, or if it
// has none its name.
func countCalls(calls []spans.ToolCall) *pyvalue.Object {
	counts := pyvalue.New()
	for i := range calls {
		key, n := calls[i].Known(), 0.0
		if count, ok := counts.Values[key].(pyvalue.Number); ok {
			n = count.Float
		}
		counts.Set(key, wholeNumber(n+1))
	}
	return counts
}

func wholeNumber(n float64) pyvalue.Number {
	return pyvalue.ParseNumber(strconv.FormatFloat(n, 'f', 0, 64))
}

type countExpectation struct {
	op    string
	count pyvalue.Number
}

// readCountExpectation reads a pair such as ["=", 1]. A count may be written as 1.0, "1" or true:
// UiPath turns them into whole numbers.
func readCountExpectation(name string, v any) (countExpectation, error) {
	pair, _ := v.([]any)
	if len(pair) != 2 {
		return countExpectation{}, fmt.Errorf(`criteria: toolCallsCount: %s: expected a pair such as ["=", 1]`, name)
	}
	op, _ := pair[0].(string)
	count, isNumber := pyvalue.AsNumber(pair[1])
	if text, ok := pair[1].(string); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		count, isNumber = wholeNumber(float64(n)), err == nil
	}
	if _, known := comparators[op]; !known || !isNumber || count.Float != math.Trunc(count.Float) ||
		math.IsInf(count.Float, 0) {
		return countExpectation{},
			fmt.Errorf(`criteria: toolCallsCount: %s: expected one of > < >= <= = == != and a whole number, got %s`,
				name, pyvalue.Repr(v))
	}
	if !count.Integer {
		count = wholeNumber(count.Float)
	}
	return countExpectation{op, count}, nil
}
