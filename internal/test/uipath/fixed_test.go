package uipath

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// criteriaCases are forms of criteria, most of them odd. One that makes UiPath give an evaluation
// up has aborts.
func criteriaCases() []evaluation {
	output := raw(`{"result":"Hello","a":{"b":[{"c":1}]}}`)
	one := func(name string, output json.RawMessage, criteria string, more ...func(*evaluation)) evaluation {
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(criteria), &members); err != nil {
			panic(fmt.Sprint(name, ": ", err))
		}
		e := evaluation{name: name, output: output}
		for id, value := range members {
			e.criteria = append(e.criteria, member{id, value})
		}
		for _, f := range more {
			f(&e)
		}
		return e
	}
	aborts := func(e *evaluation) { e.aborts = true }
	crash := func(e *evaluation) { e.crash = true }
	expected := func(s string) func(*evaluation) { return func(e *evaluation) { e.expected = raw(s) } }
	spans := func(attributes ...string) func(*evaluation) {
		return func(e *evaluation) {
			for _, a := range attributes {
				e.spans = append(e.spans, object{{"name", "t"}, {"attributes", raw(a)}})
			}
		}
	}
	tool := spans(`{"tool.name":"t","input.value":"{\"x\": 1}","output.value":"ok"}`)
	whole := `{"expectedOutput":` + string(output) + `}`
	return []evaluation{
		one("no criteria and no default", output, `{"exact":null,"contains":{"searchText":"hello"}}`, aborts),
		one("empty criteria", output, `{"exact":{},"contains":{"searchText":"hello"}}`, aborts),
		one("expected output of the evaluation", output, `{"exact":null,"similar":null,"contains":{"searchText":"hello"}}`, expected(string(output))),
		one("expected output of the evaluation, a string", output, `{"exact":null,"similar":null,"exact-key":null}`, expected(`"{\"result\": \"hello\"}"`)),
		one("expected output of the evaluation, empty", output, `{"exact":null,"similar":null}`, expected(`{}`)),
		one("expected output of the evaluation, and one's own", output, `{"exact":{"expectedOutput":{"result":"x"}},"similar":{}}`, expected(string(output))),
		one("snake case", output, `{"exact":{"expected_output":`+string(output)+`},"contains":{"search_text":"hello"}}`),
		one("an unknown key beside", output, `{"exact":{"expectedOutput":`+string(output)+`,"zzz":1}}`),
		one("a search text that is a number", output, `{"contains":{"searchText":5},"exact":`+whole+`}`, aborts),
		one("a search text that is missing", output, `{"contains":{"foo":5},"exact":`+whole+`}`, aborts),
		one("expected a list", output, `{"exact":{"expectedOutput":[1]}}`, aborts),
		one("expected a number", output, `{"exact":{"expectedOutput":1}}`, aborts),
		one("expected null", output, `{"exact":{"expectedOutput":null}}`, aborts),
		one("no criteria at all", output, `{}`),
		one("criteria for an evaluator that is not there", output, `{"nope":{"expectedOutput":1},"exact":`+whole+`}`),
		one("the output is a string", raw(`"Hello"`), `{"exact":{"expectedOutput":"hello"},"contains":{"searchText":"ell"},"exact-key":{"expectedOutput":{"result":"x"}}}`),
		one("the output is empty", raw(`{}`), `{"exact":{"expectedOutput":{}},"contains":{"searchText":"{}"},"similar":{"expectedOutput":{"a":1}}}`),
		one("the agent crashes", output, `{"exact":`+whole+`,"contains":{"searchText":"hello"}}`, crash),
		one("an unknown comparator", output, `{"count":{"toolCallsCount":{"t":["~",1]}},"exact":`+whole+`}`, tool),
		one("counts that are whole numbers in another form", output, `{"count":{"toolCallsCount":{"t":["=",1.0],"u":["=","0"],"v":["=",false]}}}`, tool),
		one("a count of one and a half", output, `{"count":{"toolCallsCount":{"t":["=",1.5]}}}`, tool, aborts),
		one("a count without a number", output, `{"count":{"toolCallsCount":{"t":["="]}},"exact":`+whole+`}`, tool, aborts),
		one("a count that is no pair", output, `{"count":{"toolCallsCount":{"t":1}},"exact":`+whole+`}`, tool, aborts),
		one("an order that is no list", output, `{"order":{"toolCallsOrder":"t"},"exact":`+whole+`}`, tool, aborts),
		one("a call without arguments", output, `{"args":{"toolCalls":[{"name":"t"}]},"exact":`+whole+`}`, tool, aborts),
		one("arguments of other types", output, `{"args":{"toolCalls":[{"name":"t","args":{"x":1.0}},{"name":"t","args":{"x":true}},{"name":"t","args":{"x":"1"}}]}}`, tool),
		one("an output that is a number", output, `{"output":{"toolOutputs":[{"name":"t","output":5}]},"exact":`+whole+`}`, tool, aborts),
		one("an id that is a number", output, `{"args":{"toolCalls":[{"name":"t","id":7,"args":{}}]}}`, tool, aborts),
		one("an expected class that is null", output, `{"binary":{"expectedClass":null},"exact":`+whole+`}`, aborts),
		one("an expected class that is a number", output, `{"binary":{"expectedClass":1},"exact":`+whole+`}`, aborts),
		one("true is 1", raw(`{"result":true}`), `{"exact":{"expectedOutput":{"result":1}},"similar":{"expectedOutput":{"result":1}},
			"legacy-equal":{"expectedOutput":{"result":1},"expectedAgentBehavior":""}}`),
		one("minus nought", raw(`{"result":-0.0}`), `{"exact":{"expectedOutput":{"result":0}},"contains":{"searchText":"-0.0"},"legacy-equal":{"expectedOutput":{"result":0},"expectedAgentBehavior":""}}`),
		one("a path that is missing on both sides", raw(`{"x":1}`), `{"legacy-equal-key":{"expectedOutput":{"y":2},"expectedAgentBehavior":""},
			"legacy-similar-key":{"expectedOutput":{"y":2},"expectedAgentBehavior":""},"exact-key":{"expectedOutput":{"y":2}}}`),
		one("legacy criteria without a behaviour", output, `{"legacy-equal":`+whole+`}`, aborts),
		one("a tool that failed and was tried again", output, `{"count":{"toolCallsCount":{"t":["=",2]}},"order":{"toolCallsOrder":["t","t"]}}`,
			spans(`{"tool.name":"t","input.value":"{\"x\": 1}"}`, `{"tool.name":"t","input.value":"{\"x\": 1}","output.value":"ok"}`)),
		one("one call id twice", output, `{"count":{"toolCallsCount":{"t":["=",2]}}}`,
			spans(`{"tool.name":"t","tool.call_id":"c"}`, `{"tool.name":"t","tool.call_id":"c","output.value":"ok"}`)),
		one("a call that has an id", output, `{"count":{"toolCallsCount":{"t":["=",0],"id-1":["=",1]}},"order":{"toolCallsOrder":["t"]},"args":{"toolCalls":[{"name":"t","args":{}}]}}`,
			spans(`{"tool.name":"t","tool.id":"id-1"}`)),
		one("no call where none is wanted", output, `{"count":{"toolCallsCount":{"t":["=",0]}},"args":{"toolCalls":[]},"output":{"toolOutputs":[]}}`),
		one("arguments whose keys are no strings", output, `{"args":{"toolCalls":[{"name":"t","args":{}}]},"count":{"toolCallsCount":{"t":["=",1]}}}`,
			spans(`{"tool.name":"t","input.value":"{1: 2}"}`)),
		one("a character by its name", output, `{"args":{"toolCalls":[{"name":"t","args":{"x":"-"}}]}}`, spans(`{"tool.name":"t","input.value":"{'x': '\\N{HYPHEN-MINUS}'}"}`)),
		one("CSV with a quote inside a field", raw(`{"result":"name,age\na\"b,1"}`), `{"csv":{"expectedOutput":{"result":"name,age\na\"b,1"},"expectedAgentBehavior":""}}`),
		one("CSV that begins with a blank line", raw(`{"result":"\nname\n1"}`), `{"csv":{"expectedOutput":{"result":"\nname\n1"},"expectedAgentBehavior":""}}`),
		one("CSV with blank lines", raw(`{"result":"name\n\n1"}`), `{"csv":{"expectedOutput":{"result":"name\r\n\r\n1"},"expectedAgentBehavior":""}}`),
		one("CSV line by line, empty", raw(`{"result":""}`), `{"csv-lines":{"expectedOutput":{"result":"name\n1"},"expectedAgentBehavior":""}}`, aborts),
		one("line by line a path that is missing", raw(`{"x":1}`), `{"lines":{"expectedOutput":{"result":"1"}},"exact":{"expectedOutput":{"x":1}}}`, aborts),
		one("lines of an object with the path's own key", raw(`{"result":{"result":"a"}}`), `{"lines":{"expectedOutput":{"result":"{'result': 'a'}"}}}`),
		one("CSV with columns of the same name", raw(`{"result":"name,name\n1,2"}`), `{"csv":{"expectedOutput":{"result":"name\n2"},"expectedAgentBehavior":""}}`),
	}
}

