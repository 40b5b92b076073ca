package pyvalue

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// What encoding/json reads, parseValue reads too.
func FuzzParseValue(f *testing.F) {
	for _, text := range []string{
		"", " \n", "null", " true ", "false", "-0", "1e400", "-12.5E+3", `""`, `"a"`, `"\u00e9\ud83d\ude00\ud83d \"\\\/"`, `"é` + "\xff" + `"`,
		"[]", "[ ]", "{}", "{ }", `[1,[2 , "]"],{"a":{}}]`, ` { "a" : [ null , true ] , "\u0062":"}" , "a":1 } `,
		"[1,]", `{"a"}`, `"`, `"\"`, "tru", "1 2", "\xef\xbb\xbf1", strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2), strings.Repeat("[", 100_000),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Parse(data)
		if len(bytes.TrimSpace(data)) == 0 {
			if got != nil || err != nil {
				t.Errorf("got %v, %v for no text", got, err)
			}
			return
		}
		var want any
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if !json.Valid(data) || dec.Decode(&want) != nil {
			if err == nil {
				t.Errorf("got %v for what is not JSON", got)
			}
			return
		}
		if err == nil && !isValue(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if err != nil && !strings.Contains(string(data), strings.Repeat("[", 10)) && bytes.Count(data, []byte("{")) < maxDepth {
			t.Error(err)
		}
	})
}

// isValue reports whether a value is what encoding/json has of it.
func isValue(v, want any) bool {
	switch v := v.(type) {
	case Number:
		return want == json.Number(v.Text) || v.Text == "0" && want == json.Number("-0")
	case []any:
		list, ok := want.([]any)
		if !ok || len(v) != len(list) {
			return false
		}
		for i, item := range v {
			if !isValue(item, list[i]) {
				return false
			}
		}
		return true
	case *Object:
		members, ok := want.(map[string]any)
		if !ok || len(v.Values) != len(members) || len(v.Keys) != len(members) {
			return false
		}
		for key, value := range v.Values {
			if other, ok := members[key]; !ok || !isValue(value, other) {
				return false
			}
		}
		return true
	}
	return v == want
}
