package wait

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep an agent's value may nest.
const maxDepth = 512

// member is one member of a JSON object.
type member struct {
	key string
	// folded is the key as fold makes it.
	folded string
	value  json.RawMessage
}

// object is a JSON object with its members in order. As in Python, a key that comes again replaces
// the earlier one.
type object []member

// parseObject reads a value that is known to be valid JSON; ok is false if it is not an object.
func parseObject(v json.RawMessage) (object, bool) {
	if kindOf(v) != '{' {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(v))
	if _, err := dec.Token(); err != nil {
		return nil, false
	}
	o, at := object{}, map[string]int{}
	for dec.More() {
		tok, err := dec.Token()
		key, isString := tok.(string)
		var value json.RawMessage
		if err != nil || !isString || dec.Decode(&value) != nil {
			return nil, false
		}
		if i, again := at[key]; again {
			o[i].value = value
			continue
		}
		at[key] = len(o)
		o = append(o, member{key, fold(key), value})
	}
	return o, true
}

// get finds a member by its name in snake_case, camelCase or PascalCase: pydantic writes any of
// them.
func (o object) get(name string) (json.RawMessage, bool) {
	for _, m := range o {
		if m.key == name {
			return m.value, true
		}
	}
	folded := fold(name)
	for _, m := range o {
		if m.folded == folded {
			return m.value, true
		}
	}
	return nil, false
}

// text is the value of a member that is a string or a whole number, as ids are; empty for anything
// else.
func (o object) text(name string) string {
	v, _ := o.get(name)
	switch kindOf(v) {
	case '"':
		return stringOf(v)
	case '0':
		return string(v)
	}
	return ""
}

// fold makes the spellings of one name equal: process_folder_path, processFolderPath,
// ProcessFolderPath.
func fold(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// write gives the object as JSON.
func (o object) write() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(marshal(m.key))
		b.WriteByte(':')
		b.Write(m.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// kindOf tells the JSON kind of a valid value: one of { [ " 0 t n, where 0 is any number and t a
// boolean. 0 means no value.
func kindOf(v json.RawMessage) byte {
	v = bytes.TrimLeft(v, " \t\r\n")
	if len(v) == 0 {
		return 0
	}
	switch c := v[0]; c {
	case '{', '[', '"', 'n':
		return c
	case 't', 'f':
		return 't'
	default:
		return '0'
	}
}

// kindName gives the kind of a value as it reads in "expected …, got …".
func kindName(v json.RawMessage) string {
	switch kindOf(v) {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 't':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "nothing"
}

// stringOf decodes a valid JSON string.
func stringOf(v json.RawMessage) string {
	var s string
	_ = json.Unmarshal(v, &s) // the caller has looked at the kind
	return s
}

// elements splits a valid JSON array, up to limit elements.
func elements(v json.RawMessage, limit int) ([]json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(v))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	var out []json.RawMessage
	for dec.More() {
		if len(out) == limit {
			return nil, fmt.Errorf("expected at most %d elements, got more", limit)
		}
		var item json.RawMessage
		if err := dec.Decode(&item); err != nil {
			return nil, err
		}
		out = append(out, item)
	}
	return out, nil
}

// marshal encodes a value that cannot fail to be encoded, without escaping HTML.
func marshal(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// checkJSON reports a value that is not one JSON document or nests too deep for what follows.
func checkJSON(v []byte) error {
	depth, inString, escaped := 0, false, false
	for _, c := range v {
		switch {
		case escaped:
			escaped = false
		case inString:
			escaped, inString = c == '\\', c != '"'
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Errorf("nested deeper than %d levels", maxDepth)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	if !json.Valid(v) {
		return errors.New("not valid JSON")
	}
	return nil
}

// documentOrText is the payload that some output stands for: the JSON document that it is, else its
// text; null if it is empty.
func documentOrText(out []byte) json.RawMessage {
	out = bytes.TrimSpace(bytes.TrimPrefix(out, []byte("\xef\xbb\xbf")))
	switch {
	case len(out) == 0:
		return json.RawMessage("null")
	case utf8.Valid(out) && checkJSON(out) == nil:
		return json.RawMessage(out)
	}
	return marshal(string(out))
}

// readBounded reads at most limit bytes; more is errTooLong.
func readBounded(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, errTooLong
	}
	return b, err
}

var errTooLong = errors.New("the text is too long")

// maxPayload is how large the result of a job may be.
const maxPayload = 16 << 20

// excerpt is the beginning of a text, for an error message.
func excerpt(b []byte) string {
	const most = 300
	s := strings.ToValidUTF8(strings.TrimSpace(string(b)), "�")
	if s == "" {
		return "(empty)"
	}
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
