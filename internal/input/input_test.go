package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
)

// positions prints every node of a tree as path@line:column kind.
func positions(n *Node) string {
	var b strings.Builder
	var walk func(*Node)
	walk = func(n *Node) {
		fmt.Fprintf(&b, "%s@%d:%d %s\n", n.Path, n.Line, n.Column, n.Kind)
		for _, item := range n.Items {
			walk(item)
		}
		for _, m := range n.Members {
			fmt.Fprintf(&b, "key %s@%d:%d\n", m.Key, m.Line, m.Column)
			walk(m.Value)
		}
	}
	walk(n)
	return b.String()
}

func TestPositions(t *testing.T) {
	for _, v := range []struct{ file, document, want string }{
		{"a.json", "{\n  \"é\": [1, \"x\"],\n  \"b\" : {\"c\": null}, \"d\": true}", `
@1:1 an object
key é@2:3
é@2:8 an array
é[0]@2:9 a number
é[1]@2:12 a string
key b@3:3
b@3:9 an object
key c@3:10
b.c@3:15 null
key d@3:22
d@3:27 a boolean
`},
		{"a.YAML", "é: [1, x]\nb:\n  c: ~\nd: yes\n", `
@1:1 an object
key é@1:1
é@1:4 an array
é[0]@1:5 a number
é[1]@1:8 a string
key b@2:1
b@3:3 an object
key c@3:3
b.c@3:6 null
key d@4:1
d@4:4 a string
`},
	} {
		n, err := Parse(v.file, []byte(v.document))
		if err != nil {
			t.Fatal(err)
		}
		if got := "\n" + positions(n); got != v.want {
			t.Errorf("%s: got %s\nwant %s", v.file, got, v.want)
		}
	}
}

func TestBadDocuments(t *testing.T) {
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for _, v := range []struct{ file, document, want string }{
		{"a.json", "", "a.json:1:1: the file is empty; expected a JSON document"},
		{"a.json", " \n\t", "a.json:1:1: the file is empty; expected a JSON document"},
		{"a.json", `{"a":1,` + "\n" + ` "a":2}`, "a.json:2:2: a: the key is given twice"},
		{"a.json", `{"b":{"a":1,"a":2}}`, "a.json:1:13: b.a: the key is given twice"},
		{"a.json", "{\"a\": 1,\n", "a.json:2:1: the document is cut: the file ends inside a value"},
		{"a.json", "{\"a\": \"x", "a.json:1:9: the document is cut: the file ends inside a value"},
		{"a.json", "{} {}", "a.json:1:4: expected the end of the file after the document, got more text"},
		{"a.json", "{\n  a: 1}", "a.json:2:3: not valid JSON: invalid character 'a'"},
		{"a.json", "[1,]", "a.json:1:4: not valid JSON: invalid character ']'"},
		{"a.json", "[1 2]", "a.json:1:4: not valid JSON: invalid character '2' after array element"},
		{"a.json", `{"a" 1}`, "a.json:1:6: not valid JSON: invalid character '1' after object key"},
		{"a.json", "{\"a\": 'x'}", "a.json:1:7: not valid JSON: invalid character '\\''"},
		{"a.json", "\"\xff\"", "a.json:1:2: expected UTF-8 text, got bytes that are not UTF-8"},
		{"a.json", deep, "a.json:1:514: nested deeper than 512 levels"},
		{"a.yml", "", "a.yml:1:1: the file is empty; expected a YAML document"},
		{"a.yml", "# only a comment\n", "a.yml:1:1: the file is empty; expected a YAML document"},
		{"a.yml", "a: 1\n---\nb: 2\n", "a.yml:2:1: expected one YAML document, got several"},
		{"a.yml", "a: 1\na: 2\n", "a.yml:2:1: a: the key is given twice"},
		{"a.yml", "a:\n  <<: *x\n", "a.yml:2:1: not valid YAML: unknown anchor 'x' referenced"},
		{"a.yml", "b: &x {c: 1}\na:\n  <<: *x\n", "a.yml:3:3: a: expected a plain text key (merge keys and complex keys are not supported)"},
		{"a.yml", "? [1]\n: 2\n", "a.yml:1:3: expected a plain text key (merge keys and complex keys are not supported)"},
		{"a.yml", "a: [1\nb: 2\n", "a.yml:1:1: not valid YAML: did not find expected ',' or ']'"},
		{"a.yml", "a: .inf\n", "a.yml:1:4: a: expected a finite number, got .inf"},
		{"a.yml", deep, "a.yml:1:514: nested deeper than 512 levels"},
		{"a.yml", "a: &a [*a]\n", "a.yml:1:8: the alias *a contains itself"},
		{"a.yml", bombs(), "a.yml:1:14: the document is too large once its aliases are expanded"},
	} {
		_, err := Parse(v.file, []byte(v.document))
		var p Problem
		if !errors.As(err, &p) {
			t.Errorf("%q: got %v, want a problem", v.document, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), v.want) {
			t.Errorf("%.60q:\n got %s\nwant %s", v.document, err, v.want)
		}
	}
}

