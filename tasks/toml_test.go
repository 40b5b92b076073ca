package tasks

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/input"
)

// Given a document with every form of key and table, when it is read, then each value has the place
// where it stands.
func TestTOMLPositions(t *testing.T) {
	root, err := parseTOML("a.toml", []byte("\ufeffé = 1\n"))
	if err == nil {
		t.Errorf("a bare key is ASCII: %s", root.JSON())
	}
	root, err = parseTOML("a.toml", []byte("\xef\xbb\xbf"+`"é" . b =  [1, "x", {c = 2}, [3]] # comment
d = '''
two'''
  [ x . y ]
z = { k.l = true }
[[x.list]]
a = [
  "first",
  "second",
]
[[x.list]]
[x.list.sub]
q = -0x0 # not TOML
`))
	var p input.Problem
	if !errors.As(err, &p) || p.Line != 13 {
		t.Fatalf("got %v, want a syntax error in line 13; %v", err, root)
	}
	root, err = parseTOML("a.toml", []byte("\xef\xbb\xbf"+`"é" . b =  [1, "x", {c = 2}, [3]] # comment
d = '''
two'''
  [ x . y ]
z = { k.l = true }
[[x.list]]
a = [
  "first",
  "second",
]
[[x.list]]
[x.list.sub]
q = -0.5e0
`))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var walk func(*input.Node)
	walk = func(n *input.Node) {
		fmt.Fprintf(&b, "%s@%d:%d %s\n", n.Path, n.Line, n.Column, n.Kind)
		for _, item := range n.Items {
			walk(item)
		}
		for _, m := range n.Members {
			fmt.Fprintf(&b, "key %s@%d:%d\n", m.Key, m.Line, m.Column)
			walk(m.Value)
		}
	}
	walk(root)
	want := `@1:1 an object
key é@1:1
é@1:1 an object
key b@1:7
é.b@1:12 an array
é.b[0]@1:13 a number
é.b[1]@1:16 a string
é.b[2]@1:21 an object
key c@1:22
é.b[2].c@1:26 a number
é.b[3]@1:30 an array
é.b[3][0]@1:31 a number
key d@2:1
d@2:5 a string
key x@4:5
x@4:3 an object
key y@4:9
x.y@4:3 an object
key z@5:1
x.y.z@5:5 an object
key k@5:7
x.y.z.k@5:7 an object
key l@5:9
x.y.z.k.l@5:13 a boolean
key list@6:5
x.list@6:1 an array
x.list[0]@6:1 an object
key a@7:1
x.list[0].a@7:5 an array
x.list[0].a[0]@8:3 a string
x.list[0].a[1]@9:3 a string
x.list[1]@11:1 an object
key sub@12:9
x.list[1].sub@12:1 an object
key q@13:1
x.list[1].sub.q@13:5 a number
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBadTOML(t *testing.T) {
	for _, v := range []struct{ document, want string }{
		{"a = 1\na = 2\n", "a.toml:2:1: "},
		{"é = 1", "a.toml:1:1: not valid TOML: "},
		{"'é' = [1\n", "a.toml:"},
		{"'é' = x", "a.toml:1:7: not valid TOML: "},
		{"[a]\n[a]\n", "a.toml:2:2: "},
		{"a = {b = 1}\n[a.c]", "a.toml:2:2: not valid TOML: a is written between brackets in line 1"},
		{"a = {b = 1}\na.c = 1", "a.toml:2:1: not valid TOML: "},
		{"a = [{b = 1}]\n[[a]]", "a.toml:2:3: not valid TOML: "},
		{"a = {b = {}, b.c = 1}", "a.toml:1:14: not valid TOML: "},
		{"a = 9223372036854775808", "a.toml:1:5: not valid TOML: "},
		{"a = 2026-13-01", "a.toml:1:5: not valid TOML: invalid datetime"},
		{"a = '\xff'", "a.toml:1:6: "},
		{"a = " + strings.Repeat("[", 600) + strings.Repeat("]", 600), "a.toml:1:517: nested deeper than 512 levels"},
		{strings.Repeat("a.", 512) + "b.c = 1", "a.toml:1:1: nested deeper than 512 levels"},
		{"[" + strings.Repeat("a.", 512) + "b]", "a.toml:1:1: nested deeper than 512 levels"},
		{"[a]\n" + strings.Repeat("k", 1023) + " = 1", "a.toml:2:1: the key and those above it are longer than 1024 bytes"},
		{strings.Repeat("#", maxTOML+1), "a.toml: larger than 262144 bytes"},
		{"[" + strings.Repeat("k", 1025) + "]", "a.toml:1:1: the key and those above it are longer than 1024 bytes"},
	} {
		_, err := parseTOML("a.toml", []byte(v.document))
		var p input.Problem
		if !errors.As(err, &p) || !strings.HasPrefix(err.Error(), v.want) {
			t.Errorf("%.40q: got %v, want %s…", v.document, err, v.want)
		}
	}
}

// FuzzTOML: reading never panics; the tree has the values that the decoder has, and places that are
// in the file; and what task.toml means can be stored and read again.
func FuzzTOML(f *testing.F) {
	for _, document := range []string{everyTable, filtersDocument, stdioDocument, "a.b.c = [1, {d = 2026-01-01T00:00:00Z}]\n[[x]]\n[x.y]\n[[x]]\n",
		"a = [[1, 2], [3]]\nb = 0b11\nc = 1_0.5_0\nd = -inf\ne = +1e6", "'' = ''\n\"a\\u00e9\\n\".'b' = '''x\r\ny'''", "[a]\n[a.b]\n[a.b.c]\nd = {}\n[[a.l]]\n[[a.l.m]]"} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := parseTOML("task.toml", data)
		var decoded map[string]any
		decodeErr := toml.Unmarshal([]byte(strings.TrimPrefix(string(data), "\ufeff")), &decoded)
		if strings.Contains(fmt.Sprint(err), "cannot follow") {
			t.Fatalf("the index is lost: %v", err)
		}
		limit := strings.Contains(fmt.Sprint(err), "nothing can add to") || strings.Contains(fmt.Sprint(err), "nested deeper") || strings.Contains(fmt.Sprint(err), "longer than")
		if (decodeErr != nil) != (err != nil) && !limit {
			t.Fatalf("the decoder says %v, and the reader %v", decodeErr, err)
		}
		if err != nil {
			return
		}
		if !json.Valid(root.JSON()) {
			t.Fatalf("not JSON: %s", root.JSON())
		}
		same(t, root, decoded)
		lines := strings.Split(string(data), "\n")
		inside(t, root, lines)
		var r input.Reader
		c := readConfig(&r, root)
		if _, err := json.Marshal(c); err != nil {
			t.Fatal(err)
		}
		task := &Task{Dir: "nowhere", Config: c}
		task.Gaps(Capabilities{})
		task.Stages()
		c.Variables()
	})
}

// same asserts that a tree is what the decoder has made of the document.
func same(t *testing.T, n *input.Node, decoded any) {
	t.Helper()
	var got string
	switch v := decoded.(type) {
	case map[string]any:
		if n.Kind != input.Object || len(n.Members) != len(v) {
			t.Fatalf("%s: %s is not %v", n.Path, n.JSON(), v)
		}
		for _, m := range n.Members {
			same(t, m.Value, v[m.Key])
		}
		return
	case []map[string]any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = item
		}
		same(t, n, items)
		return
	case []any:
		if n.Kind != input.Array || len(n.Items) != len(v) {
			t.Fatalf("%s: %s is not %v", n.Path, n.JSON(), v)
		}
		for i := range v {
			same(t, n.Items[i], v[i])
		}
		return
	case float64:
		if f, ok := finite(n.Text); n.Kind == input.Number && ok && f != v || n.Kind != input.Number && ok {
			t.Fatalf("%s: %s is not %v", n.Path, n.Text, v)
		}
		return
	case time.Time:
		if n.Kind != input.String {
			t.Fatalf("%s: a date is %s", n.Path, n.Kind)
		}
		return
	default:
		got = fmt.Sprint(v)
	}
	if n.Text != got {
		t.Fatalf("%s: %q is not %q", n.Path, n.Text, got)
	}
}

func inside(t *testing.T, n *input.Node, lines []string) {
	t.Helper()
	if n.Line < 1 || n.Line > len(lines) || n.Column < 1 || n.Column > utf8.RuneCountInString(lines[n.Line-1])+1 {
		t.Fatalf("%s is at %d:%d, which is not in the file", n.Path, n.Line, n.Column)
	}
	for _, item := range n.Items {
		inside(t, item, lines)
	}
	for _, m := range n.Members {
		inside(t, m.Value, lines)
	}
}
