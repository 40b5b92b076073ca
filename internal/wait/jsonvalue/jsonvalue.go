// Package jsonvalue reads JSON values of unknown structure: the interrupts of agents, and the
// answers of jobs and their servers. It knows nothing of what they mean.
package jsonvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// maxDepth is how deep an agent's value may nest.
const maxDepth = 512

// Member is one member of a JSON object.
type Member struct {
	Key string
	// Folded is the key as Fold makes it.
	Folded string
	Value  json.RawMessage
}

// Object is a JSON object with its members in order. As in Python, a key that comes again replaces
// the earlier one.
type Object []Member

// ParseObject reads a value that is known to be valid JSON; ok is false if it is not an object.
func ParseObject(v json.RawMessage) (Object, bool) {
	if KindOf(v) != '{' {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader(v))
	if _, err := dec.Token(); err != nil {
		return nil, false
	}
	o, at := Object{}, map[string]int{}
	for dec.More() {
		tok, err := dec.Token()
		key, isString := tok.(string)
		var value json.RawMessage
		if err != nil || !isString || dec.Decode(&value) != nil {
			return nil, false
		}
		if i, again := at[key]; again {
			o[i].Value = value
			continue
		}
		at[key] = len(o)
		o = append(o, Member{key, Fold(key), value})
	}
	return o, true
}

// Get finds a member by its name in snake_case, camelCase or PascalCase: pydantic writes any of
// them.
func (o Object) Get(name string) (json.RawMessage, bool) {
	for _, m := range o {
		if m.Key == name {
			return m.Value, true
		}
	}
	folded := Fold(name)
	for _, m := range o {
		if m.Folded == folded {
			return m.Value, true
		}
	}
	return nil, false
}

// Text is the value of a member that is a string or a whole number, as ids are; empty for anything
// else.
func (o Object) Text(name string) string {
	v, _ := o.Get(name)
	switch KindOf(v) {
	case '"':
		return String(v)
	case '0':
		return string(v)
	}
	return ""
}

// Fold makes the spellings of one name equal: process_folder_path, processFolderPath,
// ProcessFolderPath.
func Fold(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// JSON gives the object as JSON.
func (o Object) JSON() json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(Marshal(m.Key))
		b.WriteByte(':')
		b.Write(m.Value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// KindOf tells the JSON kind of a valid value: one of { [ " 0 t n, where 0 is any number and t a
// boolean. 0 means no value.
func KindOf(v json.RawMessage) byte {
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

// KindName gives the kind of a value as it reads in "expected …, got …".
func KindName(v json.RawMessage) string {
	switch KindOf(v) {
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

// String decodes a valid JSON string.
func String(v json.RawMessage) string {
	var s string
	_ = json.Unmarshal(v, &s) // the caller has looked at the kind
	return s
}

// Elements splits a valid JSON array, up to limit elements.
func Elements(v json.RawMessage, limit int) ([]json.RawMessage, error) {
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

// Marshal encodes a value that cannot fail to be encoded, without escaping HTML.
func Marshal(v any) json.RawMessage {
	data, _ := jsonobj.Marshal(v)
	return data
}

// Check reports a value that is not one JSON document or nests too deep for what follows.
func Check(v []byte) error {
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