// X8: an error in YAML has the line in which a person mends it, wherever the block begins in which it is.
func TestLinesOfYAMLErrors(t *testing.T) {
	const block, list, open = "did not find expected key", "did not find expected '-' indicator", "did not find expected ',' or ']'"
	for _, v := range []struct{ document, want string }{
		{"a: 1\nb: 2\nc: d: e\n", "3:1: not valid YAML: mapping values are not allowed in this context"},
		{"a: b: c\n", "1:1: not valid YAML: mapping values are not allowed in this context"},
		{"a: 1\n b: 2\n", "2:1: not valid YAML: mapping values are not allowed in this context"},
		{"a: 1\nb: |\n  x\n y\nc: 1\n", "4:1: not valid YAML: " + block},
		{"a:\n  b: 1\n  c: 2\n  d: 3\n e: 4\nf: 5\n", "5:1: not valid YAML: " + block},
		{"a:\n  - b: 1\n    c: 2\n  d: 3\ne: 4\n", "4:1: not valid YAML: " + list},
		{"a: 1\nb: [1, 2}\nc: 3\n", "2:1: not valid YAML: " + open},
		{"a: 1\nb: [1, 2\nc: 3\nd: 4\n", "2:1: not valid YAML: " + open},
		{"[1, 2\n", "1:1: not valid YAML: " + open},
		{"a: 1\nb: {c: 1\nd: 2\ne: 3\n", "2:1: not valid YAML: did not find expected ',' or '}'"},
		{"a: 1\nb: \"x\nc: 2\nd: 3\n", "2:1: not valid YAML: found unexpected end of stream"},
		{"a: 1\nb\nc: 2\n", "2:1: not valid YAML: could not find expected ':'"},
		{"a: 1\nb: *x\nc: 2\n", "2:1: not valid YAML: unknown anchor 'x' referenced"},
		{"a:\n  b: 1\n\tc: 2\n", "3:1: not valid YAML: found a tab character that violates indentation; the line is indented by a tab, expected blanks"},
		{"a: 1\nb: @x\n", "2:1: not valid YAML: found character that cannot start any token; a text that begins with one of @ ` % needs quotes"},
		{"\ufeffa: 1\nb: @x\n", "2:1: not valid YAML: found character that cannot start any token; a text that begins with one of @ ` % needs quotes"},
	} {
		if _, err := Parse("a.yml", []byte(v.document)); err == nil || err.Error() != "a.yml:"+v.want {
			t.Errorf("%q:\n got %v\nwant a.yml:%s", v.document, err, v.want)
		}
	}
}

// bombs is a document whose aliases expand to a billion nodes.
func bombs() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := range 9 {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return b.String()
}

