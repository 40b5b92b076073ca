package eval

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func span(attributes string) string { return `{"name":"tool","attributes":` + attributes + `}` }

func rawSpans(spans []string) []json.RawMessage {
	var raw []json.RawMessage
	for _, s := range spans {
		raw = append(raw, json.RawMessage(s))
	}
	return raw
}

func calls(segments ...[]string) []ToolCall {
	var raw [][]json.RawMessage
	for _, s := range segments {
		raw = append(raw, rawSpans(s))
	}
	return ToolCalls(raw)
}

// show prints calls as name[id](args)=output.
func show(calls []ToolCall) string {
	var out []string
	for _, c := range calls {
		id := ""
		if c.ID != nil {
			id = "[" + *c.ID + "]"
		}
		out = append(out, fmt.Sprintf("%s%s(%s)=%s", c.Name, id, c.Args, c.Output))
	}
	return strings.Join(out, " ")
}

func TestToolCallExtraction(t *testing.T) {
	for _, v := range []struct{ name, span, want string }{
		{"attributes as an object", span(`{"tool.name":"a","input.value":{"x":1},"output.value":"done"}`), `a({"x":1})=done`},
		{"attributes as OTLP's list", span(`[{"key":"tool.name","value":{"stringValue":"a"}},{"key":"tool.id","value":{"intValue":"7"}},
			{"key":"input.value","value":{"kvlistValue":{"values":[{"key":"x","value":{"arrayValue":{"values":[{"boolValue":true},{"doubleValue":1.5}]}}}]}}},
			{"key":"output.value","value":{"stringValue":"{\"content\":\"ok\"}"}}]`), `a[7]({"x":[true,1.5]})=ok`},
		{"a whole OTLP export", `{"resourceSpans":[{"scopeSpans":[{"spans":[` + span(`{"tool.name":"a"}`) + `,` + span(`{"tool.name":"b"}`) + `]}]}]}`, `a({})= b({})=`},
		{"no tool", span(`{"other":1}`), ``},
		{"an empty name", span(`{"tool.name":""}`), ``},
		{"synthesized", span(`{"tool.name":"a","tool.synthesized":true}`), ``},
		{"an id that is falsy is an id", span(`{"tool.name":"a","tool.id":0}`), `a[0]({})=`},
		{"an empty id is an id", span(`{"tool.name":"a","tool.id":""}`), `a[]({})=`},
		{"a null id is none", span(`{"tool.name":"a","tool.id":null}`), `a({})=`},
		{"arguments as JSON text", span(`{"tool.name":"a","input.value":"{\"x\": true}"}`), `a({"x":true})=`},
		{"arguments as a Python literal", span(`{"tool.name":"a","input.value":"{'x': None, 'y': 'it'}"}`), `a({"x":null,"y":"it"})=`},
		{"arguments with numbers that JSON has not", span(`{"tool.name":"a","input.value":"{\"x\": [NaN, -Infinity], \"y\": 1}"}`), `a({"x":["NaN","-Infinity"],"y":1})=`},
		{"a tuple, a set and bytes", span(`{"tool.name":"a","input.value":"{'x': (1, 2), 'y': {1}, 'z': b'q'}"}`), `a({"x":[1,2],"y":"{1}","z":"b'q'"})=`},
		{"arguments whose keys are no strings", span(`{"tool.name":"a","input.value":"{1: 2}"}`), `a({})=`},
		{"arguments that are no object", span(`{"tool.name":"a","input.value":"[1]"}`), `a({})=`},
		{"arguments that are nonsense", span(`{"tool.name":"a","input.value":"city=Paris"}`), `a({})=`},
		{"output object", span(`{"tool.name":"a","output.value":{"content":"c","x":1}}`), `a({})=c`},
		{"output object without content", span(`{"tool.name":"a","output.value":{"x":1}}`), `a({})=`},
		{"output text of an object without content", span(`{"tool.name":"a","output.value":"{\"x\":1}"}`), `a({})=`},
		{"output text of another JSON value stays", span(`{"tool.name":"a","output.value":"[1, 2]"}`), `a({})=[1, 2]`},
		{"output text", span(`{"tool.name":"a","output.value":"{'x': 1}"}`), `a({})={'x': 1}`},
		{"output number", span(`{"tool.name":"a","output.value":8.0}`), `a({})=8.0`},
		{"content that is no text", span(`{"tool.name":"a","output.value":{"content":{"x":1}}}`), `a({})={'x': 1}`},
		{"a torn line", `{"attributes":{"tool.name":"a"`, ``},
		{"no object", `[1]`, ``},
	} {
		t.Run(v.name, func(t *testing.T) {
			if got := show(calls([]string{v.span})); got != v.want {
				t.Errorf("got %s\nwant %s", got, v.want)
			}
		})
	}
}