// configured are evaluators with odd configurations, and evaluations for all of them.
func configured() []evaluation {
	output := raw(`{"result":"A\nB\nC","a":{"b":[{"c":"x"},[1,2,["q"]]],"":5},"":"empty","x.y":"dotted","k[0]":"br","n":null,"l":["one","two"],"num":7,
		"big":[["p"]],"-1":"neg","*":"star","0":"zero"," ":"blank"}`)
	var all object
	add := func(kind, criteria string, config ...member) {
		id := fmt.Sprintf("config-%02d", len(all))
		evaluator(id, kind, config...)
		all = append(all, member{id, raw(criteria)})
	}
	whole := `{"expectedOutput":` + string(output) + `}`
	for _, path := range []string{"a..b", "a.b[0]c", "a.b[0][0]", "a.b[1][2][0]", "a.b[1].[0]", "[0]", "a[b]", "a.b[-1]", "a.b[9]", "x.y", "k[0]", "n", "n.x", "l[1]", "l[0].x", "l.0",
		"num", "num.x", " result", "result ", "*.a", ".result", "result.", "a.b.[0].c", "a.b[0].c.", "a['b']", "big[0][0]", "big.[0]", "-1", "0", "a.b[00].c", "**", "é", " "} {
		add(exactMatch, whole, member{"targetOutputKey", path})
	}
	for _, paths := range []list{{"result"}, {"result", "num"}, {"*"}, {"*", "num"}, {"a.b[0].c", "l[1]"}, {"result", "result"}, {"nope"}} {
		add(exactMatch, whole, member{"targetOutputKey", paths})
		add(similarity, whole, member{"targetOutputKey", paths})
	}
	byLine := member{"lineByLineEvaluator", true}
	for _, delimiter := range []string{"\n", " ", "\r\n", "A", "\n\n", "."} {
		add(exactMatch, whole, member{"targetOutputKey", "result"}, byLine, member{"lineDelimiter", delimiter})
		add(contains, `{"searchText":"b"}`, member{"targetOutputKey", "result"}, byLine, member{"lineDelimiter", delimiter})
	}
	for _, key := range []any{"l", "num", "n", "*", list{"result"}} {
		add(exactMatch, whole, member{"targetOutputKey", key}, byLine)
	}
	add(similarity, whole, member{"targetOutputKey", "num"}, byLine)
	add(exactMatch, whole, member{"target_output_key", "result"}, member{"case_sensitive", true})
	add(exactMatch, "null", member{"targetOutputKey", "result"}, member{"defaultEvaluationCriteria", object{{"expectedOutput", object{{"result", "a\nb\nc"}}}}})
	add(contains, "{}", member{"defaultEvaluationCriteria", object{{"searchText", "two"}}})
	return []evaluation{{name: "configurations", output: output, criteria: all}}
}

