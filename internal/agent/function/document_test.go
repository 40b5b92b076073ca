package function

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/fault"
)

func TestDocumentIsTakenAsItIs(t *testing.T) {
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	for printed, want := range map[string]string{
		"{}":                         "{}",
		" \n{\"a\": 1e400 }\r\n\t":   `{"a": 1e400 }`,
		"\xef\xbb\xbf{}\n":           "{}", // as PowerShell writes it
		"null":                       "null",
		`"a\"]}"`:                    `"a\"]}"`,
		"-1.5\n":                     "-1.5",
		`{"a":"]","b":[{"c":"\\"}]}`: `{"a":"]","b":[{"c":"\\"}]}`,
		deep:                         deep,
	} {
		got, f := parseDocument([]byte(printed))
		if f != nil || string(got) != want {
			t.Errorf("%q: got %q, %v", printed, got, f)
		}
	}
}

func TestWhatIsNotOneDocument(t *testing.T) {
	for printed, want := range map[string]struct {
		category fault.Category
		says     string
	}{
		"\n \t":                  {fault.NoOutput, "white space"},
		"{}{}":                   {fault.MultipleDocuments, "line 1, column 3"},
		"1\n2\n3":                {fault.MultipleDocuments, "line 2, column 1"},
		"{} null":                {fault.MultipleDocuments, "line 1, column 4"},
		"2026-01-02 starting":    {fault.InvalidOutput, "line 1, column 5"},
		"{},{}":                  {fault.InvalidOutput, `column 3 there is ",{}"`},
		"{}}":                    {fault.InvalidOutput, `column 3 there is "}"`},
		"}":                      {fault.InvalidOutput, "invalid character '}' looking for beginning of value at line 1, column 1"},
		",":                      {fault.InvalidOutput, "line 1, column 1"},
		"{\n \"a\": tru\n}":      {fault.InvalidOutput, "line 2, column 10"},
		`{"a":1,}`:               {fault.InvalidOutput, "line 1, column 8"},
		`{'a':1}`:                {fault.InvalidOutput, `invalid character '\'' looking for beginning of object key string at line 1, column 2`},
		`"abc`:                   {fault.InvalidOutput, "unexpected end"},
		`"abc\`:                  {fault.InvalidOutput, "line 1, column 5"},
		"[1}":                    {fault.InvalidOutput, "line 1, column 3"},
		"-Infinity":              {fault.InvalidOutput, "-Infinity is not a JSON value"},
		`[Infinity]`:             {fault.InvalidOutput, "Infinity is not a JSON value at line 1, column 2"},
		"\n\xff{}":               {fault.InvalidUTF8, "line 2, column 1"},
		strings.Repeat("[", 1e6): {fault.TooDeep, "column 513"},
		`{"a":` + strings.Repeat(`{"a":`, maxDepth) + "1": {fault.TooDeep, "512 levels"},
	} {
		got, f := parseDocument([]byte(printed))
		if f == nil || f.Category != want.category || !strings.Contains(f.Message, want.says) {
			t.Errorf("%.40q: got %q, %v; want %v", printed, got, f, want)
		}
	}
}

func TestMessagesQuoteOnlyTheBeginning(t *testing.T) {
	_, f := parseDocument([]byte("x" + strings.Repeat("é", 1e6)))
	if f == nil || len(f.Message) > 400 || !utf8.ValidString(f.Message) {
		t.Errorf("got %v", f)
	}
}

// FuzzParseDocument holds the parser against encoding/json: it takes exactly what is one valid
// document.
func FuzzParseDocument(f *testing.F) {
	for _, seed := range []string{"{}", `{"__interrupt__":[{"value":1,"id":"0"}],"a":"\u005f"}`, "1 2", "[[[]", `"\`, "nul", "\xef\xbb\xbf1", "-", "{}}", `{"interrupt":1,"interrupt":{}}`, "NaN"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, bad := parseDocument(data)
		trimmed := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
		if valid := utf8.Valid(trimmed) && json.Valid(trimmed); valid != (bad == nil) && (bad == nil || bad.Category != fault.TooDeep) {
			t.Fatalf("valid is %v, but got %v", valid, bad)
		}
		if bad != nil {
			if bad.Message == "" || !utf8.ValidString(bad.Message) {
				t.Fatalf("message %q", bad.Message)
			}
			return
		}
		value, rest, found := splitInterrupt(doc)
		if !json.Valid(rest) || found && !json.Valid(value) {
			t.Fatalf("%q and %q", value, rest)
		}
		isEmpty(rest)
		var was, is map[string]json.RawMessage
		if json.Unmarshal(doc, &was) != nil {
			return
		}
		if _, there := was[interruptKey]; there != found {
			t.Fatalf("found is %v", found)
		}
		if err := json.Unmarshal(rest, &is); err != nil {
			t.Fatal(err)
		}
		delete(was, interruptKey)
		if len(was) != len(is) {
			t.Fatalf("%d keys are left of %d", len(is), len(was))
		}
	})
}