func TestToolCallsOverSegments(t *testing.T) {
	open := span(`{"tool.name":"a","input.value":{"x":1}}`)
	done := span(`{"tool.name":"a","input.value":{"x":1.0},"output.value":"done"}`)
	other := span(`{"tool.name":"b","output.value":"b"}`)
	idless := span(`{"tool.name":"a","input.value":{"x":1},"output.value":"1"}`)
	for _, v := range []struct {
		name     string
		segments [][]string
		want     string
	}{
		{"seen before and after a suspension: once, first position, final output", [][]string{{open, other}, {done}}, `a({"x":1.0})=done b({})=b`},
		{"an empty output is none", [][]string{{span(`{"tool.name":"a","input.value":{"x":1},"output.value":""}`)}, {done}}, `a({"x":1.0})=done`},
		{"suspended twice", [][]string{{open}, {open}, {done}}, `a({"x":1.0})=done`},
		{"suspended, but not in every segment", [][]string{{open}, {other}, {done}}, `a({"x":1.0})=done b({})=b`},
		{"two calls at once, both suspended", [][]string{{open, open}, {done, done}}, `a({"x":1.0})=done a({"x":1.0})=done`},
		{"never finished", [][]string{{open}, {open}}, `a({"x":1})=`},
		{"two finished calls are two", [][]string{{done, done}}, `a({"x":1.0})=done a({"x":1.0})=done`},
		{"two finished calls on both sides of a suspension are two", [][]string{{done}, {done}}, `a({"x":1.0})=done a({"x":1.0})=done`},
		{"other arguments are another call", [][]string{{span(`{"tool.name":"a","input.value":{"x":2}}`)}, {done}}, `a({"x":2})= a({"x":1.0})=done`},
		{"the same tool id does not make it the same call",
			[][]string{{span(`{"tool.name":"a","tool.id":"t","output.value":"1"}`)}, {span(`{"tool.name":"a","tool.id":"t","output.value":"2"}`)}}, `a[t]({})=1 a[t]({})=2`},
		{"the same call id does",
			[][]string{{span(`{"tool.name":"a","tool.call_id":"c","output.value":"waiting"}`)}, {span(`{"tool.name":"a","tool.call_id":"c","output.value":"2"}`)}}, `a({})=2`},
		{"the same call id of another tool does not",
			[][]string{{span(`{"tool.name":"a","tool.call_id":"1","output.value":"1"}`)}, {span(`{"tool.name":"b","tool.call_id":"1","output.value":"2"}`)}}, `a({})=1 b({})=2`},
		{"another call id makes it another call, whatever the arguments",
			[][]string{{span(`{"tool.name":"a","tool.call_id":"c"}`)}, {span(`{"tool.name":"a","tool.call_id":"d","output.value":"2"}`)}}, `a({})= a({})=2`},
		{"a later span without output does not undo the earlier",
			[][]string{{span(`{"tool.name":"a","gen_ai.tool.call.id":"c","output.value":"1"}`)}, {span(`{"tool.name":"a","gen_ai.tool.call.id":"c"}`)}}, `a({})=1`},
		{"the same span exported twice",
			[][]string{{`{"traceId":"t","spanId":"s","attributes":{"tool.name":"a"}}`, `{"traceId":"t","spanId":"s","attributes":{"tool.name":"a","output.value":"x"}}`}}, `a({})=x`},
		{"the same span id in another trace is another span",
			[][]string{{`{"context":{"trace_id":"t","span_id":"s"},"attributes":{"tool.name":"a","output.value":"1"}}`,
				`{"context":{"trace_id":"u","span_id":"s"},"attributes":{"tool.name":"a","output.value":"2"}}`}}, `a({})=1 a({})=2`},

		{"without a suspension a call that failed and was tried again is two calls", [][]string{{open, done}}, `a({"x":1})= a({"x":1.0})=done`},
		{"nor are calls with one id joined there",
			[][]string{{span(`{"tool.name":"a","tool.call_id":"c","output.value":"1"}`), span(`{"tool.name":"a","tool.call_id":"c","output.value":"2"}`)}}, `a({})=1 a({})=2`},
		{"a call tried again after a suspension is joined once", [][]string{{open}, {idless, done}}, `a({"x":1})=1 a({"x":1.0})=done`},
	} {
		t.Run(v.name, func(t *testing.T) {
			if got := show(calls(v.segments...)); got != v.want {
				t.Errorf("got %s\nwant %s", got, v.want)
			}
		})
	}
}

