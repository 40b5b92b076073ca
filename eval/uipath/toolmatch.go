package uipath

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/input"
)

// expectedCall is a call that criteria expect, with its arguments or its output.
type expectedCall struct {
	name   string
	id     *string
	args   *pyvalue.Object
	output string
}

// expectedCalls reads the criteria of the args and the output evaluator.
func expectedCalls(criteria *pyvalue.Object, camel, snake string,
	read func(*expectedCall, *pyvalue.Object) error) ([]expectedCall, error) {
	v, _ := criteria.Get(camel, snake)
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("criteria: %s: expected an array, got %s", camel, pyvalue.KindOf(v))
	}
	calls := make([]expectedCall, len(list))
	for i, item := range list {
		o, ok := item.(*pyvalue.Object)
		if !ok {
			return nil, fmt.Errorf("criteria: %s[%d]: expected an object, got %s", camel, i, pyvalue.KindOf(item))
		}
		name, ok := o.Values["name"].(string)
		if !ok {
			return nil, fmt.Errorf("criteria: %s[%d]: name: expected a string, got %s", camel, i,
				pyvalue.KindOf(o.Values["name"]))
		}
		calls[i] = expectedCall{name: name}
		if v := o.Values["id"]; v != nil {
			id := pyvalue.Str(v)
			calls[i].id = &id
		}
		if err := read(&calls[i], o); err != nil {
			return nil, fmt.Errorf("criteria: %s[%d]: %w", camel, i, err)
		}
	}
	return calls, nil
}

func (e *expectedCall) matches(call *spans.ToolCall) bool {
	if call.ID != nil && e.id != nil {
		return *call.ID == *e.id
	}
	return call.Is(e.name)
}

// callModel is UiPath's model of a call, by which Python prints it. field is the part of the call
// that is compared.
type callModel struct {
	name, field string
	actual      func(*spans.ToolCall) any
	expected    func(*expectedCall) any
}

var (
	callWithArgs = callModel{
		"ToolCall", "args",
		func(c *spans.ToolCall) any { return c.Arguments() }, func(e *expectedCall) any { return e.args },
	}
	callWithOutput = callModel{
		"ToolOutput", "output",
		func(c *spans.ToolCall) any { return c.Output }, func(e *expectedCall) any { return e.output },
	}
)

// print returns the expected calls and the actual ones as Python prints them.
func (m *callModel) print(expected []expectedCall, calls []spans.ToolCall) (printedExpected, printedCalls string) {
	one := func(name string, value any, id *string) pyvalue.Opaque {
		var shown any
		if id != nil {
			shown = *id
		}
		return pyvalue.Opaque(fmt.Sprintf("%s(name=%s, %s=%s, id=%s)", m.name, pyvalue.Repr(name), m.field,
			pyvalue.Repr(value), pyvalue.Repr(shown)))
	}
	var wanted, made []any
	for i := range expected {
		wanted = append(wanted, one(expected[i].name, m.expected(&expected[i]), expected[i].id))
	}
	for i := range calls {
		made = append(made, one(calls[i].Name, m.actual(&calls[i]), calls[i].ID))
	}
	return pyvalue.Repr(wanted), pyvalue.Repr(made)
}

// unmatched returns the expected calls that were not made, each beside an unused call of the same
// tool.
func (m *callModel) unmatched(expected []expectedCall, calls []spans.ToolCall,
	same func(*expectedCall, *spans.ToolCall) bool) *evaluator.Compared {
	used := make([]bool, len(calls))
	take := func(e *expectedCall, fits func(*spans.ToolCall) bool) *spans.ToolCall {
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
		if e := &expected[i]; take(e, func(c *spans.ToolCall) bool { return same(e, c) }) == nil {
			missed = append(missed, e)
		}
	}
	call := func(name string, value any) any {
		o := pyvalue.New()
		o.Set("name", name)
		o.Set(m.field, value)
		return o
	}
	wanted, made := []any{}, []any{}
	for _, e := range missed {
		var nearest any
		if c := take(e, func(*spans.ToolCall) bool { return true }); c != nil {
			nearest = call(e.name, m.actual(c))
		}
		wanted, made = append(wanted, call(e.name, m.expected(e))), append(made, nearest)
	}
	return &evaluator.Compared{Expected: wanted, Actual: made, Relation: eval.Calls}
}

var toolCallArgsType = evaluator.Kind{
	Read: toolCallArgs,
	About: "Scores the share of the expected calls that were made with the expected arguments, in any order. " +
		"Further arguments do not matter.",
	Keys: []evaluator.Key{strictKey,
		{Name: "subset", Kind: input.Bool, Otherwise: false, About: "has no effect, as in UiPath's"}},
	Criteria: []evaluator.Key{{Name: "toolCalls", Kind: input.Array, Required: true,
		About: "the calls: `[{\"name\": \"search\", \"args\": {\"query\": \"lease\"}}]`"}},
}

// toolCallArgs scores the share of expected calls that were made with the expected arguments, in
// any order; strict is all or nothing. Arguments beyond the expected ones never count: UiPath's
// `subset` has no effect.
func toolCallArgs(e *evaluator.Evaluator, c *evaluator.Config) {
	strict := c.Bool("strict")
	c.Bool("subset")
	e.Score = func(_ context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		expected, err := expectedCalls(criteria, "toolCalls", "tool_calls",
			func(call *expectedCall, o *pyvalue.Object) error {
				args, ok := o.Values["args"].(*pyvalue.Object)
				if !ok {
					return fmt.Errorf("args: expected an object, got %s", pyvalue.KindOf(o.Values["args"]))
				}
				call.args = args
				return nil
			})
		if err != nil {
			return evaluator.Outcome{Err: err}
		}
		calls := spans.ToolCalls(s.Trace)
		out := argsScore(calls, expected, strict)
		out.Compared = callWithArgs.unmatched(expected, calls,
			func(e *expectedCall, c *spans.ToolCall) bool { return hasArgs(c.Arguments(), e.args) })
		return out
	}
}

