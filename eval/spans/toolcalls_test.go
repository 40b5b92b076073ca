package spans_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/spans"
)

func calls(segments ...[]string) []spans.ToolCall {
	var raw [][]json.RawMessage
	for _, s := range segments {
		raw = append(raw, evaltest.Spans(s))
	}
	return spans.ToolCalls(raw)
}

// show prints calls as name[id](args)=output.
func show(calls []spans.ToolCall) string {
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
		{"attributes as an object", evaltest.Span(`{"tool.name":"a","input.value":{"x":1},"output.value":"done"}`), `a({"x":1})=done`},
		{"attributes as OTLP's list", evaltest.Span(`[{"key":"tool.name","value":{"stringValue":"a"}},{"key":"tool.id","value":{"intValue":"7"}},
			{"key":"input.value","value":{"kvlistValue":{"values":[{"key":"x","value":{"arrayValue":{"values":[{"boolValue":true},{"doubleValue":1.5}]}}}]}}},
			{"key":"output.value","value":{"stringValue":"{\"content\":\"ok\"}"}}]`), `a[7]({"x":[true,1.5]})=ok`},
		{"a whole OTLP export", `{"resourceSpans":[{"scopeSpans":[{"spans":[` + evaltest.Span(`{"tool.name":"a"}`) + `,` + evaltest.Span(`{"tool.name":"b"}`) + `]}]}]}`, `a({})= b({})=`},
		{"no tool", evaltest.Span(`{"other":1}`), ``},
		{"an empty name", evaltest.Span(`{"tool.name":""}`), ``},
		{"synthesized", evaltest.Span(`{"tool.name":"a","tool.synthesized":true}`), ``},
		{"an id that is falsy is an id", evaltest.Span(`{"tool.name":"a","tool.id":0}`), `a[0]({})=`},
		{"an empty id is an id", evaltest.Span(`{"tool.name":"a","tool.id":""}`), `a[]({})=`},
		{"a null id is none", evaltest.Span(`{"tool.name":"a","tool.id":null}`), `a({})=`},
		{"arguments as JSON text", evaltest.Span(`{"tool.name":"a","input.value":"{\"x\": true}"}`), `a({"x":true})=`},
		{"arguments as a Python literal", evaltest.Span(`{"tool.name":"a","input.value":"{'x': None, 'y': 'it'}"}`), `a({"x":null,"y":"it"})=`},
		{"arguments with numbers that JSON has not", evaltest.Span(`{"tool.name":"a","input.value":"{\"x\": [NaN, -Infinity], \"y\": 1}"}`), `a({"x":["NaN","-Infinity"],"y":1})=`},
		{"a tuple, a set and bytes", evaltest.Span(`{"tool.name":"a","input.value":"{'x': (1, 2), 'y': {1}, 'z': b'q'}"}`), `a({"x":[1,2],"y":"{1}","z":"b'q'"})=`},
		{"arguments whose keys are no strings", evaltest.Span(`{"tool.name":"a","input.value":"{1: 2}"}`), `a({})=`},
		{"arguments that are no object", evaltest.Span(`{"tool.name":"a","input.value":"[1]"}`), `a({})=`},
		{"arguments that are nonsense", evaltest.Span(`{"tool.name":"a","input.value":"city=Paris"}`), `a({})=`},
		{"output object", evaltest.Span(`{"tool.name":"a","output.value":{"content":"c","x":1}}`), `a({})=c`},
		{"output object without content", evaltest.Span(`{"tool.name":"a","output.value":{"x":1}}`), `a({})=`},
		{"output text of an object without content", evaltest.Span(`{"tool.name":"a","output.value":"{\"x\":1}"}`), `a({})=`},
		{"output text of another JSON value stays", evaltest.Span(`{"tool.name":"a","output.value":"[1, 2]"}`), `a({})=[1, 2]`},
		{"output text", evaltest.Span(`{"tool.name":"a","output.value":"{'x': 1}"}`), `a({})={'x': 1}`},
		{"output number", evaltest.Span(`{"tool.name":"a","output.value":8.0}`), `a({})=8.0`},
		{"content that is no text", evaltest.Span(`{"tool.name":"a","output.value":{"content":{"x":1}}}`), `a({})={'x': 1}`},
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
	open := evaltest.Span(`{"tool.name":"a","input.value":{"x":1}}`)
	done := evaltest.Span(`{"tool.name":"a","input.value":{"x":1.0},"output.value":"done"}`)
	other := evaltest.Span(`{"tool.name":"b","output.value":"b"}`)
	idless := evaltest.Span(`{"tool.name":"a","input.value":{"x":1},"output.value":"1"}`)
	for _, v := range []struct {
		name     string
		segments [][]string
		want     string
	}{
		{"seen before and after a suspension: once, first position, final output", [][]string{{open, other}, {done}}, `a({"x":1.0})=done b({})=b`},
		{"an empty output is none", [][]string{{evaltest.Span(`{"tool.name":"a","input.value":{"x":1},"output.value":""}`)}, {done}}, `a({"x":1.0})=done`},
		{"suspended twice", [][]string{{open}, {open}, {done}}, `a({"x":1.0})=done`},
		{"suspended, but not in every segment", [][]string{{open}, {other}, {done}}, `a({"x":1.0})=done b({})=b`},
		{"two calls at once, both suspended", [][]string{{open, open}, {done, done}}, `a({"x":1.0})=done a({"x":1.0})=done`},
		{"never finished", [][]string{{open}, {open}}, `a({"x":1})=`},
		{"two finished calls are two", [][]string{{done, done}}, `a({"x":1.0})=done a({"x":1.0})=done`},
		{"two finished calls on both sides of a suspension are two", [][]string{{done}, {done}}, `a({"x":1.0})=done a({"x":1.0})=done`},
		{"other arguments are another call", [][]string{{evaltest.Span(`{"tool.name":"a","input.value":{"x":2}}`)}, {done}}, `a({"x":2})= a({"x":1.0})=done`},
		{"the same tool id does not make it the same call",
			[][]string{{evaltest.Span(`{"tool.name":"a","tool.id":"t","output.value":"1"}`)}, {evaltest.Span(`{"tool.name":"a","tool.id":"t","output.value":"2"}`)}}, `a[t]({})=1 a[t]({})=2`},
		{"the same call id does",
			[][]string{{evaltest.Span(`{"tool.name":"a","tool.call_id":"c","output.value":"waiting"}`)}, {evaltest.Span(`{"tool.name":"a","tool.call_id":"c","output.value":"2"}`)}}, `a({})=2`},
		{"the same call id of another tool does not",
			[][]string{{evaltest.Span(`{"tool.name":"a","tool.call_id":"1","output.value":"1"}`)}, {evaltest.Span(`{"tool.name":"b","tool.call_id":"1","output.value":"2"}`)}}, `a({})=1 b({})=2`},
		{"another call id makes it another call, whatever the arguments",
			[][]string{{evaltest.Span(`{"tool.name":"a","tool.call_id":"c"}`)}, {evaltest.Span(`{"tool.name":"a","tool.call_id":"d","output.value":"2"}`)}}, `a({})= a({})=2`},
		{"a later span without output does not undo the earlier",
			[][]string{{evaltest.Span(`{"tool.name":"a","gen_ai.tool.call.id":"c","output.value":"1"}`)}, {evaltest.Span(`{"tool.name":"a","gen_ai.tool.call.id":"c"}`)}}, `a({})=1`},
		{"the same span exported twice",
			[][]string{{`{"traceId":"t","spanId":"s","attributes":{"tool.name":"a"}}`, `{"traceId":"t","spanId":"s","attributes":{"tool.name":"a","output.value":"x"}}`}}, `a({})=x`},
		{"the same span id in another trace is another span",
			[][]string{{`{"context":{"trace_id":"t","span_id":"s"},"attributes":{"tool.name":"a","output.value":"1"}}`,
				`{"context":{"trace_id":"u","span_id":"s"},"attributes":{"tool.name":"a","output.value":"2"}}`}}, `a({})=1 a({})=2`},

		{"without a suspension a call that failed and was tried again is two calls", [][]string{{open, done}}, `a({"x":1})= a({"x":1.0})=done`},
		{"nor are calls with one id joined there",
			[][]string{{evaltest.Span(`{"tool.name":"a","tool.call_id":"c","output.value":"1"}`), evaltest.Span(`{"tool.name":"a","tool.call_id":"c","output.value":"2"}`)}}, `a({})=1 a({})=2`},
		{"a call tried again after a suspension is joined once", [][]string{{open}, {idless, done}}, `a({"x":1})=1 a({"x":1.0})=done`},
	} {
		t.Run(v.name, func(t *testing.T) {
			if got := show(calls(v.segments...)); got != v.want {
				t.Errorf("got %s\nwant %s", got, v.want)
			}
		})
	}
}

func TestSanitize(t *testing.T) {
	for name, want := range map[string]string{
		"Web Search": "Web_Search", "a\t\n b": "a_b", "käse!": "kse", "": "", strings.Repeat("x", 70): strings.Repeat("x", 64), "a-b_c": "a-b_c",
	} {
		if got := spans.Sanitize(name); got != want {
			t.Errorf("sanitize(%q) = %q, want %q", name, got, want)
		}
	}
}