func named(names ...string) []string {
	spans := make([]string, len(names))
	for i, name := range names {
		spans[i] = span(`{"tool.name":"` + name + `"}`)
	}
	return spans
}

func TestToolCallVectors(t *testing.T) {
	const (
		order = "uipath-tool-call-order"
		count = "uipath-tool-call-count"
		args  = "uipath-tool-call-args"
		out   = "uipath-tool-call-output"
	)
	withArgs := []string{span(`{"tool.name":"t1","input.value":{"arg1":"v1","arg2":true}}`), span(`{"tool.name":"t2","input.value":{"n":2}}`)}
	outputs := []string{span(`{"tool.name":"t1","output.value":"o1"}`), span(`{"tool.name":"t1","output.value":"o2"}`)}
	withID := []string{span(`{"tool.name":"Search","tool.id":"id-1","input.value":{}}`)}
	for _, v := range []struct {
		name, kind, config, criteria string
		spans                        []string
		want                         float64
		details                      string
	}{
		{"both empty", order, `{}`, `{"toolCallsOrder":[]}`, nil, 1, `{"actual":"[]","expected":"[]","lcs":[]}`},
		{"nothing called", order, `{}`, `{"toolCallsOrder":["tool1"]}`, nil, 0, `{"actual":"[]","expected":"['tool1']","lcs":[]}`},
		{"nothing expected", order, `{}`, `{"toolCallsOrder":[]}`, named("tool1"), 0, `{"actual":"['tool1']","expected":"[]","lcs":[]}`},
		{"two of three in order", order, `{}`, `{"toolCallsOrder":["tool1","tool2","tool3"]}`, named("tool1", "tool3", "tool2"), 2.0 / 3,
			`{"actual":"['tool1', 'tool3', 'tool2']","expected":"['tool1', 'tool2', 'tool3']","lcs":["tool1","tool2"]}`},
		{"strict", order, `{"strict":true}`, `{"toolCallsOrder":["tool1","tool2"]}`, named("tool2", "tool1"), 0, `{"actual":"['tool2', 'tool1']","expected":"['tool1', 'tool2']","lcs":[]}`},
		{"strict equal", order, `{"strict":true}`, `{"tool_calls_order":["a","b"]}`, named("a", "b"), 1, `{"actual":"['a', 'b']","expected":"['a', 'b']","lcs":["a","b"]}`},
		{"strict, one more", order, `{"strict":true}`, `{"toolCallsOrder":["a"]}`, named("a", "b"), 0, `{"actual":"['a', 'b']","expected":"['a']","lcs":[]}`},
		{"extra calls do not matter", order, `{}`, `{"toolCallsOrder":["a","c"]}`, named("a", "b", "c", "d"), 1, `{"actual":"['a', 'b', 'c', 'd']","expected":"['a', 'c']","lcs":["a","c"]}`},
		{"a display name means the sanitised one", order, `{}`, `{"toolCallsOrder":["Web  Search!"]}`, named("Web_Search"), 1, `{"actual":"['Web_Search']","expected":"['Web  Search!']","lcs":["Web  Search!"]}`},
		{"a call with an id is known by it", order, `{}`, `{"toolCallsOrder":["id-1"]}`, withID, 1, `{"actual":"['id-1']","expected":"['id-1']","lcs":["id-1"]}`},
		{"and not by its name", order, `{}`, `{"toolCallsOrder":["Search"]}`, withID, 0, `{"actual":"['id-1']","expected":"['Search']","lcs":[]}`},

		{"both empty", count, `{}`, `{"toolCallsCount":{}}`, nil, 1, `{"explained_tool_calls_count":{"_result":"Both expected and actual tool calls are empty"}}`},
		{"= 0 and no call at all", count, `{}`, `{"toolCallsCount":{"a":["=",0]}}`, nil, 0, `{"explained_tool_calls_count":{"_result":"Either expected or actual tool calls are empty"}}`},
		{"nothing expected", count, `{}`, `{"toolCallsCount":{}}`, named("a"), 0, `{"explained_tool_calls_count":{"_result":"Either expected or actual tool calls are empty"}}`},
		{"as often", count, `{}`, `{"toolCallsCount":{"a":["=",1]}}`, named("a"), 1, `{"explained_tool_calls_count":{"a":"Actual: 1, Expected: 1, Score: 1.0"}}`},
		{"half", count, `{}`, `{"toolCallsCount":{"a":["==",2],"b":["==",1]}}`, named("a", "a"), 0.5,
			`{"explained_tool_calls_count":{"a":"Actual: 2, Expected: 2, Score: 1.0","b":"Actual: 0, Expected: 1, Score: 0.0"}}`},
		{"strict tells only the breach", count, `{"strict":true}`, `{"toolCallsCount":{"a":["==",2],"b":["==",1]}}`, named("a", "a"), 0,
			`{"explained_tool_calls_count":{"b":"Actual: 0, Expected: 1, Score: 0.0"}}`},
		{"all comparators", count, `{}`, `{"toolCallsCount":{"a":[">",1],"a ":["<",3],"b":["<=",1],"c":["!=",1],"d":[">=",0]}}`, named("a", "a", "b"), 1,
			`{"explained_tool_calls_count":{"a":"Actual: 2, Expected: 1, Score: 1.0","a ":"Actual: 2, Expected: 3, Score: 1.0","b":"Actual: 1, Expected: 1, Score: 1.0","c":"Actual: 0, Expected: 1, Score: 1.0","d":"Actual: 0, Expected: 0, Score: 1.0"}}`},
		{"by id, and not by name", count, `{}`, `{"toolCallsCount":{"id-1":["=",1],"Search":["=",0]}}`, withID, 1,
			`{"explained_tool_calls_count":{"id-1":"Actual: 1, Expected: 1, Score: 1.0","Search":"Actual: 0, Expected: 0, Score: 1.0"}}`},
		{"other whole numbers", count, `{}`, `{"toolCallsCount":{"a":["=",1.0],"b":["="," 1 "],"c":["=",false]}}`, named("a", "b"), 1,
			`{"explained_tool_calls_count":{"a":"Actual: 1, Expected: 1, Score: 1.0","b":"Actual: 1, Expected: 1, Score: 1.0","c":"Actual: 0, Expected: 0, Score: 1.0"}}`},

		{"both empty", args, `{}`, `{"toolCalls":[]}`, nil, 1, `{"explained_tool_calls_args":{"_result":"Both expected and actual tool calls are empty"}}`},
		{"extra arguments never matter", args, `{"subset":false}`, `{"toolCalls":[{"name":"t1","args":{"arg1":"v1"}}]}`, withArgs, 1,
			`{"explained_tool_calls_args":{"t1_0":"Actual: {'arg1': 'v1', 'arg2': True}, Expected: {'arg1': 'v1'}, Score: 1.0"}}`},
		{"no expected arguments match any call", args, `{}`, `{"toolCalls":[{"name":"t1","args":{}}]}`, withArgs, 1,
			`{"explained_tool_calls_args":{"t1_0":"Actual: {'arg1': 'v1', 'arg2': True}, Expected: {}, Score: 1.0"}}`},
		{"in any order, half", args, `{}`, `{"toolCalls":[{"name":"t2","args":{"n":2.0}},{"name":"t1","args":{"arg1":"x"}}]}`, withArgs, 0.5,
			`{"explained_tool_calls_args":{"t2_0":"Actual: {'n': 2}, Expected: {'n': 2.0}, Score: 1.0","t1_0":"Actual: {'arg1': 'v1', 'arg2': True}, Expected: {'arg1': 'x'}, Score: 0.0"}}`},
		{"strict", args, `{"strict":true}`, `{"toolCalls":[{"name":"t2","args":{"n":2}},{"name":"t1","args":{"zzz":1}}]}`, withArgs, 0,
			`{"explained_tool_calls_args":{"t2_0":"Actual: {'n': 2}, Expected: {'n': 2}, Score: 1.0","t1_0":"Actual: {'arg1': 'v1', 'arg2': True}, Expected: {'zzz': 1}, Score: 0.0"}}`},
		{"one call serves one expectation", args, `{}`, `{"toolCalls":[{"name":"t2","args":{}},{"name":"t2","args":{}}]}`, withArgs, 0.5,
			`{"explained_tool_calls_args":{"t2_0":"Actual: {'n': 2}, Expected: {}, Score: 1.0"}}`},
		{"by id", args, `{}`, `{"toolCalls":[{"name":"Renamed","id":"id-1","args":{}}]}`, withID, 1, `{"explained_tool_calls_args":{"Search_0":"Actual: {}, Expected: {}, Score: 1.0"}}`},
		{"an id that differs is not saved by the name", args, `{}`, `{"toolCalls":[{"name":"Search","id":"id-2","args":{}}]}`, withID, 0, `{"explained_tool_calls_args":{}}`},

		{"both empty", out, `{}`, `{"toolOutputs":[]}`, nil, 1, `{"explained_tool_calls_outputs":{"_result":"Both expected and actual tool calls outputs are empty"}}`},
		{"a later call may match", out, `{}`, `{"toolOutputs":[{"name":"t1","output":"o2"}]}`, outputs, 1,
			`{"explained_tool_calls_outputs":{"t1_0":"Actual: o1, Expected: o2, Score: 0.0","t1_1":"Actual: o2, Expected: o2, Score: 1.0"}}`},
		{"strict ends at the first mismatch", out, `{"strict":true}`, `{"toolOutputs":[{"name":"t1","output":"o2"}]}`, outputs, 0,
			`{"explained_tool_calls_outputs":{"t1_0":"Actual: o1, Expected: o2, Score: 0.0"}}`},
		{"strict, tool missing", out, `{"strict":true}`, `{"toolOutputs":[{"name":"t9","output":"x"}]}`, outputs, 0,
			`{"explained_tool_calls_outputs":{"_result":"No matching actual tool call found for expected t9"}}`},
		{"half", out, `{}`, `{"toolOutputs":[{"name":"t1","output":"o1"},{"name":"t1","output":"zz"}]}`, outputs, 0.5,
			`{"explained_tool_calls_outputs":{"t1_0":"Actual: o1, Expected: o1, Score: 1.0","t1_1":"Actual: o2, Expected: zz, Score: 0.0"}}`},
	} {
		t.Run(strings.TrimPrefix(v.kind, "uipath-tool-call-")+"/"+v.name, func(t *testing.T) {
			r := only(t, evaluate(t, definition(v.kind, v.config), v.criteria, `{}`, v.spans...))
			wantScore(t, r, v.want)
			details, _ := parseValue(r.Details)
			if v.kind != order { // TestToolCallDetails has both sides
				details.(*object).Keys = details.(*object).Keys[2:]
			}
			if got, _ := json.Marshal(details); string(got) != v.details {
				t.Errorf("details\n got %s\nwant %s", got, v.details)
			}
		})
	}
}

