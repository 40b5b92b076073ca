package jsonobj

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A text is valid for us exactly if it is for encoding/json.
func FuzzValid(f *testing.F) {
	for _, seed := range []string{
		``, ` `, `{}`, `[]`, `{"a":1}`, `[1,]`, `{"a"}`, `{"a":}`, `{,}`, `[,]`, `{"a":1,}`, `1`, `-`, `-0`, `01`, `1.`, `1.5e`, `1E+`, `1e400`, `-1.25E-7`,
		`true`, `tru`, `nulls`, `"abc"`, `"abc`, `"\`, `"\u12"`, `"\u12aF"`, `"\u12ag"`, `"\x"`, "\"\x1f\"", "\"\x80\xff\"", `"0123456789abcdef\n0123456789"`,
		"\"01234567\x00\"", "\"0123456\x7f\"", " {\"a\" : [ 1 , {} ] } ", `{} {}`, "[1\t]", `"é"`, "\"\u2028\"", `[[[[]]]]`, `[[[[]]]`, `{"a":1 "b":2}`,
		"{\"a\xff\xfeb\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := json.Valid(text)
		if got := Valid(text); got != want {
			t.Fatalf("Valid(%q) = %v, want %v", text, got, want)
		}
		// Where it is an object, its members are those that encoding/json reads.
		if want && bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) {
			var got []string
			Members(text[SkipSpace(text, 0):], func(key, value []byte) { got = append(got, string(key)+" "+string(value)) })
			if found := decodedMembers(t, text); !slices.Equal(got, found) {
				t.Fatalf("the members of %q are %q and %q", text, got, found)
			}
		}
	})
}

// decodedMembers are the keys and values of an object as encoding/json reads them.
func decodedMembers(t *testing.T, text []byte) (found []string) {
	dec := json.NewDecoder(bytes.NewReader(text))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err := errors.Join(err, dec.Decode(&value)); err != nil {
			t.Fatal(err)
		}
		found = append(found, fmt.Sprint(key)+" "+string(value))
	}
	return found
}

func TestValidDepth(t *testing.T) {
	for _, depth := range []int{MaxDepth - 1, MaxDepth, MaxDepth + 1, MaxDepth + 2} {
		text := []byte(strings.Repeat("[", depth) + strings.Repeat("]", depth))
		if got, want := Valid(text), json.Valid(text); got != want {
			t.Errorf("depth %d: %v, want %v", depth, got, want)
		}
	}
}

// The bytes that end a string, at each place in a word.
func TestValidStrings(t *testing.T) {
	for at := range 24 {
		for c := range 256 {
			text := []byte(`"` + strings.Repeat("é", 12) + `"`)
			text[1+at] = byte(c)
			if got, want := Valid(text), json.Valid(text); got != want {
				t.Fatalf("Valid(%q) = %v, want %v", text, got, want)
			}
		}
	}
}

// An object that was taken apart and put together has its keys as they were spelled.
func TestObjectKeepsSpelling(t *testing.T) {
	const doc = `{"\u0061":1,"b\/":"\ud800","é":9007199254740993,"\ud800":{"x" : [1, 2]},"a":2}`
	o, err := ParseObject([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(o.JSON()); got != doc {
		t.Errorf("got  %s\nwant %s", got, doc)
	}
	if o[0].Key != "a" || o[1].Key != "b/" {
		t.Errorf("keys %q, %q", o[0].Key, o[1].Key)
	}
}

func BenchmarkValid(b *testing.B) {
	text := []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("All work and no play makes Jack a dull boy. ", 1500) + `"}]}`)
	for name, valid := range map[string]func([]byte) bool{"jsontext": Valid, "encoding/json": json.Valid, "copy": func(b []byte) bool { return len(bytes.Clone(b)) > 0 }} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				valid(text)
			}
		})
	}
}
