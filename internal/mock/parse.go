package mock

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// Parse reads a list of mocks: the key "mocks" of an eval set or of an evaluation, or a file of
// them; n may be nil. place stands before the number of a mock when it is named. Problems are
// recorded in r with their places.
func Parse(r *input.Reader, n *input.Node, place string) (out []Mock) {
	if n == nil || n.Kind == input.Null {
		return nil
	}
	if n.Kind != input.Array {
		r.Errorf(n, "expected an array of mocks, got %s", n.Kind)
		return nil
	}
	for i, f := range r.Objects(n) {
		m := Mock{Place: fmt.Sprintf("%s[%d]", place, i)}
		m.read(r, f)
		f.Refuse()
		out = append(out, m)
	}
	return out
}

// kinds are the keys of an answer, of which it has one.
var kinds = []string{"result", "toolResult", "fail", "error", "model"}

// read reads a mock: what it matches, and exactly one of the keys that say what is answered.
func (m *Mock) read(r *input.Reader, f *input.Fields) {
	if n := f.Required("match", input.Object); n != nil {
		m.Match = readMatch(r, n)
	}
	if given := f.Count(append([]string{"sequence", "real", "refuse"}, kinds...)...); given != 1 {
		r.Errorf(f.Node, "expected one of result, toolResult, fail, error, model, sequence, real and refuse, got %d of them", given)
	}
	if refuse := f.Get("refuse"); refuse != nil {
		if m.Refuse = refuse.Kind == input.Bool && refuse.Text == "true"; !m.Refuse {
			r.Errorf(refuse, "expected true")
		}
		if m.Match.Arguments != nil {
			r.Errorf(refuse, "expected a match without arguments: what other mocks do not match is refused")
		}
		return
	}
	after := wait.Duration(f.Duration("after", 0))
	if real := f.Get("real"); real != nil {
		if m.Real = real.Kind == input.Bool && real.Text == "true"; !m.Real {
			r.Errorf(real, "expected true; calls that are not made get a result, a fail or an error")
		}
		if after > 0 {
			r.Errorf(f.Get("after"), "a call that is made takes as long as it takes")
		}
		return
	}
	n := f.Get("sequence")
	if n == nil {
		m.Answers = []Answer{readAnswer(r, f, after)}
		return
	}
	m.Sequence = true
	if n = f.Required("sequence", input.Array); n == nil {
		return
	}
	if len(n.Items) == 0 {
		r.Errorf(n, "expected at least one answer")
	}
	for _, g := range r.Objects(n) {
		if given := g.Count(kinds...); given != 1 {
			r.Errorf(g.Node, "expected one of result, toolResult, fail, error and model, got %d of them", given)
		}
		m.Answers = append(m.Answers, readAnswer(r, g, wait.Duration(g.Duration("after", time.Duration(after)))))
		g.Refuse()
	}
}

func readMatch(r *input.Reader, n *input.Node) Match {
	f := r.Object(n)
	pattern := func(name string) string {
		text := f.String(name, "")
		if n := f.Get(name); n != nil && n.Kind == input.String && text == "" {
			r.Errorf(n, "expected a name or a pattern such as \"get_*\", got an empty string; leave the key out to match everything")
		}
		return text
	}
	m := Match{Server: pattern("server"), Tool: pattern("tool"), Evaluation: pattern("evaluation")}
	if n := f.Optional("arguments", input.Object); n != nil {
		m.Arguments = n.JSON()
	}
	if exact := f.Get("exact"); exact != nil {
		if m.Exact = f.Bool("exact", false); m.Exact && m.Arguments == nil {
			r.Errorf(exact, "expected arguments, of which it says that they are all")
		}
	}
	f.Refuse()
	return m
}

// readAnswer reads one answer. It always asks for all keys, so that they are known.
func readAnswer(r *input.Reader, f *input.Fields, after wait.Duration) Answer {
	a := Answer{After: after}
	if n := f.Get("result"); n != nil {
		a.Result = resultOf(n)
	}
	if n := f.Optional("toolResult", input.Object); n != nil {
		a.Result = n.JSON()
		checkResult(r, n)
	}
	if n := f.Optional("fail", input.String); n != nil {
		if n.Text == "" {
			r.Errorf(n, "expected the message of the failure, got an empty string")
		}
		a.Result = mcp.TextResult(n.Text, true)
	}
	if n := f.Get("error"); n != nil {
		a.Error = readError(r, n)
	}
	if n := f.Optional("model", input.Object); n != nil {
		g := r.Object(n)
		a.Model = &Model{g.RequiredString("name"), g.RequiredString("instruction")}
		g.Refuse()
	}
	if a.Result == nil && a.Error == nil && a.Model == nil { // null, or what was refused above
		for _, key := range kinds[1:] {
			if n := f.Get(key); n != nil && n.Kind == input.Null {
				r.Errorf(n, "expected a value, got null")
			}
		}
	}
	return a
}

// resultOf makes a result of a value: a text, or JSON as text. An object is its structured content,
// too.
func resultOf(n *input.Node) json.RawMessage {
	if n.Kind == input.String {
		return mcp.TextResult(n.Text, false)
	}
	return TextResult(string(n.JSON()))
}

// TextResult makes a result of a text. A text that is a JSON object is its structured content, too.
func TextResult(text string) json.RawMessage {
	result := mcp.TextResult(text, false)
	o, err := jsonobj.ParseObject(result)
	if err != nil || !strings.HasPrefix(strings.TrimSpace(text), "{") || !json.Valid([]byte(text)) {
		return result
	}
	return o.Set("structuredContent", json.RawMessage(text)).JSON()
}

// checkResult checks what MCP wants of a result: a list of content, each with its type.
func checkResult(r *input.Reader, n *input.Node) {
	content := r.Object(n).Required("content", input.Array)
	if content == nil {
		return
	}
	for _, item := range content.Items {
		if item.Kind != input.Object || item.Member("type") == nil || item.Member("type").Kind != input.String {
			r.Errorf(item, `expected an object with a type, such as {"type": "text", "text": "…"}`)
		}
	}
}

// readError reads an error of JSON-RPC: its message, or an object with its code and message.
func readError(r *input.Reader, n *input.Node) json.RawMessage {
	switch n.Kind {
	case input.String:
		if n.Text == "" {
			r.Errorf(n, "expected the message of the error, got an empty string")
		}
		return mcp.Errorf(mcp.CodeInternal, "%s", n.Text).JSON()
	case input.Object:
		f := r.Object(n)
		code := f.Int("code", mcp.CodeInternal, -1<<31, 1<<31-1)
		e := mcp.Errorf(int64(code), "%s", f.RequiredString("message"))
		if data := f.Get("data"); data != nil {
			e = e.WithData(data.JSON())
		}
		f.Refuse()
		return e.JSON()
	}
	r.Errorf(n, `expected the message of the error, or {"code": -32603, "message": "…"}, got %s`, n.Kind)
	return nil
}