// Both sides are printed as UiPath prints its models of them.
func TestToolCallDetails(t *testing.T) {
	made := []string{
		span(`{"tool.name":"t","tool.id":"i","input.value":"{'a': (1, 'x'), 'b': b'\\x00'}","output.value":"it's"}`),
		span(`{"tool.name":"u","input.value":"{\"n\": NaN, \"m\": [-Infinity]}","output.value":"{\"content\": Infinity}"}`),
	}
	for _, v := range []struct{ kind, criteria, expected, actual string }{
		{"count", `{"toolCallsCount":{"i":["=",1.0],"x y":["!=",2]}}`, `{'i': ('=', 1), 'x y': ('!=', 2)}`, `{'i': 1, 'u': 1}`},
		{"args", `{"toolCalls":[{"name":"t","args":{"a":[1,"x"]}},{"name":"n","id":"i","args":{}}]}`,
			`[ToolCall(name='t', args={'a': [1, 'x']}, id=None), ToolCall(name='n', args={}, id='i')]`,
			`[ToolCall(name='t', args={'a': (1, 'x'), 'b': b'\x00'}, id='i'), ToolCall(name='u', args={'n': nan, 'm': [-inf]}, id=None)]`},
		{"output", `{"toolOutputs":[{"name":"u","output":"inf"}]}`, `[ToolOutput(name='u', output='inf', id=None)]`,
			`[ToolOutput(name='t', output="it's", id='i'), ToolOutput(name='u', output='inf', id=None)]`},
	} {
		r := only(t, evaluate(t, definition("uipath-tool-call-"+v.kind, `{}`), v.criteria, `{}`, made...))
		var details struct{ Expected, Actual string }
		if err := json.Unmarshal(r.Details, &details); err != nil || details.Expected != v.expected || details.Actual != v.actual {
			t.Errorf("%s: %v\n got %s\n and %s\nwant %s\n and %s", v.kind, err, details.Expected, details.Actual, v.expected, v.actual)
		}
	}
}

