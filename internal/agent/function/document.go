package function

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// interruptKey is the key of a document that suspends.
const interruptKey = "__interrupt__"

// maxDepth is how deep a document may nest.
const maxDepth = 512

// elsewhere is the advice for agents that print other things beside their document.
const elsewhere = `; if the agent prints other things on stdout, set "output": "last-line" or "file"`

// parseDocument finds the one JSON document in an agent's output. The result shares data's memory.
func parseDocument(data []byte) (json.RawMessage, *fault.Fault) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if at := invalidUTF8(data); at >= 0 {
		return nil, fault.Newf(fault.InvalidUTF8, "the output is not UTF-8: byte 0x%02x at %s", data[at], position(data, at))
	}
	start := jsonobj.SkipSpace(data, 0)
	if start == len(data) {
		return nil, fault.New(fault.NoOutput, "the agent printed only white space on stdout")
	}
	end, deep := valueEnd(data, start)
	if deep >= 0 {
		return nil, fault.Newf(fault.TooDeep, "the output nests deeper than %d levels at %s", maxDepth, position(data, deep))
	}
	doc := data[start:end]
	if !json.Valid(doc) {
		return nil, invalidDocument(data, start, doc)
	}
	next := jsonobj.SkipSpace(data, end)
	if next == len(data) {
		return doc, nil
	}
	if end, deep := valueEnd(data, next); deep < 0 && json.Valid(data[next:end]) {
		return nil, fault.Newf(fault.MultipleDocuments, "expected one JSON document, got more: a second one begins at %s%s",
			position(data, next), elsewhere)
	}
	return nil, fault.Newf(fault.InvalidOutput, "expected one JSON document, got more: at %s there is %q%s",
		position(data, next), excerpt(data[next:]), elsewhere)
}

// invalidDocument says where the document that begins at start goes wrong.
func invalidDocument(data []byte, start int, doc []byte) *fault.Fault {
	var syntax *json.SyntaxError
	var any json.RawMessage
	err := json.Unmarshal(doc, &any)
	if !errors.As(err, &syntax) {
		return fault.Newf(fault.InvalidOutput, "the output is not JSON: %v%s", err, elsewhere)
	}
	at := start + max(0, int(syntax.Offset)-1)
	reason := syntax.Error()
	for _, literal := range []string{"NaN", "Infinity", "-Infinity"} {
		from := max(start, at-1) // in -Infinity the second character is the first wrong one
		if bytes.HasPrefix(data[from:], []byte(literal)) || bytes.HasPrefix(data[at:], []byte(literal)) {
			reason = literal + " is not a JSON value"
		}
	}
	return fault.Newf(fault.InvalidOutput, "the output is not JSON: %s at %s, which begins %q%s",
		reason, position(data, at), excerpt(data[start:]), elsewhere)
}

// valueEnd returns where the JSON value that begins at start ends, if it is valid. For an invalid
// value it returns an offset no earlier than the first mistake. deep is where the value first nests
// too deep, or -1.
func valueEnd(data []byte, start int) (end, deep int) {
	depth := 0
	for i := start; i < len(data); i++ {
		switch data[i] {
		case '"':
			if i = stringEnd(data, i); depth == 0 {
				return min(i+1, len(data)), -1
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return i, i
			}
		case '}', ']':
			if depth--; depth <= 0 {
				return i + 1, -1
			}
		default:
			if depth == 0 {
				return wordEnd(data, i), -1
			}
		}
	}
	return len(data), -1
}

// stringEnd returns the offset of the quote that ends the string which begins at i, or len(data).
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(data)
}

// wordEnd returns where a number or a literal ends.
func wordEnd(data []byte, i int) int {
	if n := bytes.IndexAny(data[i:], " \t\r\n{}[]\","); n > 0 {
		return i + n
	} else if n == 0 {
		return i + 1 // a comma, which begins no value
	}
	return len(data)
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1.
func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
}

// position returns line and column of an offset, both from 1, the column in bytes.
func position(data []byte, at int) string {
	at = min(at, len(data))
	line := bytes.Count(data[:at], []byte("\n")) + 1
	return fmt.Sprintf("line %d, column %d", line, at-bytes.LastIndexByte(data[:at], '\n'))
}

// excerpt returns the beginning of a text, for a message.
func excerpt(data []byte) string {
	const most = 60
	if len(data) <= most {
		return string(data)
	}
	return string(bytes.ToValidUTF8(data[:most], nil)) + "…"
}

// lastLine returns the last line that is not empty.
func lastLine(data []byte) []byte {
	data = bytes.TrimRight(data, " \t\r\n")
	return data[bytes.LastIndexByte(data, '\n')+1:]
}

// splitInterrupt takes the __interrupt__ key out of a valid document. It decodes a document only if
// it can have the key, so that a large output is not copied. Of several keys the last counts.
func splitInterrupt(doc json.RawMessage) (value, rest json.RawMessage, found bool) {
	if doc[0] != '{' || !bytes.Contains(doc, []byte("interrupt")) {
		return nil, doc, false
	}
	o, err := jsonobj.ParseObject(doc)
	if err != nil || !o.Has(interruptKey) {
		return nil, doc, false
	}
	for _, m := range o {
		if m.Key == interruptKey {
			value = m.Value
		}
	}
	return value, o.Delete(interruptKey).JSON(), true
}

// isEmpty reports whether the value of __interrupt__ says that there are no interrupts.
func isEmpty(value json.RawMessage) bool {
	if string(value) == "null" {
		return true
	}
	var list []json.RawMessage
	return json.Unmarshal(value, &list) == nil && len(list) == 0
}
