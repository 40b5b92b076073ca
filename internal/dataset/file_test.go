package dataset

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/input"
)

// read gives the rows of a data set as JSON, and its problems, one a line.
func read(t *testing.T, name, content string) string {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := open(name)
	if err != nil {
		return err.Error()
	}
	defer f.close()
	var lines []string
	for {
		row, err := f.next()
		switch {
		case errors.Is(err, io.EOF):
			return strings.Join(lines, "\n")
		case err != nil:
			if !errors.As(err, new(input.Problem)) {
				t.Fatal(err)
			}
			lines = append(lines, err.Error())
		default:
			lines = append(lines, string(row.JSON()))
		}
	}
}

func TestRows(t *testing.T) {
	const rule = `a cell that begins with a quote ends with one, and a quote in a cell is written twice ("") in a cell in quotes`
	for _, v := range []struct{ name, file, content, want string }{
		{"cells are strings", "t.csv", "id,n\n1,007\n2,true\n", `{"id":"1","n":"007"}` + "\n" + `{"id":"2","n":"true"}`},
		{"BOM, quotes and CRLF", "t.csv", "\xef\xbb\xbf\"id\",a b\r\n\"1\",\"say \"\"hi\"\",\r\nthen\"\r\n", `{"id":"1","a b":"say \"hi\",\r\nthen"}`},
		{"no end of line at the end", "t.csv", "id\n1", `{"id":"1"}`},
		{"an ending in capitals", "T.CSV", "id\n1", `{"id":"1"}`},
		{"empty cells and empty lines", "t.csv", "id,a\n\n1,\n", `{"id":"1","a":""}`},
		{"a header alone", "t.csv", "id,a\n", ""},
		{"nothing", "t.csv", "", "t.csv:1:1: the file is empty; expected the names of the columns in the first line"},
		{"a BOM alone", "t.csv", "\xef\xbb\xbf", "t.csv:1:1: the file is empty; expected the names of the columns in the first line"},
		{"UTF-16", "t.csv", "\xff\xfei\x00d\x00", "t.csv:1:1: expected UTF-8 text, got UTF-16; save it as CSV in UTF-8"},
		{"another encoding", "t.csv", "id,a\n1,caf\xe9\n2,x\n", "t.csv:2:3: a: expected UTF-8 text, got bytes that are not UTF-8\n" + `{"id":"2","a":"x"}`},
		{"another encoding in the header", "t.csv", "id,\xe9\n", "t.csv:1:4: expected UTF-8 text, got bytes that are not UTF-8"},
		{"two columns of one name", "t.csv", "id,a,id\n", `t.csv:1:6: two columns have the name "id"`},
		{"a column without a name", "t.csv", "id, ,a\n", "t.csv:1:4: column 2 has no name; expected the names of the columns in the first line"},
		{"ragged rows", "t.csv", "id,a\n1\n2,x,\n3,y\n", "t.csv:2:1: expected as many cells as there are columns, 2, got 1\nt.csv:3:1: expected as many cells as there are columns, 2, got 3\n" + `{"id":"3","a":"y"}`},
		{"a quote inside of a cell", "t.csv", "id,a\n1,5\" disk\n2,x\n", "t.csv:2:4: the quotes are wrong; " + rule + "\n" + `{"id":"2","a":"x"}`},
		{"text after a quote", "t.csv", "id,a\n1,\"a\"b\n2,x\n", "t.csv:2:5: the quotes are wrong; " + rule + "\n" + `{"id":"2","a":"x"}`},
		{"a quote that is not closed", "t.csv", "id,a\n1,\"a\n2,x\n3,y\n", "t.csv:4:5: the quotes are wrong in the row that begins in line 2; " + rule},
		{"a row without end", "t.csv", "id,a\n1,\"" + strings.Repeat("x", maxRow+10_000) + "\"\n2,x\n", "t.csv:2:1: a row is longer than 16 MiB; is a quote not closed?"},
		{"lines", "t.jsonl", "\xef\xbb\xbf{\"id\": 1, \"a\": {\"b\": [1.50, null]}}\r\n\n  {\"id\":\"2\"}", `{"id":1,"a":{"b":[1.50,null]}}` + "\n" + `{"id":"2"}`},
		{"lines that are wrong", "t.jsonl", "{\"id\":1}\n[1]\n{\"id\":2,\n{\"id\":3}\n{\"a\":1,\"a\":2}", `{"id":1}` + "\nt.jsonl:2:1: expected an object on each line, got an array\n" +
			"t.jsonl:3:9: the document is cut: the file ends inside a value\n" + `{"id":3}` + "\nt.jsonl:5:8: a: the key is given twice"},
		{"a line without end", "t.jsonl", `{"a":"` + strings.Repeat("x", maxRow) + "\"}\n{}\n", "t.jsonl:1:1: a line is longer than 16 MiB"},
		// X8: tables of tabs, and arrays.
		{"tabs", "t.tsv", "id\ta b\n1\tx, \"y\n2\t\"a\tb\"\n", "t.tsv:2:6: the quotes are wrong; " + rule + "\n" + `{"id":"2","a b":"a\tb"}`},
		{"commas in a table of tabs", "t.tsv", "id,a\n1,2\n", `t.tsv:1:1: expected cells that are separated by tabs, got one column with the name "id,a"; save the file with tabs`},
		{"tabs in a table of commas", "t.csv", "id\ta\n1\t2\n", `t.csv:1:1: expected cells that are separated by commas, got one column with the name "id\ta"; save the file with commas`},
		{"an array", "t.json", "\xef\xbb\xbf [ {\"id\": 1, \"a\": {\"b\": [1.50, null, \"]},\\\"\"]}},\r\n {\"id\":\"2\"}]\n", `{"id":1,"a":{"b":[1.50,null,"]},\""]}}` + "\n" + `{"id":"2"}`},
		{"an empty array", "t.json", "[]", ""},
		{"no array", "t.json", " {\"id\":1}\n{}", "t.json:1:2: expected an array of objects, as a .json data set is; a file with an object on each line is named .jsonl"},
		{"no JSON at all", "t.json", "", "t.json:1:1: the file is empty; expected an array of objects"},
		{"an array of other things", "t.json", "[1,\n[],{\"id\":3}]", "t.json:1:2: expected an array of objects, got a number in it\nt.json:2:1: expected an array of objects, got an array in it\n" + `{"id":3}`},
		{"an array that is cut", "t.json", "[{\"id\":1},\n", `{"id":1}` + "\nt.json:2:1: the document is cut: the file ends inside the array"},
		{"an element that is cut", "t.json", "[{\"id\":1", "t.json:1:9: the document is cut: the file ends inside the array"},
		{"a missing comma", "t.json", "[{\"id\":1} {\"id\":2}]", `{"id":1}` + "\nt.json:1:11: expected a comma or the end of the array after an element"},
		{"an error in an element", "t.json", "[{\"id\":1},\n {\"id\":2,\n  \"a\": x}]", `{"id":1}` + "\nt.json:3:8: not valid JSON: invalid character 'x' looking for beginning of value"},
		{"a key twice in an element", "t.json", "[\n  {\"a\":1,\"a\":2}]", "t.json:2:10: a: the key is given twice"},
		{"text behind the array", "t.json", "[{\"id\":1}] x", `{"id":1}` + "\nt.json:1:12: expected the end of the file after the array, got more text"},
		{"another format", "t.xlsx", "", "t.xlsx: expected a file whose name ends in one of .csv, .tsv, .jsonl, .json, .parquet"},
	} {
		t.Run(v.name, func(t *testing.T) {
			if got := read(t, v.file, v.content); got != v.want {
				t.Errorf("got\n%.2000s\nwant\n%s", got, v.want)
			}
		})
	}
}

