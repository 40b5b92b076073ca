package modelproxy

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
)

// inPieces reads a text in pieces.
func inPieces(wanted map[string]int, text []byte, next func(left int) int) *fields {
	f := &fields{wanted: wanted}
	for len(text) > 0 {
		n := next(len(text))
		f.write(text[:n])
		text = text[n:]
	}
	return f
}

// wantedOf is what a whole decoder finds: the last value of each name that is not null.
func wantedOf(v any, path string, wanted map[string]int, found map[string]any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			wantedOf(item, path, wanted, found)
		}
	case map[string]any:
		for key, member := range v {
			name := strings.TrimPrefix(path+"."+key, ".")
			if _, ok := wanted[name]; ok {
				if member != nil {
					found[name] = member
				}
				continue // what is kept is kept whole
			}
			wantedOf(member, name, wanted, found)
		}
	}
}

func random(rnd *rand.Rand, depth int) any {
	keys := []string{"a", "b", "usage", "error", `q"\`, "choices", "finish_reason", "a.b", ""}
	texts := []string{"", "x", `{"usage":1}`, `"`, `\`, `\"`, "],[", "é\n", "null"}
	switch n := rnd.IntN(8); {
	case n < 3 && depth > 0:
		out := map[string]any{}
		for range rnd.IntN(4) {
			out[keys[rnd.IntN(len(keys))]] = random(rnd, depth-1)
		}
		return out
	case n < 4 && depth > 0:
		out := []any{}
		for range rnd.IntN(3) {
			out = append(out, random(rnd, depth-1))
		}
		return out
	case n == 5:
		return float64(rnd.IntN(100)) / 4
	case n == 6:
		return []any{nil, true, false}[rnd.IntN(3)]
	}
	return texts[rnd.IntN(len(texts))]
}

// The scanner finds what a decoder of whole documents finds, wherever the text is cut.
func TestFieldsFindWhatADecoderFinds(t *testing.T) {
	testenv.NeedSlow(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	wanted := map[string]int{"usage": 1000, "a.usage": 1000, "b": 1000, "choices.finish_reason": 1000, "error": 1000}
	found := 0
	for range 5_000 {
		value := map[string]any{"a": random(rnd, 3), "choices": random(rnd, 3), "usage": random(rnd, 3), "b": random(rnd, 2), "error": random(rnd, 1)}
		text, _ := json.Marshal(value)
		if rnd.IntN(2) == 0 {
			text, _ = json.MarshalIndent([]any{value}, " ", "\t")
		}
		want, got := map[string]any{}, map[string]any{}
		wantedOf(value, "", wanted, want)
		f := inPieces(wanted, text, func(left int) int { return 1 + rnd.IntN(min(left, 20)) })
		for name := range wanted {
			if raw := f.value(name); raw != nil {
				var v any
				if err := json.Unmarshal(raw, &v); err != nil {
					t.Fatal(err)
				}
				got[name] = v
			}
		}
		// Of an array of objects the last one counts, which a map's order does not tell; the rest
		// must be equal.
		if diff := cmp.Diff(want, got); diff != "" || !f.ended {
			t.Fatalf("%s\nended %v\n%s", text, f.ended, diff)
		}
		found += len(got)
	}
	if found < 5_000 {
		t.Errorf("only %d values were compared", found)
	}
}

func TestFields(t *testing.T) {
	for _, c := range []struct {
		text, name, want string
		ended            bool
	}{
		{`{"model":"m","tools":[]}`, "model", `"m"`, true},
		{`[{"error":{"a":[1,{"b":"]}"}]}}]`, "error", `{"a":[1,{"b":"]}"}]}`, true},
		{`[{"usage":1},{"usage":2},{"usage":null}]`, "usage", "2", true},
		{`{"response":{"usage":{"n":1}},"usage":0}`, "response.usage", `{"n":1}`, true},
		{`{"x":{"usage":1}}`, "usage", "", true},
		{`{"usage":1`, "usage", "", false},
		{`{"usage":1}]}]}`, "usage", "1", true},
		{`{"usage":]}`, "usage", "", false},
		{strings.Repeat("[", 1<<20), "usage", "", false},
		{strings.Repeat(`{"usage":`, 1<<20), "usage", "", false},
		{`{"` + strings.Repeat("k", 1<<20) + `":{"usage":1},"usage":2}`, "usage", "2", true},
		{`{"usage":"` + strings.Repeat("x", 1<<20) + `"}`, "usage", "", true},
		{"", "usage", "", false},
		{"plain text: [1]", "usage", "", true},
	} {
		f := inPieces(wantedOfAnswers, []byte(c.text), func(left int) int { return min(left, 4096) })
		if c.name == "model" {
			f = inPieces(wantedOfRequests, []byte(c.text), func(int) int { return 1 })
		}
		if got := string(f.value(c.name)); got != c.want || f.ended != c.ended {
			t.Errorf("%.60s: got %s, ended %v", c.text, got, f.ended)
		}
		if len(f.open) > 3*maxDepth || len(f.path) > 2*maxPath || len(f.kept) > 16<<10 {
			t.Errorf("%.60s: %d brackets, %d bytes of path and %d of a value are kept", c.text, len(f.open), len(f.path), len(f.kept))
		}
	}
	for text, want := range map[string]bool{`{"tools":[ {"a":1}]}`: true, `{"tools":[ ]}`: false, `{"tools":null}`: false, `{"tools":{}}`: false, `{}`: false,
		`{"tools":[` + strings.Repeat(`{"name":"x"},`, 100) + `{}]}`: true} {
		if got := inPieces(wantedOfRequests, []byte(text), func(int) int { return 1 }).isFilled("tools"); got != want {
			t.Errorf("%.40s: got %v", text, got)
		}
	}
}

// Whatever comes, nothing panics, and how it is cut changes nothing.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{chatStream, chatPlain, responsesStream, anthropicStream, geminiStream, geminiArray, "data\ndata:\n\n:\n\ndata: {\"error\":1}", "\r\r\n\n"} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, cut uint8) {
		read := func(size int) answer {
			a := answer{doc: fields{wanted: wantedOfAnswers}}
			// The beginning is looked at as a whole, for what kind of body it is.
			for from := 0; from < len(body); from += size {
				a.write(body[from:min(from+size, len(body))])
			}
			a.end()
			return a
		}
		if bytes.HasPrefix(body, []byte("\xef")) {
			return // a byte order mark that is cut is not recognised
		}
		one, two := read(1<<20), read(int(cut)+1)
		if one.finished != two.finished || one.complete != two.complete || one.usage != two.usage || one.fault != two.fault || one.stream != two.stream {
			t.Errorf("in one piece %+v\nin several %+v", one, two)
		}
	})
}
