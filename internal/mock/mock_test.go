package mock

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/input"
)

// parse reads mocks that are right.
func parse(t *testing.T, text string) []Mock {
	t.Helper()
	n, err := input.Parse("mocks.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	mocks := Parse(r, n, "mocks")
	if err := r.Problems.Err(true); err != nil {
		t.Fatal(err)
	}
	return mocks
}

// said is the text of an answer, with what is special about it.
func said(a Answer) string {
	var o struct {
		Content           []struct{ Text string }
		IsError           bool
		StructuredContent json.RawMessage
		Message           string
	}
	_ = json.Unmarshal(a.Result, &o)
	_ = json.Unmarshal(a.Error, &o)
	out := o.Message
	for _, c := range o.Content {
		out += c.Text
	}
	if o.IsError {
		out += " (error)"
	}
	if o.StructuredContent != nil {
		out += " " + string(o.StructuredContent)
	}
	return out
}

func TestCallsGetTheFirstMockThatMatches(t *testing.T) {
	p := NewPlayer(parse(t, `
- {match: {server: shop, tool: pay, arguments: {to: 'ACME*', lines: {n: 1}}}, result: paid}
- {match: {server: shop, tool: pay, arguments: {amount: 1}}, real: true}
- {match: {server: shop, tool: pay, arguments: {amount: 0}}, error: {code: -32001, message: nothing to pay}}
- {match: {tool: 'get_*'}, result: {n: 1}}
- {match: {server: mail}, fail: the mail is down}
- {match: {tool: list}, result: [1, 2]}
- {match: {tool: none}, result: null}
`), nil)
	for _, c := range []struct{ server, tool, arguments, want string }{
		{"shop", "pay", `{"to":"ACME Ltd","lines":{"n":1,"m":2}}`, "mocks[0]: paid"},
		{"shop", "pay", `{"to":"ACME Ltd","lines":{"n":2},"amount":0}`, "mocks[2]: nothing to pay"},
		{"shop", "pay", `{"to":"ACME Ltd","lines":{"n":2},"amount":1.0}`, "real"},
		{"shop", "pay", `{"to":"me"}`, "none: pay is mocked, and no mock matches these arguments; it was not called (error)"},
		{"shop", "pay", ``, "none: pay is mocked, and no mock matches these arguments; it was not called (error)"},
		{"other", "pay", `{"to":"ACME Ltd"}`, "real"},
		{"shop", "get_it", `null`, `mocks[3]: {"n":1} {"n":1}`},
		{"mail", "send", `{}`, "mocks[4]: the mail is down (error)"},
		{"mail", "get_mail", `[]`, `mocks[3]: {"n":1} {"n":1}`},
		{"shop", "list", `{}`, "mocks[5]: [1,2]"},
		{"shop", "none", `{}`, "mocks[6]: null"},
		{"shop", "hours", `{}`, "real"},
	} {
		a, place, ok := p.Call(c.server, c.tool, json.RawMessage(c.arguments))
		got := "real"
		if ok {
			got = place + ": " + said(a)
		}
		if got != c.want {
			t.Errorf("%s.%s(%s): %s, want %s", c.server, c.tool, c.arguments, got, c.want)
		}
	}
	want := &Played{Unmatched: map[string]int{"shop pay": 2},
		Calls: map[string]int{"mocks[0]": 1, "mocks[2]": 1, "mocks[3]": 2, "mocks[4]": 1, "mocks[5]": 1, "mocks[6]": 1}}
	if diff := cmp.Diff(want, p.Played()); diff != "" {
		t.Error(diff)
	}
	if !p.Mocks("mail", "x") || p.Mocks("shop", "hours") || !p.Mocks("shop", "pay") {
		t.Error("which tools are mocked")
	}
}

func TestASequenceIsPlayedInItsOrder(t *testing.T) {
	mocks := parse(t, `[{match: {tool: a}, sequence: [{result: 1}, {fail: two}, {result: 3}], after: 1s}, {match: {tool: b}, result: b}]`)
	if mocks[0].Answers[1].After == 0 {
		t.Error("an answer of a sequence has no delay of the mock")
	}
	call := func(p *Player, tool string) string {
		a, _, _ := p.Call("s", tool, nil)
		return said(a)
	}
	p := NewPlayer(mocks, map[string]int{"mocks[0]": 1, "mocks[1]": 9})
	for _, want := range []string{"two (error)", "3", "call 4 of a: the sequence that is played has 3 (error)"} {
		if got := call(p, "a"); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := call(p, "b"); got != "b" {
		t.Error(got)
	}
	if n := p.Played().Calls["mocks[0]"]; n != 3 {
		t.Errorf("%d calls of this segment", n)
	}
	p = NewPlayer(mocks, nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	got := map[string]int{}
	for range 3 {
		all.Go(func() {
			text := call(p, "a")
			mu.Lock()
			defer mu.Unlock()
			got[text]++
		})
	}
	all.Wait()
	if diff := cmp.Diff(map[string]int{"1": 1, "two (error)": 1, "3": 1}, got); diff != "" {
		t.Error(diff)
	}
}

// TestCallsThatAreRepeated: what an attempt that was broken off has played counts.
func TestCallsThatAreRepeated(t *testing.T) {
	p := NewPlayer(parse(t, `[{match: {tool: a}, sequence: [{result: 1}, {result: 2}, {result: 3}]}]`), map[string]int{"mocks[0]": 1})
	p.Repeat("s", "a", "mocks[0]")
	p.Repeat("s", "a", Unmatched)
	if a, _, _ := p.Call("s", "a", nil); said(a) != "3" {
		t.Error(said(a))
	}
	if diff := cmp.Diff(&Played{Calls: map[string]int{"mocks[0]": 2}, Unmatched: map[string]int{"s a": 1}}, p.Played()); diff != "" {
		t.Error(diff)
	}
	p = nil
	p.Repeat("s", "a", "mocks[0]")
}

func TestMocksOfAnEvaluation(t *testing.T) {
	m := &Mocks{
		Evaluations: map[string][]Mock{"a": {{Place: "own"}}, "b": {{Place: "b"}}},
		File:        []Mock{{Place: "file", Match: Match{Evaluation: "a*"}}, {Place: "other", Match: Match{Evaluation: "c"}}},
		Set:         []Mock{{Place: "set", Match: Match{Evaluation: "The *"}}},
	}
	var got []string
	for _, one := range m.Of("a", "The first") {
		got = append(got, one.Place)
	}
	if diff := cmp.Diff([]string{"own", "file", "set"}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"file", "other", "set"}, m.Places(func(string) bool { return false })); diff != "" {
		t.Error(diff)
	}
	if m = nil; m.Of("a", "A") != nil || m.All() != nil || m.Places(nil) != nil {
		t.Error("no mocks")
	}
	if p := NewPlayer(nil, nil); p != nil || p.Played() != nil || p.Mocks("s", "t") || p.Missing("s", nil) != "" {
		t.Error("no player")
	}
}

func TestAMockOfAToolThatIsNotThere(t *testing.T) {
	p := NewPlayer(parse(t, `[{match: {tool: stok}, result: 1}, {match: {server: 's*', tool: stok}, result: 1}, {match: {server: shop, tool: 'st*k'}, result: 1}, {match: {server: shop, tool: stok}, result: 1}]`), nil)
	if got, want := p.Missing("shop", []string{"pay", "stock"}), `mocks[3]: MCP server "shop" has no tool "stok"; did you mean "stock"?`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := p.Missing("store", nil) + p.Missing("shop", []string{"stok"}); got != "" {
		t.Error(got)
	}
}

// TestNamesOfUnmatchedCallsAreBounded: they come from a model.
func TestNamesOfUnmatchedCallsAreBounded(t *testing.T) {
	p := NewPlayer(parse(t, `[{match: {arguments: {never: 1}}, result: 1}]`), nil)
	for i := range 1000 {
		p.Call("s", strings.Repeat("x", i), nil)
	}
	if n := len(p.Played().Unmatched); n != maxUnmatched {
		t.Errorf("%d names", n)
	}
}

// TestRecordedArguments says which calls a recording answers: those with the same arguments, in which the
// mark of a secret stands for any text.
func TestRecordedArguments(t *testing.T) {
	for _, one := range []struct {
		recorded, got string
		want          bool
	}{
		{`{"a":1,"b":[1,2]}`, `{"b":[1,2],"a":1}`, true},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"q":"SELECT *"}`, `{"q":"SELECT a"}`, false},
		{`{"q":"SELECT *"}`, `{"q":"SELECT *"}`, true},
		{`{"key":"x [redacted:K] y"}`, `{"key":"x secret \" y"}`, true},
		{`{"key":"[redacted:K]"}`, `{"key":"s"}`, true},
		{`{"key":"[redacted:K]"}`, `{"key":"s","more":"t"}`, false},
		{`{"key":"[redacted:K]","n":1}`, `{"key":"s","n":2}`, false},
		{`{"key":"[redacted:K"}`, `{"key":"s"}`, false},
	} {
		if got := sameAs(json.RawMessage(one.recorded), json.RawMessage(one.got)); got != one.want {
			t.Errorf("%s and %s: %v", one.recorded, one.got, got)
		}
	}
}