func TestValues(t *testing.T) {
	for _, v := range []struct{ file, document, want string }{
		{"a.json", "\xef\xbb\xbf{\"a\" : [ 1.50, -0, 1e5 ], \"b\":\"<\\u00e9\\n>\"}", `{"a":[1.50,-0,1e5],"b":"<é\n>"}`},
		{"a.json", `12345678901234567890123`, `12345678901234567890123`},
		{"a.yaml", "a: 0x1f\nb: 1_000\nc: .5\nd: \"1.0\"\ne: 1.0\nf: 2020-01-02\ng: !!str 5\nh: null\ni:\nj: true\nk: 0o17\n",
			`{"a":31,"b":1000,"c":0.5,"d":"1.0","e":1.0,"f":"2020-01-02","g":"5","h":null,"i":null,"j":true,"k":15}`},
		{"a.yaml", "a: &x {b: [1]}\nc: *x\n", `{"a":{"b":[1]},"c":{"b":[1]}}`},
		{"a.yaml", "a: |\n  two\n  lines\n", `{"a":"two\nlines\n"}`},
	} {
		n, err := Parse(v.file, []byte(v.document))
		if err != nil {
			t.Errorf("%s: %v", v.document, err)
			continue
		}
		if got := string(n.JSON()); got != v.want {
			t.Errorf("got %s, want %s", got, v.want)
		}
	}
	if (*Node)(nil).JSON() != nil || (*Node)(nil).Member("a") != nil {
		t.Error("a nil node has no value")
	}
}

const fields = `{
  "text": "x", "empty": "", "yes": true, "n": 7, "f": 0.5, "d": "90s", "null": null, "list": ["a", 1], "map": {"k": "v", "w": 2},
  "choice": "fats", "snake_case": 1, "unknwn": 2
}`

// Given an object, when its members are read, then values come out, and everything that is wrong is
// said once.
func TestFields(t *testing.T) {
	n, err := Parse("f.json", []byte(fields))
	if err != nil {
		t.Fatal(err)
	}
	var r Reader
	f := r.Object(n)
	got := []any{
		f.String("text", "d"), f.String("none", "d"), f.String("null", "d"), f.String("n", "d"), f.RequiredString("empty"), f.RequiredString("gone"),
		f.Bool("yes", false), f.Bool("none", true), f.Int("n", 1, 0, 10), f.Int("n", 1, 0, 6), f.Int("f", 1, 0, 6), f.Float("f", 9, 0, 1), f.Float("n", 9, 0, 1),
		f.Duration("d", 0), f.Duration("none", time.Minute), f.Duration("text", time.Hour), f.Duration("n", time.Second),
		f.Strings("list"), f.Strings("none"), f.StringMap("map"), f.Enum("choice", "slow", "fast", "slow"), f.Int("snakeCase", 0, 0, 9),
		f.Has("null"), f.Has("text"), f.Required("n", Object) == nil, f.Optional("null", Object) == nil,
	}
	want := []any{
		"x", "d", "d", "d", "", "", true, true, 7, 1, 1, 0.5, 9.0, 90 * time.Second, time.Minute, time.Hour, time.Second,
		[]string{"a"}, []string(nil), map[string]string{"k": "v"}, "slow", 1, false, true, true, true,
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("value %d: got %v, want %v", i, got[i], want[i])
		}
	}
	f.Ignore("unknown")
	f.Done()
	wantProblems := `f.json:1:1: gone: missing; expected a string
f.json:2:11: text: expected a duration such as "30s" or "10m", got "x"
f.json:2:25: empty: expected a string that is not empty
f.json:2:47: n: expected a string, got a number
f.json:2:47: n: expected a whole number from 0 to 6, got 7
f.json:2:47: n: expected a number from 0 to 1, got 7
f.json:2:47: n: expected a duration such as "30s" or "10m", got a number
f.json:2:47: n: expected an object, got a number
f.json:2:55: f: expected a whole number from 0 to 6, got 0.5
f.json:2:100: list[1]: expected a string, got a number
f.json:2:127: map.w: expected a string, got a number
f.json:3:13: choice: expected one of fast, slow, got "fats"; did you mean "fast"?
f.json:3:38: warning: unknwn: unknown key; did you mean "unknown"?`
	if r.Problems.Error() != wantProblems {
		t.Errorf("got\n%s\nwant\n%s", r.Problems.Error(), wantProblems)
	}
}

