package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// Given values and stored JSON of every kind: a document is laid out as encoding/json would. It says
// two things otherwise, which mean the same: U+FFFD for bytes that are no text stands as it is, and
// U+2028 in stored JSON is escaped, as in any other text.
func TestTheLayoutIsThatOfEncodingJSON(t *testing.T) {
	text := "\"<&>\\ \x00\x1f\x7f\u0085\u2028 ## ###é😀"
	quoted, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	stored := []string{`{}`, `[]`, `null`, `1e5`, `-0.0`, `12345678901234567890.123`, `"\u003c\/\ud800\u00e9"`, `{"b":1,"a":[{},[],[1,{"c":null}]],"b":2}`, "\"\xff\"", ` { "x" : [ ] , "y":{ } } `,
		string(quoted), `{"` + strings.Repeat("x", 5000) + `":["##",[[[["#"]]]]]}`}
	values := []any{text, 1.0, 1e21, 1e-7, nil, true, map[string]any{"b": 1, "a": []int{}, text: nil}, []any{}, struct {
		A *int            `json:"a"`
		B []string        `json:"b,omitempty"`
		C json.RawMessage `json:"c,omitempty"`
		D map[string]int  `json:"d"`
	}{}}
	for _, s := range stored {
		values = append(values, json.RawMessage(s), map[string]json.RawMessage{"stored": json.RawMessage(s)}, []any{[]json.RawMessage{json.RawMessage(s)}})
	}
	for _, v := range values {
		for _, prefix := range []string{"", "    "} {
			var compact, want bytes.Buffer
			enc := json.NewEncoder(&compact)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(v); err != nil {
				t.Fatal(err)
			}
			if err := json.Indent(&want, bytes.TrimSpace(compact.Bytes()), prefix, "  "); err != nil {
				t.Fatal(err)
			}
			got, err := indented(v, prefix)
			if err != nil || string(got) != string(inert(want.Bytes())) {
				t.Errorf("got %v\n%s\nwant\n%s", err, got, want.Bytes())
			}
		}
	}
	for _, bad := range []string{``, `{`, `[1,]`, `{"a":1}2`, "\"\n\"", `nul`} {
		if got, err := indented([]json.RawMessage{json.RawMessage(bad)}, ""); err == nil && bad != "" {
			t.Errorf("%q became %s", bad, got)
		}
	}
}
