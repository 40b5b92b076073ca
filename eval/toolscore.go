package eval

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// orderDetails are the details of the tool call order evaluator.
type orderDetails struct {
	Actual   string `json:"actual"`
	Expected string `json:"expected"`
	LCS      []any  `json:"lcs"`
}

var toolCallOrderType = evaluatorType{
	read:     toolCallOrder,
	about:    "Scores the longest common subsequence of the expected and the actual tool calls, as a share of the expected ones.",
	keys:     []key{strictKey},
	criteria: []key{{name: "toolCallsOrder", kind: input.Array, required: true, about: "the names of the tools, or their ids, in the order in which they should be called"}},
}

// toolCallOrder scores the longest common subsequence of the expected and the actual calls; strict
// wants them equal.
func toolCallOrder(e *evaluator, c *config) {
	strict := c.Bool("strict")
	e.score = func(_ context.Context, s Subject, criteria *object) outcome {
		v, _ := criteria.get("toolCallsOrder", "tool_calls_order")
		expected, ok := v.([]any)
		if !ok {
			return failed("criteria: toolCallsOrder: expected an array of tool names, got %s", kindOf(v))
		}
		for _, name := range expected {
			if _, ok := name.(string); !ok {
				return failed("criteria: toolCallsOrder: expected an array of tool names, got %s in it", kindOf(name))
			}
		}
		calls := ToolCalls(s.Trace)
		out := orderScore(calls, expected, strict)
		out.compared = &compared{expected, names(calls), Equals}
		return out
	}
}

func orderScore(calls []ToolCall, expected []any, strict bool) outcome {
	details := orderDetails{repr(names(calls)), repr(expected), []any{}}
	switch {
	case len(expected) == 0 && len(calls) == 0:
		return outcome{score: 1, details: details}
	case len(expected) == 0 || len(calls) == 0:
		return outcome{details: details}
	case strict:
		if len(calls) != len(expected) {
			return outcome{details: details}
		}
		for i := range calls {
			if !calls[i].is(expected[i].(string)) {
				return outcome{details: details}
			}
		}
		details.LCS = expected
		return outcome{score: 1, details: details}
	}
	details.LCS = commonSubsequence(calls, expected)
	return outcome{score: float64(len(details.LCS)) / float64(len(expected)), details: details}
}

// names are those by which criteria know the tools that were called.
func names(calls []ToolCall) []any {
	out := make([]any, len(calls))
	for i, call := range calls {
		out[i] = call.known()
	}
	return out
}