func TestFieldsOfWhatIsNoObject(t *testing.T) {
	n, err := Parse("f.json", []byte(`[1]`))
	if err != nil {
		t.Fatal(err)
	}
	var r Reader
	f := r.Object(n)
	f.RequiredString("id")
	f.Done()
	if got := r.Problems.Error(); got != "f.json:1:1: expected an object, got an array" {
		t.Errorf("got %s", got)
	}
}

func TestProblems(t *testing.T) {
	wrong := Problem{File: "a.json", Line: 1, Column: 2, Key: "k", Message: "bad"}
	strange := Problem{File: "a.json", Message: "odd", Warning: true}
	ps := Problems{wrong, strange}
	if err := ps.Err(false); err == nil || err.Error() != "a.json:1:2: k: bad" {
		t.Errorf("errors: %v", err)
	}
	if err := ps.Err(true); err == nil || err.Error() != "a.json: odd\na.json:1:2: k: bad" {
		t.Errorf("strict: %v", err)
	}
	if got := ps.Warnings(); len(got) != 1 || got[0] != strange {
		t.Errorf("warnings: %v", got)
	}
	if err := (Problems{strange}).Err(false); err != nil {
		t.Errorf("a warning is no error: %v", err)
	}
}

// The same mistake in each of many rows does not hide the rest of what is printed.
func TestVeryManyProblems(t *testing.T) {
	var ps Problems
	for i := range 1000 {
		ps = append(ps, Problem{File: "f", Line: 1000 - i, Column: 1, Message: "wrong"})
	}
	lines := strings.Split(ps.Error(), "\n")
	if len(lines) != 21 || lines[0] != "f:1:1: wrong" || lines[19] != "f:20:1: wrong" || lines[20] != "… and 980 more" {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
}

func TestSuggest(t *testing.T) {
	for name, want := range map[string]string{
		"evaluatr": `; did you mean "evaluator"?`, "EVALUATOR": `; did you mean "evaluator"?`, "xyz": "", "": "", strings.Repeat("evaluator", 1000): "",
	} {
		if got := Suggest(name, []string{"agent", "evaluator"}); got != want {
			t.Errorf("%.20s: got %q, want %q", name, got, want)
		}
	}
}

// check asserts what holds of every document: the tree's positions are in the file, and its JSON is
// a document of the same value.
func check(t *testing.T, file string, data []byte) *Node {
	t.Helper()
	n, err := Parse(file, data)
	if err != nil {
		var p Problem
		if !errors.As(err, &p) {
			t.Fatalf("the error is no problem: %v", err)
		}
		if lines := bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")) + 2; p.Line < 1 || p.Line > lines || p.Column < 1 {
			t.Fatalf("position out of range: %v", p)
		}
		return nil
	}
	out := n.JSON()
	if !json.Valid(out) {
		t.Fatalf("not JSON: %q", out)
	}
	again, err := Parse("again.json", out)
	if err != nil {
		t.Fatalf("%q does not parse again: %v", out, err)
	}
	if !bytes.Equal(again.JSON(), out) {
		t.Fatalf("%q became %q", out, again.JSON())
	}
	return n
}

