package uipath

import "encoding/json"

var toolNames = []string{"get_weather", "get weather", "get-weather", "get_temperature", "search", "Search", "search!", "tool é", "  pad  ", "a\tb", "id-1", "id-2",
	"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}

// oddArguments are forms of input.value that have been read wrongly somewhere.
var oddArguments = []string{
	"", "{", "[1]", "null", "{'a': None, 'b': True}", `{"city": "x",}`, "{'city': 'x'}", `{"city": NaN}`, `{"city": [Infinity, -Infinity], "n": 1}`, "{'city': (1,2)}",
	"{'n': 1_000}", "{'n': 0x10}", "{'n': 1e5}", "{'city': u'x'}", "{'city': 'a' 'b'}", " {'n': 1}", "\n{'n': 1}", "{'n': -1}", "{'n': +1}", "dict(a=1)", "{'n': 1+2j}",
	"{'n': {1}}", "{'city': b'x\\x00\\xe9'}", "{'city': '\\u00e9'}", `{'city': r'\n'}`, "{'n': 1,}", `{"n": 1, "n": 2}`, "{'n': [1, 2, ]}", "{\n'n': 1}", "{'n': 1} # c",
	"{'n': ...}", "{'city': f'x'}", "{'city': '''x\ny'''}", "{'n': --1}", "{'n': 1 2}", "{'n': 007}", "{'n': .5, 'm': 1.}", "({'n': 1})", "{'n': {1: 2}}", "{'city': '\\q\\8'}",
	"{'n': 1}\n\n", "{'n': (1,)}", "{'n': ()}", "{'n': 1j}", "{'n': set()}", "{'n': 12345678901234567890123}", `{"n": 1e400, "m": -0.0}`, "{'city': 'a\\\nb'}", "{'city': \"it's\"}",
	"{'a': 1, **{}}", "{'n': True, 'm': 1 if 1 else 2}", `{"city": "\ud83d\ude00"}`, "{'city': rb'x'}", "city=Paris", "{'n': 0b101, 'm': 0o17}", "\ufeff{'n': 1}",
}

// oddOutputs are forms of output.value.
var oddOutputs = []any{
	`{"x": 1}`, "[1]", "null", "12", `"s"`, `{"content": null}`, `{"content": ""}`, `{"content": 0}`, `{"content": 1.0}`, `{"content": [1, 2.5, "a"]}`, `{"content": {"a": true}}`,
	`{"content": 1e3}`, `{"content": 12345678901234567890}`, "NaN", `{"content": NaN}`, `{"content": [Infinity], "x": -Infinity}`, `{"content": false}`, "{'content': 1}", `{"content": "é"}`,
	json.Number("1"), json.Number("2.5"), true, false, json.Number("0"), json.Number("1e16"), "  ", "it's", "a\nb",
}

// tools are evaluations for the evaluators of tool calls.
func (g generator) tools(n int) []evaluation {
	var out []evaluation
	for range n {
		var e evaluation
		e.output = object{{"r", json.Number("1")}}
		var calls []call
		for range pick(g, 0, 1, 1, 2, 3, 4, 6) {
			c := g.call()
			if len(calls) > 0 && g.chance(0.2) { // tried again
				c = calls[len(calls)-1]
				if g.chance(0.5) {
					c.attributes = c.attributes.with("output.value", "found")
				}
			}
			calls = append(calls, c)
			e.spans = append(e.spans, object{{"name", "span"}, {"attributes", c.attributes}})
		}
		order, count, args, outputs := g.toolCriteria(calls)
		for _, strict := range []string{"", "-strict"} {
			e.criteria = append(e.criteria, member{"order" + strict, object{{"toolCallsOrder", order}}}, member{"count" + strict, object{{"toolCallsCount", count}}},
				member{"args" + strict, object{{"toolCalls", args}}}, member{"output" + strict, object{{"toolOutputs", outputs}}})
		}
		e.criteria = append(e.criteria, member{"args-subset", object{{"toolCalls", args}}})
		out = append(out, e)
	}
	return out
}

// oddCalls are all odd arguments, then all odd outputs.
func oddCalls() []evaluation {
	arguments := evaluation{name: "odd arguments", output: object{}, criteria: object{{"args", object{{"toolCalls", list{object{{"name", "t"}, {"args", object{}}}}}}}}}
	for _, a := range oddArguments {
		arguments.spans = append(arguments.spans, object{{"name", "span"}, {"attributes", object{{"tool.name", "t"}, {"input.value", a}}}})
	}
	outputs := evaluation{name: "odd outputs", output: object{}, criteria: object{{"output", object{{"toolOutputs", list{object{{"name", "t"}, {"output", "x"}}}}}}}}
	for _, o := range oddOutputs {
		outputs.spans = append(outputs.spans, object{{"name", "span"}, {"attributes", object{{"tool.name", "t"}, {"output.value", o}}}})
	}
	return []evaluation{arguments, outputs}
}

// call is a tool call as its span tells it, with its arguments as far as the generator knows them.
type call struct {
	attributes object
	args       object
}

func (g generator) call() call {
	name := pick(g, toolNames[:9]...)
	if g.chance(0.3) {
		name = pick(g, toolNames...)
	}
	c := call{attributes: object{{"tool.name", name}}, args: object{}}
	if g.chance(0.25) {
		c.attributes = c.attributes.with("tool.id", pick[any](g, "id-1", "id-2", "", "get_weather", json.Number("0")))
	}
	if g.chance(0.05) {
		c.attributes = c.attributes.with("tool.synthesized", g.chance(0.5))
	}
	for _, key := range []string{"city", "unit", "n", "é"} {
		if g.chance(0.35) {
			c.args = append(c.args, member{key, g.value(2)})
		}
	}
	switch n := g.IntN(20); {
	case n < 9:
		c.attributes = c.attributes.with("input.value", text(c.args))
	case n < 16:
		c.attributes = c.attributes.with("input.value", literal(g, c.args, n < 13))
	case n < 19:
		c.attributes, c.args = c.attributes.with("input.value", pick(g, oddArguments...)), object{{"n", json.Number("1")}}
	}
	switch n := g.IntN(20); {
	case n < 6:
		c.attributes = c.attributes.with("output.value", text(object{{"content", g.value(2)}}))
	case n < 9:
		c.attributes = c.attributes.with("output.value", g.word())
	case n < 11:
		c.attributes = c.attributes.with("output.value", text(g.value(2)))
	case n < 15:
		c.attributes = c.attributes.with("output.value", pick(g, oddOutputs...))
	}
	return c
}

// toolCriteria expect what the calls are, more or less.
func (g generator) toolCriteria(calls []call) (order list, count object, args, outputs list) {
	order, count, args, outputs = list{}, object{}, list{}, list{}
	for _, c := range calls {
		name, _ := c.attributes.get("tool.name").(string)
		id, hasID := c.attributes.get("tool.id").(string)
		key := name
		if hasID && g.chance(0.8) {
			key = id
		}
		expected := object{{"name", key}}
		if hasID && g.chance(0.2) {
			expected = object{{"name", name}, {"id", id}}
		}
		order = append(order, key)
		n, _ := count.get(key).(int)
		count = count.with(key, n+1)
		wanted := object{}
		for _, m := range c.args {
			if g.chance(0.9) {
				wanted = append(wanted, member{m.key, g.changed(m.value, 0.15)})
			}
		}
		args = append(args, expected.with("args", wanted))
		output := "x"
		if s, ok := c.attributes.get("output.value").(string); ok {
			var content struct{ Content any }
			if json.Unmarshal([]byte(s), &content) == nil {
				s, _ = content.Content.(string)
			}
			output = s
		}
		outputs = append(outputs, expected.with("output", pick(g, output, output, output, "x", "", "found")))
	}
	shake := func(l list) list {
		switch {
		case g.chance(0.2):
			g.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		case len(l) > 0 && g.chance(0.1):
			l = l[1:]
		case len(l) > 0 && g.chance(0.1):
			l = append(l, l[0])
		}
		return l
	}
	if g.chance(0.15) {
		order = append(list{pick(g, toolNames...)}, order...)
	}
	expectations := object{}
	for _, m := range count {
		n, _ := m.value.(int)
		if g.chance(0.85) {
			expectations = append(expectations, member{m.key, list{pick(g, "=", "=", "=", "==", ">=", "<=", ">", "<", "!="), max(0, n+pick(g, 0, 0, 0, 1, -1))}})
		}
	}
	if g.chance(0.2) {
		expectations = expectations.with(pick(g, toolNames...), list{pick(g, "=", ">", "!=", "<="), g.IntN(2)})
	}
	return shake(order), expectations, shake(args), shake(outputs)
}
