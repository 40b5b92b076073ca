package web

import (
	"encoding/json"
	"testing"
)

// What encoders escape because of HTML is shown as the character, once.
func TestJSONIsShownWithItsCharacters(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`{"a":"\u003cb\u003e \u0026 \u003C"}`:     "{\n  \"a\": \"<b> & <\"\n}",
		`{"a":"\\u003c"}`:                         "{\n  \"a\": \"\\\\u003c\"\n}",
		`{"a":"\\\u003c\"\u0000\u202e\ud83d\u0"}`: "",
		`"\u003cp\u003e"`:                         "<p>",
		`[1,"\u2028\\"]`:                          "[\n  1,\n  \"\\u2028\\\\\"\n]",
	} {
		if want == "" { // no JSON: as it is, and no panic
			readable(raw)
			continue
		}
		if got := valueParts(json.RawMessage(raw)); len(got) != 1 || got[0].Text != want {
			t.Errorf("%s: %+v, want %q", raw, got, want)
		}
		if got := textOf(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %+v, want %q", raw, got, want)
		}
	}
}
