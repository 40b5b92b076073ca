package jsonobj

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
)

// Object is a JSON object as the list of its members. Members that are not set or deleted keep
// their places and their bytes.
type Object []Member

// Member is one member of an object.
type Member struct {
	Key   string
	Value json.RawMessage
	// spelled is the key as it came, quotes included; nil for one that was made here.
	spelled []byte
}

// errNoObject says that a text is not one JSON object.
var errNoObject = errors.New("expected a JSON object")

// ParseObject takes an object apart. The values are parts of doc. A document that is missing or
// null is an empty object.
func ParseObject(doc json.RawMessage) (o Object, err error) {
	start := SkipSpace(doc, 0)
	if IsNull(doc[start:]) {
		return nil, nil
	}
	size := members(doc[start:], func(key, spelled, value []byte) {
		if o == nil {
			o = make(Object, 0, 6) // as many as most objects have
		}
		o = append(o, Member{string(key), value, spelled})
	})
	if size < 0 || SkipSpace(doc, start+size) != len(doc) {
		return nil, errNoObject
	}
	return o, nil
}

// Get returns a member's value, nil if there is none.
func (o Object) Get(key string) json.RawMessage {
	for _, m := range o {
		if m.Key == key {
			return m.Value
		}
	}
	return nil
}

// Has reports whether there is a member with the key.
func (o Object) Has(key string) bool {
	return slices.ContainsFunc(o, func(m Member) bool { return m.Key == key })
}

// Text returns a member that is a string; empty if there is none.
func (o Object) Text(key string) string {
	text, _ := Unquote(o.Get(key))
	return text
}

// Object returns a member that is an object; nil if there is none.
func (o Object) Object(key string) Object {
	inner, _ := ParseObject(o.Get(key))
	return inner
}

// Set sets a member, at its place if there is one, else at the end. The object that Set was called
// on must not be used any more.
func (o Object) Set(key string, value json.RawMessage) Object {
	for i := range o {
		if o[i].Key == key {
			o[i].Value = value
			return o
		}
	}
	return append(o, Member{Key: key, Value: value})
}

// Delete takes members out. The object that Delete was called on must not be used any more.
func (o Object) Delete(keys ...string) Object {
	return slices.DeleteFunc(o, func(m Member) bool { return slices.Contains(keys, m.Key) })
}

// JSON puts the object together.
func (o Object) JSON() json.RawMessage {
	size := 2
	for _, m := range o {
		size += max(len(m.Key)+2, len(m.spelled)) + len(m.Value) + 2
	}
	out := append(make([]byte, 0, size), '{')
	for i, m := range o {
		if i > 0 {
			out = append(out, ',')
		}
		if m.spelled != nil {
			out = append(out, m.spelled...)
		} else {
			out = AppendQuoted(out, m.Key)
		}
		out = append(out, ':')
		out = append(out, m.Value...)
	}
	return append(out, '}')
}

// Quote returns a text as a JSON string.
func Quote(s string) json.RawMessage { return AppendQuoted(make([]byte, 0, len(s)+2), s) }

// AppendQuoted appends a text as a JSON string.
func AppendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(b, `""`...) // a string always marshals
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// Canonical returns a document in one spelling: members sorted by their keys, no space. Numbers
// keep their spelling. A text that is no JSON stays as it is.
func Canonical(doc json.RawMessage) string {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return string(doc)
	}
	out, err := json.Marshal(v)
	if err != nil {
		return string(doc)
	}
	return string(out)
}
