// Package pyvalue holds JSON values as Python has them. UiPath's evaluators are Python: they compare
// and print Python values. A JSON value is therefore held here as
//
//	nil, bool, string, Number, []any or *Object
//
// where an object keeps the order of its members and a number knows whether it was written as an
// integer, because both show when the value is printed. A Python literal may also be a [Tuple] or
// [Opaque]. The package knows nothing of evaluations.
package pyvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Number is a JSON number. Text is its literal, empty for one that was computed.
type Number struct {
	Text    string
	Float   float64
	Integer bool
}

// Object is a JSON object in the order in which it was written.
type Object struct {
	Keys   []string
	Values map[string]any
}

// New makes an empty object.
func New() *Object { return &Object{Values: map[string]any{}} }

// Set adds a member or replaces its value, in Python's order: a key that comes again stays where it
// was first.
func (o *Object) Set(key string, value any) {
	if _, ok := o.Values[key]; !ok {
		o.Keys = append(o.Keys, key)
	}
	o.Values[key] = value
}

// Get returns a member under its camelCase or its snake_case name, both of which UiPath accepts in
// criteria.
func (o *Object) Get(names ...string) (any, bool) {
	for _, name := range names {
		if v, ok := o.Values[name]; ok {
			return v, true
		}
	}
	return nil, false
}

// maxDepth is how deep an agent's output may nest before it is refused.
const maxDepth = 1000

var errJSON = errors.New("not valid JSON")

var errDepth = fmt.Errorf("nested deeper than %d levels", maxDepth)

// Parse reads one JSON value. No text at all is null, because an agent may have no output.
func Parse(data []byte) (any, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if !jsonobj.Valid(data) {
		return nil, errJSON
	}
	return (&valueReader{data: data}).read(0)
}

// valueReader reads a JSON text that is valid.
type valueReader struct {
	data []byte
	at   int
}

func (r *valueReader) read(depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	switch c := r.next(); c {
	case '{':
		return r.object(depth)
	case '[':
		return r.array(depth)
	case '"':
		return r.text()
	case 't':
		r.at += len("true")
		return true, nil
	case 'f':
		r.at += len("false")
		return false, nil
	case 'n':
		r.at += len("null")
		return nil, nil
	}
	from := r.at
	for r.at < len(r.data) && strings.IndexByte("+-.0123456789Ee", r.data[r.at]) >= 0 {
		r.at++
	}
	return ParseNumber(string(r.data[from:r.at])), nil
}

// next returns the first byte of the next token.
func (r *valueReader) next() byte {
	for {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return c
		}
	}
}

func (r *valueReader) array(depth int) (any, error) {
	items := []any{}
	for r.at++; r.next() != ']'; {
		item, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		r.comma()
	}
	r.at++
	return items, nil
}

func (r *valueReader) object(depth int) (any, error) {
	o := New()
	for r.at++; r.next() != '}'; {
		key, err := r.text()
		if err != nil {
			return nil, err
		}
		r.next()
		r.at++ // the colon
		value, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		o.Set(key, value)
		r.comma()
	}
	r.at++
	return o, nil
}

func (r *valueReader) comma() {
	if r.next() == ',' {
		r.at++
	}
}

// text reads a string; encoding/json handles escapes, and bytes that are not UTF-8.
func (r *valueReader) text() (s string, err error) {
	from, plain := r.at, true
	for r.at++; r.data[r.at] != '"'; r.at++ {
		switch c := r.data[r.at]; {
		case c == '\\':
			r.at++
			plain = false
		case c >= utf8.RuneSelf:
			plain = false
		}
	}
	r.at++
	if plain {
		return string(r.data[from+1 : r.at-1]), nil
	}
	err = json.Unmarshal(r.data[from:r.at], &s)
	return s, err
}

// ParseNumber reads the literal of a JSON number.
func ParseNumber(literal string) Number {
	f, _ := json.Number(literal).Float64() // out of range gives ±Inf, as in Python
	if strings.ContainsAny(literal, ".eE") {
		return Number{Text: literal, Float: f}
	}
	if literal == "-0" {
		literal, f = "0", 0
	}
	return Number{Text: literal, Float: f, Integer: true}
}

// Normalize turns every integer into a float, as the output evaluators do before they compare or
// print.
func Normalize(v any) any {
	switch v := v.(type) {
	case Number:
		return Number{Float: v.Float}
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = Normalize(item)
		}
		return items
	case *Object:
		o := New()
		for _, key := range v.Keys {
			o.Set(key, Normalize(v.Values[key]))
		}
		return o
	}
	return v
}

// Equal is Python's ==: the order of an object's members does not count, and True equals 1.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		return ok && a == s
	case bool, Number:
		x, _ := AsNumber(a)
		y, ok := AsNumber(b)
		return ok && equalNumbers(x, y)
	case []any:
		list, ok := b.([]any)
		if !ok || len(a) != len(list) {
			return false
		}
		for i := range a {
			if !Equal(a[i], list[i]) {
				return false
			}
		}
		return true
	case *Object:
		o, ok := b.(*Object)
		if !ok || len(a.Values) != len(o.Values) {
			return false
		}
		for key, value := range a.Values {
			other, ok := o.Values[key]
			if !ok || !Equal(value, other) {
				return false
			}
		}
		return true
	}
	return false
}

// AsNumber returns the number that a Python value is in arithmetic: a boolean is 0 or 1.
func AsNumber(v any) (Number, bool) {
	switch v := v.(type) {
	case Number:
		return v, true
	case bool:
		if v {
			return Number{Text: "1", Float: 1, Integer: true}, true
		}
		return Number{Text: "0", Float: 0, Integer: true}, true
	}
	return Number{}, false
}

// equalNumbers compares exactly: 2**53 + 1 is not the float 2**53.
func equalNumbers(a, b Number) bool {
	if a.Integer && b.Integer {
		return a.Text == b.Text
	}
	if a.Float != b.Float {
		return false
	}
	if a.Integer == b.Integer || math.Abs(a.Float) < 1<<53 {
		return true
	}
	integer, float := a, b
	if b.Integer {
		integer, float = b, a
	}
	i, ok := new(big.Int).SetString(integer.Text, 10)
	if !ok || math.IsInf(float.Float, 0) {
		return false
	}
	f, _ := big.NewFloat(float.Float).Int(nil)
	return i.Cmp(f) == 0
}

// MarshalJSON keeps the order of the members.
func (o *Object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, key := range o.Keys {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := jsonobj.Marshal(key)
		if err != nil {
			return nil, err
		}
		value, err := jsonobj.Marshal(o.Values[key])
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// MarshalJSON writes a number as it was written, and one that JSON does not have as a string:
// "NaN", "Infinity", "-Infinity".
func (n Number) MarshalJSON() ([]byte, error) {
	if n.Text != "" {
		return []byte(n.Text), nil
	}
	for name, f := range nonFinite {
		if f == n.Float || math.IsNaN(f) && math.IsNaN(n.Float) {
			return json.Marshal(name)
		}
	}
	return json.Marshal(n.Float)
}

// nonFinite are the numbers that Python's json writes and reads beyond JSON.
var nonFinite = map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}

// A Python literal has values that JSON does not have. They are held beside those of parseValue.
type (
	// Tuple is equal to no list.
	Tuple []any
	// Opaque is a value as Python prints it that equals none of JSON's: bytes, a set, a complex
	// number, Ellipsis, or a dict whose keys are not all strings.
	Opaque string
)

// KindOf names a value's JSON type with its article.
func KindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}
