package agent

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
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
		got, fault := parseDocument([]byte(printed))
		if fault != nil || string(got) != want {
			t.Errorf("%q: got %q, %v", printed, got, fault)
		}
	}
}

func TestWhatIsNotOneDocument(t *testing.T) {
	for printed, want := range map[string]struct {
		category Category
		says     string
	}{
		"\n \t":                  {FaultNoOutput, "white space"},
		"{}{}":                   {FaultMultipleDocuments, "line 1, column 3"},
		"1\n2\n3":                {FaultMultipleDocuments, "line 2, column 1"},
		"{} null":                {FaultMultipleDocuments, "line 1, column 4"},
		"2026-01-02 starting":    {FaultInvalidOutput, "line 1, column 5"},
		"{},{}":                  {FaultInvalidOutput, `column 3 there is ",{}"`},
		"{}}":                    {FaultInvalidOutput, `column 3 there is "}"`},
		"}":                      {FaultInvalidOutput, "invalid character '}' looking for beginning of value at line 1, column 1"},
		",":                      {FaultInvalidOutput, "line 1, column 1"},
		"{\n \"a\": tru\n}":      {FaultInvalidOutput, "line 2, column 10"},
		`{"a":1,}`:               {FaultInvalidOutput, "line 1, column 8"},
		`{'a':1}`:                {FaultInvalidOutput, `invalid character '\'' looking for beginning of object key string at line 1, column 2`},
		`"abc`:                   {FaultInvalidOutput, "unexpected end"},
		`"abc\`:                  {FaultInvalidOutput, "line 1, column 5"},
		"[1}":                    {FaultInvalidOutput, "line 1, column 3"},
		"-Infinity":              {FaultInvalidOutput, "-Infinity is not a JSON value"},
		`[Infinity]`:             {FaultInvalidOutput, "Infinity is not a JSON value at line 1, column 2"},
		"\n\xff{}":               {FaultInvalidUTF8, "line 2, column 1"},
		strings.Repeat("[", 1e6): {FaultTooDeep, "column 513"},
		`{"a":` + strings.Repeat(`{"a":`, maxDepth) + "1": {FaultTooDeep, "512 levels"},
	} {
		got, fault := parseDocument([]byte(printed))
		if fault == nil || fault.Category != want.category || !strings.Contains(fault.Message, want.says) {
			t.Errorf("%.40q: got %q, %v; want %v", printed, got, fault, want)
		}
	}
}

func TestMessagesQuoteOnlyTheBeginning(t *testing.T) {
	_, fault := parseDocument([]byte("x" + strings.Repeat("é", 1e6)))
	if fault == nil || len(fault.Message) > 400 || !utf8.ValidString(fault.Message) {
		t.Errorf("got %v", fault)
	}
}

// FuzzParseDocument holds the parser against encoding/json: it takes exactly what is one valid document.
func FuzzParseDocument(f *testing.F) {
	for _, seed := range []string{"{}", `{"__interrupt__":[{"value":1,"id":"0"}],"a":"\u005f"}`, "1 2", "[[[]", `"\`, "nul", "\xef\xbb\xbf1", "-", "{}}", `{"interrupt":1,"interrupt":{}}`, "NaN"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, fault := parseDocument(data)
		trimmed := bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
		if valid := utf8.Valid(trimmed) && json.Valid(trimmed); valid != (fault == nil) && (fault == nil || fault.Category != FaultTooDeep) {
			t.Fatalf("valid is %v, but got %v", valid, fault)
		}
		if fault != nil {
			if fault.Message == "" || !utf8.ValidString(fault.Message) {
				t.Fatalf("message %q", fault.Message)
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