func FuzzParseJSON(f *testing.F) {
	for _, seed := range []string{`{}`, fields, `[1, -0.5e+3, "\ud83d\ude00\ud800", null, {"a":{}}]`, `"`, `{"a":1,"a":2}`, "\xef\xbb\xbf[]", "{\n}x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := check(t, "f.json", data)
		if n == nil {
			return
		}
		lines := bytes.Split(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), []byte("\n"))
		var walk func(*Node)
		walk = func(n *Node) {
			if n.Line < 1 || n.Line > len(lines) || n.Column < 1 || n.Column > len(bytes.Runes(lines[n.Line-1])) {
				t.Fatalf("%s at %d:%d is outside", n.Path, n.Line, n.Column)
			}
			first := bytes.Runes(lines[n.Line-1])[n.Column-1]
			if !strings.ContainsRune([]string{"n", "tf", "-0123456789", `"`, "[", "{"}[n.Kind], first) {
				t.Fatalf("%s at %d:%d is %s, found %q", n.Path, n.Line, n.Column, n.Kind, first)
			}
			for _, item := range n.Items {
				walk(item)
			}
			for _, m := range n.Members {
				walk(m.Value)
			}
		}
		walk(n)
		var std any
		if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), &std); err != nil {
			if !strings.Contains(err.Error(), "cannot unmarshal number") {
				t.Fatalf("encoding/json refuses it: %v", err)
			}
			return
		}
		var ours any
		if err := json.Unmarshal(n.JSON(), &ours); err != nil || !reflect.DeepEqual(std, ours) {
			t.Fatalf("got %v, encoding/json reads %v (%v)", ours, std, err)
		}
	})
}

func FuzzParseYAML(f *testing.F) {
	for _, seed := range []string{"a: 1\nb: [x, {c: ~}]\n", "a: &a [*a]", "- 0x1f\n- 1_000\n- .inf\n- !!binary aGk=\n", "? [1]\n: 2", "a: |\n x\n", "---\n...\n", "{a: 'é', b: \"\\x41\"}", "!!float 1", "\ufeffa: 1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { check(t, "f.yaml", data) })
}

// What a document brings along cannot drive a terminal, give commands to a CI system or fill
// the screen.
func TestProblemsAreHarmlessLines(t *testing.T) {
	long := strings.Repeat("k", 100_000)
	for _, v := range []struct{ file, document string }{
		{"a.json", `{"\u001b[31mred\u0000":1,"a\n::error::pwned":2,"##vso[x]":3,"\u202eabc":4,"` + long + `":5}`},
		{"a.yaml", `{"\e[31mred\0": 1, "a\n::error::pwned": 2, "##vso[x]": 3, "\u202Eabc": 4}`},
		{"a.json", `{"a\n::error::x":{"\u001b]0;k\u0007":1,"\u001b]0;k\u0007":2}}`},
		{"a.yaml", `"\e[31m": !!float "\n::error::x"`},
		{"a\n::error::\x1b[31m.json", `{"a":`},
	} {
		var r Reader
		n, err := Parse(v.file, []byte(v.document))
		if err == nil {
			r.Object(n).Done()
			err = r.Problems
		}
		for line := range strings.Lines(err.Error()) {
			if line = strings.TrimSuffix(line, "\n"); strings.ContainsFunc(line, unicode.IsControl) || strings.ContainsAny(line, "\u202e") ||
				!strings.HasPrefix(line, "a") || strings.Contains(line, "##vso[") || len(line) > 2000 {
				t.Errorf("%.60q: %.300q", v.document, line)
			}
		}
	}
}

// V13: half of a character that somebody wrote is told with its place; deliveries and the like are
// taken as they come.
func TestHalfCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"{\n \"a\": \"x\\ud800\"}":       `a.json:2:9: expected whole characters, got half of one, \ud800; the other half is missing`,
		`["\uDC00\uD83D"]`:               `a.json:1:3: expected whole characters, got half of one, \uDC00; the other half is missing`,
		`{"\ud83d\ud83d\ude00": 1}`:      `a.json:1:3: expected whole characters, got half of one, \ud83d; the other half is missing`,
		`["\ud83d\ude00", "\\ud800", 1]`: "",
	} {
		_, err := Parse("a.json", []byte(text))
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: got %s", text, got)
		}
		if _, err := ParseJSON("a.json", []byte(text)); err != nil {
			t.Error(err)
		}
	}
}
