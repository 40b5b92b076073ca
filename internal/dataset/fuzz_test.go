package dataset

import (
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/input"
)

// FuzzFile reads anything as a data set: it comes to an end, and every row has every column.
func FuzzFile(f *testing.F) {
	for _, s := range []string{"id,a\n1,x\n", "\xef\xbb\xbfid\r\n\"1\"\r\n", "a\n\"\n", `{"id":1}` + "\n[]", "\xff\xfe"} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, content string, lines bool) {
		name := filepath.Join(t.TempDir(), "t.csv")
		if lines {
			name = filepath.Join(t.TempDir(), "t.jsonl")
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := open(name)
		if err != nil {
			return
		}
		defer file.close()
		for range len(content) + 2 {
			row, err := file.next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				continue
			}
			for i, column := range file.columns {
				if row.Members[i].Key != column {
					t.Fatalf("column %d of %q is %q", i, content, row.Members[i].Key)
				}
			}
			if !json.Valid(row.JSON()) {
				t.Fatalf("%q has a row that is no JSON: %s", content, row.JSON())
			}
		}
		t.Fatalf("%q has no end", content)
	})
}

// Whatever is written as RFC 4180 says comes back, however much of it is in quotes.
func TestCellsComeBack(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		columns := 1 + r.IntN(4)
		end := []string{"\n", "\r\n"}[r.IntN(2)]
		var file, want strings.Builder
		if r.IntN(2) == 0 {
			file.WriteString("\xef\xbb\xbf")
		}
		var names []string
		for i := range columns {
			names = append(names, string(rune('a'+i))+randomCell(r, "x é,\""))
		}
		writeRow(r, &file, names, end)
		for range r.IntN(5) {
			cells := make([]string, columns)
			for i := range cells {
				cells[i] = randomCell(r, "ab é,\"\n \t{}")
			}
			if columns == 1 && cells[0] == "" {
				cells[0] = "x" // otherwise the line is empty, and no row
			}
			writeRow(r, &file, cells, end)
			var members []string
			for i, cell := range cells {
				members = append(members, jsonOf(names[i])+":"+jsonOf(cell))
			}
			want.WriteString("{" + strings.Join(members, ",") + "}\n")
		}
		if got := read(t, "t.csv", file.String()); got != strings.TrimSuffix(want.String(), "\n") {
			t.Fatalf("%q: got\n%s\nwant\n%s", file.String(), got, want.String())
		}
	}
}

func randomCell(r *rand.Rand, letters string) string {
	from := []rune(letters)
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteRune(from[r.IntN(len(from))])
	}
	return b.String()
}

func writeRow(r *rand.Rand, b *strings.Builder, cells []string, end string) {
	for i, cell := range cells {
		if i > 0 {
			b.WriteByte(',')
		}
		if strings.ContainsAny(cell, "\",\n") || r.IntN(3) == 0 {
			cell = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
		}
		b.WriteString(cell)
	}
	b.WriteString(end)
}

func jsonOf(s string) string {
	n := input.Node{Kind: input.String, Text: s}
	return string(n.JSON())
}

// FuzzTemplate fills texts in, and compares with a reference that goes from brace to brace.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"{row.a}", "x{row.a}y{row.b}", "{row.a", "{{row.a}}", "{row.}", "{row.a}{row.a}", "{row.{row.a}}", "}{", "{row.c}"} {
		f.Add(s)
	}
	row := parse(f, `{"a": 5, "b": "{row.a}"}`)
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		var r input.Reader
		template := newTemplate(&r, &input.Node{Kind: input.String, Text: text})
		if r.Problems != nil {
			return
		}
		var got string
		filled, err := template.fill(row)
		if err == nil {
			got = string(filled.JSON())
		}
		want, ok := reference(text)
		if ok != (err == nil) || got != want {
			t.Errorf("%q: got %s, %v; want %s, %v", text, got, err, want, ok)
		}
	})
}

func reference(text string) (string, bool) {
	if text == "{row.a}" {
		return "5", true
	}
	pieces := strings.Split(text, "{row.")
	for i, piece := range pieces[1:] {
		name, rest, _ := strings.Cut(piece, "}")
		at := slices.Index([]string{"a", "b"}, name)
		if at < 0 {
			return "", false
		}
		pieces[i+1] = []string{"5", "{row.a}"}[at] + rest
	}
	return jsonOf(strings.Join(pieces, "")), true
}