func argsScore(calls []spans.ToolCall, expected []expectedCall, strict bool) evaluator.Outcome {
	printedExpected, printedCalls := callWithArgs.print(expected, calls)
	x := explanation{"explained_tool_calls_args", "tool calls", printedExpected, printedCalls}
	if out, done := x.emptyScore(len(expected), len(calls)); done {
		return out
	}
	m := newMatching(calls)
	for _, e := range expected {
		m.match(&e, func(call *spans.ToolCall) (bool, string) {
			ok := hasArgs(call.Arguments(), e.args)
			return ok, fmt.Sprintf("Actual: %s, Expected: %s, Score: %s", pyvalue.Repr(call.Arguments()),
				pyvalue.Repr(e.args), pyvalue.ReprFloat(pyvalue.Truth(ok)))
		})
	}
	score := float64(m.matched) / float64(len(expected))
	if strict {
		score = pyvalue.Truth(m.matched == len(expected))
	}
	return evaluator.Outcome{Score: score, Details: x.details(m.sentences)}
}

func hasArgs(actual, expected *pyvalue.Object) bool {
	for _, key := range expected.Keys {
		if value, ok := actual.Values[key]; !ok || !pyvalue.Equal(value, expected.Values[key]) {
			return false
		}
	}
	return true
}

var toolCallOutputType = evaluator.Kind{
	Read:  toolCallOutput,
	About: "Scores the share of the expected outputs that the tools gave, compared as exact text.",
	Keys:  []evaluator.Key{strictKey},
	Criteria: []evaluator.Key{{Name: "toolOutputs", Kind: input.Array, Required: true,
		About: "the outputs: `[{\"name\": \"search\", \"output\": \"3 results\"}]`"}},
}

// toolCallOutput scores the share of expected outputs that calls gave, as exact text; strict ends
// with 0 at the first call of the expected name that gave another.
func toolCallOutput(e *evaluator.Evaluator, c *evaluator.Config) {
	strict := c.Bool("strict")
	e.Score = func(_ context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		expected, err := expectedCalls(criteria, "toolOutputs", "tool_outputs",
			func(call *expectedCall, o *pyvalue.Object) error {
				output, ok := o.Values["output"].(string)
				if !ok {
					return errors.New("output: expected a string, got " + pyvalue.KindOf(o.Values["output"]))
				}
				call.output = output
				return nil
			})
		if err != nil {
			return evaluator.Outcome{Err: err}
		}
		calls := spans.ToolCalls(s.Trace)
		out := outputScore(calls, expected, strict)
		out.Compared = callWithOutput.unmatched(expected, calls,
			func(e *expectedCall, c *spans.ToolCall) bool { return c.Output == e.output })
		return out
	}
}

func outputScore(calls []spans.ToolCall, expected []expectedCall, strict bool) evaluator.Outcome {
	printedExpected, printedCalls := callWithOutput.print(expected, calls)
	x := explanation{"explained_tool_calls_outputs", "tool calls outputs", printedExpected, printedCalls}
	if out, done := x.emptyScore(len(expected), len(calls)); done {
		return out
	}
	m := newMatching(calls)
	m.stopAtMismatch = strict
	for _, e := range expected {
		ok := m.match(&e, func(call *spans.ToolCall) (bool, string) {
			ok := call.Output == e.output
			return ok, fmt.Sprintf("Actual: %s, Expected: %s, Score: %s", call.Output, e.output,
				pyvalue.ReprFloat(pyvalue.Truth(ok)))
		})
		if strict && !ok {
			if m.last == "" {
				return evaluator.Outcome{Details: x.only("_result",
					"No matching actual tool call found for expected "+e.name)}
			}
			return evaluator.Outcome{Details: x.only(m.last, pyvalue.Str(m.sentences.Values[m.last]))}
		}
	}
	return evaluator.Outcome{Score: float64(m.matched) / float64(len(expected)), Details: x.details(m.sentences)}
}

// matching pairs expected with actual calls: greedily, one to one, each comparison explained under
// <name>_<n>.
type matching struct {
	calls          []spans.ToolCall
	used           []bool
	counters       map[string]int
	sentences      *pyvalue.Object
	matched        int
	stopAtMismatch bool
	// last is the key of the last comparison made for the current expectation, empty if there was
	// none.
	last string
}

func newMatching(calls []spans.ToolCall) *matching {
	return &matching{calls: calls, used: make([]bool, len(calls)), counters: map[string]int{}, sentences: pyvalue.New()}
}

// match looks for an unused call that compares well.
func (m *matching) match(e *expectedCall, compare func(*spans.ToolCall) (bool, string)) bool {
	m.last = ""
	for i := range m.calls {
		call := &m.calls[i]
		if m.used[i] || !e.matches(call) {
			continue
		}
		ok, text := compare(call)
		m.last = fmt.Sprintf("%s_%d", call.Name, m.counters[call.Name])
		m.counters[call.Name]++
		m.sentences.Set(m.last, text)
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