func TestTemplate(t *testing.T) {
	row := parse(t, `{"s": "text", "n": 1.50, "b": true, "z": null, "o": {"k": [1], "s": "deep"}, "o.s": "flat", "two words": "w", "p": "{row.s}"}`)
	for _, v := range []struct{ template, want string }{
		{`"{row.n}"`, `1.50`},
		{`"{row.s}"`, `"text"`},
		{`"{row.z}"`, `null`},
		{`"{row.o}"`, `{"k":[1],"s":"deep"}`},
		{`"{row.o.k}"`, `[1]`},
		{`"{row.o.s}"`, `"flat"`},
		{`"{row.two words}"`, `"w"`},
		{`"{row.p}"`, `"{row.s}"`},
		{`" {row.n}"`, `" 1.50"`},
		{`"{row.n}{row.b}{row.z}{row.o}"`, `"1.50true{\"k\":[1],\"s\":\"deep\"}"`},
		{`{"a": ["{row.n}", {"b": "<{row.s}>"}], "c": 7, "d": "{s}"}`, `{"a":[1.50,{"b":"<text>"}],"c":7,"d":"{s}"}`},
		{`"{row.S}"`, `t.jsonl:1:1: the row has no S; it has s, n, b, z, o, o.s, two words, p; did you mean "s"?`},
		{`"{row.}"`, `set.json:1:1: expected the name of a column in {row.…}, got {row.}`},
		{`"{{row.s}}"`, `set.json:1:1: expected single braces, as in {row.subject}, got "{{row.s}}"`},
		{`"{row.s"`, `set.json:1:1: expected the name of a column as in {row.subject}, with its closing brace and no spaces, got "{row.s"`},
		{`"{ row.s }"`, `set.json:1:1: expected the name of a column as in {row.subject}, with its closing brace and no spaces, got "{ row.s }"`},
		{`{"{row.s}": 1}`, `set.json:1:13: {row.s}: a key is not filled in; expected {row.…} only in values`},
	} {
		n, err := input.ParseJSON("set.json", []byte(v.template))
		if err != nil {
			t.Fatal(err)
		}
		var r input.Reader
		template := newTemplate(&r, n)
		got, err := "", r.Problems.Err(true)
		if err == nil {
			var filled *input.Node
			filled, err = template.fill(row)
			got = string(filled.JSON())
		}
		if err != nil {
			got = err.Error()
		}
		if got != v.want {
			t.Errorf("%s: got\n%s\nwant\n%s", v.template, got, v.want)
		}
	}
}