func TestToolCallCriteriaErrors(t *testing.T) {
	for _, v := range []struct{ kind, criteria, want string }{
		{"uipath-tool-call-order", `{"x":1}`, `criteria: toolCallsOrder: expected an array of tool names, got null`},
		{"uipath-tool-call-order", `{"toolCallsOrder":[1]}`, `criteria: toolCallsOrder: expected an array of tool names, got a number in it`},
		{"uipath-tool-call-count", `{"toolCallsCount":{"a":["~",1]}}`, `criteria: toolCallsCount: a: expected one of > < >= <= = == != and a whole number, got ['~', 1]`},
		{"uipath-tool-call-count", `{"toolCallsCount":{"a":["=",1.5]}}`, `criteria: toolCallsCount: a: expected one of > < >= <= = == != and a whole number, got ['=', 1.5]`},
		{"uipath-tool-call-count", `{"toolCallsCount":{"a":1}}`, `criteria: toolCallsCount: a: expected a pair such as ["=", 1]`},
		{"uipath-tool-call-args", `{"toolCalls":{}}`, `criteria: toolCalls: expected an array, got an object`},
		{"uipath-tool-call-args", `{"toolCalls":[{"name":"a"}]}`, `criteria: toolCalls[0]: args: expected an object, got null`},
		{"uipath-tool-call-args", `{"toolCalls":[{"args":{}}]}`, `criteria: toolCalls[0]: name: expected a string, got null`},
		{"uipath-tool-call-output", `{"toolOutputs":[{"name":"a","output":1}]}`, `criteria: toolOutputs[0]: output: expected a string, got a number`},
	} {
		r := evaluate(t, definition(v.kind, `{}`), v.criteria, `{}`, named("a")...)[0]
		if r.Error != v.want {
			t.Errorf("%s: error %q, want %q", v.criteria, r.Error, v.want)
		}
	}
}

func TestSanitize(t *testing.T) {
	for name, want := range map[string]string{
		"Web Search": "Web_Search", "a\t\n b": "a_b", "käse!": "kse", "": "", strings.Repeat("x", 70): strings.Repeat("x", 64), "a-b_c": "a-b_c",
	} {
		if got := sanitize(name); got != want {
			t.Errorf("sanitize(%q) = %q, want %q", name, got, want)
		}
	}
}