// characters are all that every Python knows, and their lower case.
func characters() []evaluation {
	var out []evaluation
	for from := rune(1); from < 0x20000; from += 512 {
		var b strings.Builder
		for r := from; r < from+512; r++ {
			if unicode.Is(known, r) && !unicode.Is(unicode.Cs, r) {
				b.WriteRune(r)
			}
		}
		criteria := object{{"searchText", "zz"}}
		if b.Len() > 0 {
			out = append(out, evaluation{name: fmt.Sprintf("U+%04X", from), output: object{{"result", b.String()}}, criteria: object{{"contains-key", criteria}, {"contains-cased", criteria}}})
		}
	}
	return out
}

// floats are numbers of all forms, compared and printed.
func (g generator) floats(n int) []evaluation {
	var out []evaluation
	for range n {
		var items list
		for range 20 {
			f := g.ExpFloat64() * float64(g.IntN(1000))
			items = append(items, g.number(), json.Number(fmt.Sprintf(pick(g, "%g", "%.3e", "%.17g", "%.25f"), f)), json.Number(fmt.Sprint(g.Uint64())),
				json.Number(fmt.Sprintf("%d%020d", 1+g.IntN(9), g.Uint64())), json.Number(fmt.Sprintf("-%d.%de%+d", g.IntN(10), g.IntN(1e9), g.IntN(600)-300)))
		}
		criteria := object{{"expectedOutput", object{{"result", items}}}}
		out = append(out, evaluation{output: object{{"result", items}}, criteria: object{{"contains-cased", object{{"searchText", "zz"}}}, {"exact", criteria}, {"similar", criteria}}})
	}
	return out
}