func parse(t testing.TB, text string) *input.Node {
	n, err := input.ParseJSON("t.jsonl", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestColumnsAreChecked(t *testing.T) {
	n, err := input.ParseJSON("set.json", []byte(`{"a": "{row.subject}", "b": "{row.o.k}", "c": "{row.id}"}`))
	if err != nil {
		t.Fatal(err)
	}
	var r input.Reader
	newTemplate(&r, n).check(&r, "t.csv", []string{"id", "Subject", "o"})
	if want := `set.json:1:7: a: t.csv has no column "subject"; it has id, Subject, o; did you mean "Subject"?`; r.Problems.Error() != want {
		t.Errorf("got %s", r.Problems)
	}
}

// V13: line ends within quotes are the cell's; those of rows are not.
func TestLineEndsInQuotes(t *testing.T) {
	for text, want := range map[string]string{
		"id,a\r\n1,\"x\r\ny\"\r\n2,\"\"\"\r\n\"\"\nz\"\r\n":       `{"id":"1","a":"x\r\ny"}` + "\n" + `{"id":"2","a":"\"\r\n\"\nz"}`,
		"id,a\n1,\"x\r\r\ny\r\"\n":                                `{"id":"1","a":"x\r\r\ny\r"}`,
		"id,a\r\n1,\"" + strings.Repeat("q\r\n", 5000) + "\"\r\n": `{"id":"1","a":"` + strings.Repeat(`q\r\n`, 5000) + `"}`,
	} {
		if got := read(t, "t.csv", text); got != want {
			t.Errorf("%.60q: got %.200s", text, got)
		}
	}
}
