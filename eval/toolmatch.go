package eval

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/internal/input"
)

// expectedCall is a call that criteria expect, with its arguments or its output.
type expectedCall struct {
	name   string
	id     *string
	args   *object
	output string
}

// expectedCalls reads the criteria of the args and the output evaluator.
func expectedCalls(criteria *object, camel, snake string, read func(*expectedCall, *object) error) ([]expectedCall, error) {
	v, _ := criteria.get(camel, snake)
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("criteria: %s: expected an array, got %s", camel, kindOf(v))
	}
	calls := make([]expectedCall, len(list))
	for i, item := range list {
		o, ok := item.(*object)
		if !ok {
			return nil, fmt.Errorf("criteria: %s[%d]: expected an object, got %s", camel, i, kindOf(item))
		}
		name, ok := o.Values["name"].(string)
		if !ok {
			return nil, fmt.Errorf("criteria: %s[%d]: name: expected a string, got %s", camel, i, kindOf(o.Values["name"]))
		}
		calls[i] = expectedCall{name: name}
		if v := o.Values["id"]; v != nil {
			id := str(v)
			calls[i].id = &id
		}
		if err := read(&calls[i], o); err != nil {
			return nil, fmt.Errorf("criteria: %s[%d]: %w", camel, i, err)
		}
	}
	return calls, nil
}

func (e *expectedCall) matches(call *ToolCall) bool {
	if call.ID != nil && e.id != nil {
		return *call.ID == *e.id
	}
	return call.is(e.name)
}

// callModel is UiPath's model of a call, by which Python prints it. field is what of the call is
// compared.
type callModel struct {
	name, field string
	actual      func(*ToolCall) any
	expected    func(*expectedCall) any
}

var (
	callWithArgs = callModel{
		"ToolCall", "args",
		func(c *ToolCall) any { return c.arguments() }, func(e *expectedCall) any { return e.args },
	}
	callWithOutput = callModel{
		"ToolOutput", "output",
		func(c *ToolCall) any { return c.Output }, func(e *expectedCall) any { return e.output },
	}
)

// print prints the expected calls and those that were made.
func (m *callModel) print(expected []expectedCall, calls []ToolCall) (printedExpected, printedCalls string) {
	one := func(name string, value any, id *string) opaque {
		var shown any
		if id != nil {
			shown = *id
		}
		return opaque(fmt.Sprintf("%s(name=%s, %s=%s, id=%s)", m.name, repr(name), m.field, repr(value), repr(shown)))
	}
	var wanted, made []any
	for i := range expected {
		wanted = append(wanted, one(expected[i].name, m.expected(&expected[i]), expected[i].id))
	}
	for i := range calls {
		made = append(made, one(calls[i].Name, m.actual(&calls[i]), calls[i].ID))
	}
	return repr(wanted), repr(made)
}

// unmatched are the expected calls of which none was made, each beside an unused call of the same
// tool.
func (m *callModel) unmatched(expected []expectedCall, calls []ToolCall, same func(*expectedCall, *ToolCall) bool) *compared {
	used := make([]bool, len(calls))
	take := func(e *expectedCall, fits func(*ToolCall) bool) *ToolCall {
		for i := range calls {
			if !used[i] && e.matches(&calls[i]) && fits(&calls[i]) {
				used[i] = true
				return &calls[i]
			}
		}
		return nil
	}
	var missed []*expectedCall
	for i := range expected {
		if e := &expected[i]; take(e, func(c *ToolCall) bool { return same(e, c) }) == nil {
			missed = append(missed, e)
		}
	}
	call := func(name string, value any) any {
		o := newObject()
		o.set("name", name)
		o.set(m.field, value)
		return o
	}
	wanted, made := []any{}, []any{}
	for _, e := range missed {
		var nearest any
		if c := take(e, func(*ToolCall) bool { return true }); c != nil {
			nearest = call(e.name, m.actual(c))
		}
		wanted, made = append(wanted, call(e.name, m.expected(e))), append(made, nearest)
	}
	return &compared{wanted, made, Calls}
}

var toolCallArgsType = evaluatorType{
	read:  toolCallArgs,
	about: "Scores the share of the expected calls that were made with the expected arguments, in any order. Further arguments do not matter.",
	keys: []key{strictKey,
		{name: "subset", kind: input.Bool, otherwise: false, about: "has no effect, as in UiPath's"}},
	criteria: []key{{name: "toolCalls", kind: input.Array, required: true, about: "the calls: `[{\"name\": \"search\", \"args\": {\"query\": \"lease\"}}]`"}},
}

// toolCallArgs scores the share of expected calls that were made with the expected arguments, in
// any order; strict is all or nothing. Arguments beyond the expected ones never count: UiPath's
// `subset` has no effect.
func toolCallArgs(e *evaluator, c *config) {
	strict := c.Bool("strict")
	c.Bool("subset")
	e.score = func(_ context.Context, s Subject, criteria *object) outcome {
		expected, err := expectedCalls(criteria, "toolCalls", "tool_calls", func(call *expectedCall, o *object) error {
			args, ok := o.Values["args"].(*object)
			if !ok {
				return fmt.Errorf("args: expected an object, got %s", kindOf(o.Values["args"]))
			}
			call.args = args
			return nil
		})
		if err != nil {
			return outcome{err: err}
		}
		calls := ToolCalls(s.Trace)
		out := argsScore(calls, expected, strict)
		out.compared = callWithArgs.unmatched(expected, calls, func(e *expectedCall, c *ToolCall) bool { return hasArgs(c.arguments(), e.args) })
		return out
	}
}

