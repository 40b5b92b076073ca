package uipath_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/pyvalue"
)

func TestToolCallVectors(t *testing.T) {
	const (
		order = "uipath-tool-call-order"
		count = "uipath-tool-call-count"
		args  = "uipath-tool-call-args"
		out   = "uipath-tool-call-output"
	)
	withArgs := []string{evaltest.Span(`{"tool.name":"t1","input.value":{"arg1":"v1","arg2":true}}`), evaltest.Span(`{"tool.name":"t2","input.value":{"n":2}}`)}
	outputs := []string{evaltest.Span(`{"tool.name":"t1","output.value":"o1"}`), evaltest.Span(`{"tool.name":"t1","output.value":"o2"}`)}
	withID := []string{evaltest.Span(`{"tool.name":"Search","tool.id":"id-1","input.value":{}}`)}
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
			r := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition(v.kind, v.config), v.criteria, `{}`, v.spans...))
			evaltest.WantScore(t, r, v.want)
			details, _ := pyvalue.Parse(r.Details)
			if v.kind != order { // TestToolCallDetails has both sides
				details.(*pyvalue.Object).Keys = details.(*pyvalue.Object).Keys[2:]
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
		evaltest.Span(`{"tool.name":"t","tool.id":"i","input.value":"{'a': (1, 'x'), 'b': b'\\x00'}","output.value":"it's"}`),
		evaltest.Span(`{"tool.name":"u","input.value":"{\"n\": NaN, \"m\": [-Infinity]}","output.value":"{\"content\": Infinity}"}`),
	}
	for _, v := range []struct{ kind, criteria, expected, actual string }{
		{"count", `{"toolCallsCount":{"i":["=",1.0],"x y":["!=",2]}}`, `{'i': ('=', 1), 'x y': ('!=', 2)}`, `{'i': 1, 'u': 1}`},
		{"args", `{"toolCalls":[{"name":"t","args":{"a":[1,"x"]}},{"name":"n","id":"i","args":{}}]}`,
			`[ToolCall(name='t', args={'a': [1, 'x']}, id=None), ToolCall(name='n', args={}, id='i')]`,
			`[ToolCall(name='t', args={'a': (1, 'x'), 'b': b'\x00'}, id='i'), ToolCall(name='u', args={'n': nan, 'm': [-inf]}, id=None)]`},
		{"output", `{"toolOutputs":[{"name":"u","output":"inf"}]}`, `[ToolOutput(name='u', output='inf', id=None)]`,
			`[ToolOutput(name='t', output="it's", id='i'), ToolOutput(name='u', output='inf', id=None)]`},
	} {
		r := evaltest.Only(t, evaltest.Evaluate(t, evaltest.Definition("uipath-tool-call-"+v.kind, `{}`), v.criteria, `{}`, made...))
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
		r := evaltest.Evaluate(t, evaltest.Definition(v.kind, `{}`), v.criteria, `{}`, named("a")...)[0]
		if r.Error != v.want {
			t.Errorf("%s: error %q, want %q", v.criteria, r.Error, v.want)
		}
	}
}

func named(names ...string) []string {
	spans := make([]string, len(names))
	for i, name := range names {
		spans[i] = evaltest.Span(`{"tool.name":"` + name + `"}`)
	}
	return spans
}