// commonSubsequence is the longest one; of several the one that UiPath's tie-break finds, which on
// the way back leaves an actual call out only if that is strictly better than leaving an expected
// one out.
func commonSubsequence(calls []ToolCall, expected []any) []any {
	length := make([][]int, len(calls)+1)
	length[0] = make([]int, len(expected)+1)
	for i := range calls {
		length[i+1] = make([]int, len(expected)+1)
		for j := range expected {
			if calls[i].is(expected[j].(string)) {
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
		case calls[i-1].is(expected[j-1].(string)):
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
	what             string // of which the evaluator speaks in a sentence
	expected, actual string
}

func (x explanation) details(sentences *object) *object {
	o := newObject()
	o.set("expected", x.expected)
	o.set("actual", x.actual)
	o.set(x.key, sentences)
	return o
}

func (x explanation) only(key, text string) *object {
	o := newObject()
	o.set(key, text)
	return x.details(o)
}

// emptyScore settles the cases in which one side has no calls at all. That gives 0 even where no
// call is what was expected, as in {"a": ["=", 0]}: so does UiPath's.
func (x explanation) emptyScore(expected, actual int) (outcome, bool) {
	switch {
	case expected == 0 && actual == 0:
		return outcome{score: 1, details: x.only("_result", "Both expected and actual "+x.what+" are empty")}, true
	case expected == 0 || actual == 0:
		return outcome{details: x.only("_result", "Either expected or actual "+x.what+" are empty")}, true
	}
	return outcome{}, false
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

var toolCallCountType = evaluatorType{
	read:  toolCallCount,
	about: "Scores the share of the tools that were called as often as expected.",
	keys:  []key{strictKey},
	criteria: []key{{name: "toolCallsCount", kind: input.Object, required: true,
		about: "for each tool a relation (`=`, `!=`, `>`, `>=`, `<`, `<=`) and a number: `{\"search\": [\">=\", 2]}`"}},
}

// toolCallCount scores the share of tools that were called as often as expected; strict is all or
// nothing.
func toolCallCount(e *evaluator, c *config) {
	strict := c.Bool("strict")
	e.score = func(_ context.Context, s Subject, criteria *object) outcome {
		v, _ := criteria.get("toolCallsCount", "tool_calls_count")
		expected, ok := v.(*object)
		if !ok {
			return failed(`criteria: toolCallsCount: expected an object such as {"tool": ["=", 1]}, got %s`, kindOf(v))
		}
		calls := ToolCalls(s.Trace)
		out := countScore(calls, expected, strict)
		out.compared = &compared{expected, countCalls(calls), Counts}
		return out
	}
}

func countScore(calls []ToolCall, expected *object, strict bool) outcome {
	counts := countCalls(calls)
	x := explanation{key: "explained_tool_calls_count", what: "tool calls", actual: repr(counts)}
	wants, shown := make([]countExpectation, len(expected.Keys)), newObject()
	for i, name := range expected.Keys {
		want, err := readCountExpectation(name, expected.Values[name])
		if err != nil {
			return outcome{err: err}
		}
		wants[i] = want
		shown.set(name, tuple{want.op, want.count})
	}
	x.expected = repr(shown)
	if out, done := x.emptyScore(len(wants), len(calls)); done {
		return out
	}
	sentences, passed := newObject(), 0.0
	for i, name := range expected.Keys {
		count, ok := counts.Values[name]
		if !ok {
			if count, ok = counts.Values[sanitize(name)]; !ok {
				count = wholeNumber(0)
			}
		}
		score := truth(comparators[wants[i].op](count.(number).Float, wants[i].count.Float)) // countCalls puts nothing else in
		text := fmt.Sprintf("Actual: %s, Expected: %s, Score: %s", str(count), str(wants[i].count), reprFloat(score))
		sentences.set(name, text)
		if strict && score == 0 {
			return outcome{details: x.only(name, text)}
		}
		passed += score
	}
	return outcome{score: passed / float64(len(wants)), details: x.details(sentences)}
}

// countCalls counts the calls of each tool by the name that criteria may give it: its id, or if it
// has none its name.
func countCalls(calls []ToolCall) *object {
	counts := newObject()
	for i := range calls {
		key, n := calls[i].known(), 0.0
		if count, ok := counts.Values[key].(number); ok {
			n = count.Float
		}
		counts.set(key, wholeNumber(n+1))
	}
	return counts
}

func wholeNumber(n float64) number { return parseNumber(strconv.FormatFloat(n, 'f', 0, 64)) }

type countExpectation struct {
	op    string
	count number
}

// readCountExpectation reads a pair such as ["=", 1]. A count may be written as 1.0, "1" or true:
// UiPath makes a whole number of them.
func readCountExpectation(name string, v any) (countExpectation, error) {
	pair, _ := v.([]any)
	if len(pair) != 2 {
		return countExpectation{}, fmt.Errorf(`criteria: toolCallsCount: %s: expected a pair such as ["=", 1]`, name)
	}
	op, _ := pair[0].(string)
	count, isNumber := asNumber(pair[1])
	if text, ok := pair[1].(string); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		count, isNumber = wholeNumber(float64(n)), err == nil
	}
	if _, known := comparators[op]; !known || !isNumber || count.Float != math.Trunc(count.Float) || math.IsInf(count.Float, 0) {
		return countExpectation{}, fmt.Errorf(`criteria: toolCallsCount: %s: expected one of > < >= <= = == != and a whole number, got %s`, name, repr(v))
	}
	if !count.Integer {
		count = wholeNumber(count.Float)
	}
	return countExpectation{op, count}, nil
}