func argsScore(calls []ToolCall, expected []expectedCall, strict bool) outcome {
	printedExpected, printedCalls := callWithArgs.print(expected, calls)
	x := explanation{"explained_tool_calls_args", "tool calls", printedExpected, printedCalls}
	if out, done := x.emptyScore(len(expected), len(calls)); done {
		return out
	}
	m := newMatching(calls)
	for _, e := range expected {
		m.match(&e, func(call *ToolCall) (bool, string) {
			ok := hasArgs(call.arguments(), e.args)
			return ok, fmt.Sprintf("Actual: %s, Expected: %s, Score: %s", repr(call.arguments()), repr(e.args), reprFloat(truth(ok)))
		})
	}
	score := float64(m.matched) / float64(len(expected))
	if strict {
		score = truth(m.matched == len(expected))
	}
	return outcome{score: score, details: x.details(m.sentences)}
}

func hasArgs(actual, expected *object) bool {
	for _, key := range expected.Keys {
		if value, ok := actual.Values[key]; !ok || !equal(value, expected.Values[key]) {
			return false
		}
	}
	return true
}

var toolCallOutputType = evaluatorType{
	read:     toolCallOutput,
	about:    "Scores the share of the expected outputs that the tools gave, compared as exact text.",
	keys:     []key{strictKey},
	criteria: []key{{name: "toolOutputs", kind: input.Array, required: true, about: "the outputs: `[{\"name\": \"search\", \"output\": \"3 results\"}]`"}},
}

// toolCallOutput scores the share of expected outputs that calls gave, as exact text; strict ends
// with 0 at the first call of the expected name that gave another.
func toolCallOutput(e *evaluator, c *config) {
	strict := c.Bool("strict")
	e.score = func(_ context.Context, s Subject, criteria *object) outcome {
		expected, err := expectedCalls(criteria, "toolOutputs", "tool_outputs", func(call *expectedCall, o *object) error {
			output, ok := o.Values["output"].(string)
			if !ok {
				return errors.New("output: expected a string, got " + kindOf(o.Values["output"]))
			}
			call.output = output
			return nil
		})
		if err != nil {
			return outcome{err: err}
		}
		calls := ToolCalls(s.Trace)
		out := outputScore(calls, expected, strict)
		out.compared = callWithOutput.unmatched(expected, calls, func(e *expectedCall, c *ToolCall) bool { return c.Output == e.output })
		return out
	}
}

func outputScore(calls []ToolCall, expected []expectedCall, strict bool) outcome {
	printedExpected, printedCalls := callWithOutput.print(expected, calls)
	x := explanation{"explained_tool_calls_outputs", "tool calls outputs", printedExpected, printedCalls}
	if out, done := x.emptyScore(len(expected), len(calls)); done {
		return out
	}
	m := newMatching(calls)
	m.stopAtMismatch = strict
	for _, e := range expected {
		ok := m.match(&e, func(call *ToolCall) (bool, string) {
			ok := call.Output == e.output
			return ok, fmt.Sprintf("Actual: %s, Expected: %s, Score: %s", call.Output, e.output, reprFloat(truth(ok)))
		})
		if strict && !ok {
			if m.last == "" {
				return outcome{details: x.only("_result", "No matching actual tool call found for expected "+e.name)}
			}
			return outcome{details: x.only(m.last, str(m.sentences.Values[m.last]))}
		}
	}
	return outcome{score: float64(m.matched) / float64(len(expected)), details: x.details(m.sentences)}
}

// matching pairs expected with actual calls: greedily, one to one, each comparison explained under
// <name>_<n>.
type matching struct {
	calls          []ToolCall
	used           []bool
	counters       map[string]int
	sentences      *object
	matched        int
	stopAtMismatch bool
	// last is the key of the last comparison made for the current expectation, empty if there was
	// none.
	last string
}

func newMatching(calls []ToolCall) *matching {
	return &matching{calls: calls, used: make([]bool, len(calls)), counters: map[string]int{}, sentences: newObject()}
}

// match looks for an unused call that compares well.
func (m *matching) match(e *expectedCall, compare func(*ToolCall) (bool, string)) bool {
	m.last = ""
	for i := range m.calls {
		call := &m.calls[i]
		if m.used[i] || !e.matches(call) {
			continue
		}
		ok, text := compare(call)
		m.last = fmt.Sprintf("%s_%d", call.Name, m.counters[call.Name])
		m.counters[call.Name]++
		m.sentences.set(m.last, text)
		if ok {
			m.used[i] = true
			m.matched++
			return true
		}
		if m.stopAtMismatch {
			return false
		}
	}
	return false
}
