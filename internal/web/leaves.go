package web

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// maxLeaves is the most differences of one comparison that are shown.
const maxLeaves = 40

// leaf is a place at which two values differ.
type leaf struct {
	Path string
	// Expected and Actual are the values, in words that are marked where they differ. One of them is
	// empty if the other value has nothing at that place.
	Expected, Actual []word
	// Missing is set if the actual value has nothing there, Extra if the expected one has nothing.
	Missing, Extra bool
}

// leaves has the places at which the values of a comparison differ. Equal of Of places are the
// same.
type leaves struct {
	Rows      []leaf
	Equal, Of int
	// More counts the differences that are left out.
	More int
	// includes allows the actual value to have more than the expected one.
	includes bool
}

// leavesOf compares two values of which at least one is an object or an array. It is nil for
// others, and for relations that are not between values of one form.
func leavesOf(c *eval.Comparison) *leaves {
	if c == nil || isScalar(c.Expected) && isScalar(c.Actual) || c.Relation != eval.Equals && c.Relation != eval.Includes {
		return nil
	}
	expected, ok := decode(c.Expected)
	actual, ok2 := decode(c.Actual)
	if !ok || !ok2 {
		return nil
	}
	l := &leaves{includes: c.Relation == eval.Includes}
	l.compare("$", expected, actual)
	return l
}

func (l *leaves) compare(at string, expected, actual any) {
	switch e := expected.(type) {
	case map[string]any:
		if a, ok := actual.(map[string]any); ok && len(e)+len(a) > 0 {
			l.objects(at, e, a)
			return
		}
	case []any:
		if a, ok := actual.([]any); ok && len(e)+len(a) > 0 {
			l.arrays(at, e, a)
			return
		}
	}
	l.Of++
	e, a := inJSON(expected), inJSON(actual)
	if e == a || sameNumber(expected, actual) {
		l.Equal++
		return
	}
	inExpected, inActual := words(around(e, a))
	l.add(leaf{Path: at, Expected: inExpected, Actual: inActual})
}

func (l *leaves) objects(at string, expected, actual map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if a, ok := actual[key]; ok {
			l.compare(at+member(key), expected[key], a)
		} else {
			l.missing(at+member(key), expected[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(actual)) {
		if _, ok := expected[key]; !ok && !l.includes {
			l.extra(at+member(key), actual[key])
		}
	}
}

func (l *leaves) arrays(at string, expected, actual []any) {
	for i := range max(len(expected), len(actual)) {
		here := at + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(actual):
			l.missing(here, expected[i])
		case i < len(expected):
			l.compare(here, expected[i], actual[i])
		case !l.includes:
			l.extra(here, actual[i])
		}
	}
}

func (l *leaves) missing(at string, expected any) {
	l.Of++
	l.add(leaf{Path: at, Expected: []word{{Text: short(inJSON(expected), 400)}}, Missing: true})
}

func (l *leaves) extra(at string, actual any) {
	l.Of++
	l.add(leaf{Path: at, Actual: []word{{Text: short(inJSON(actual), 400)}}, Extra: true})
}

func (l *leaves) add(one leaf) {
	if len(l.Rows) == maxLeaves {
		l.More++
		return
	}
	l.Rows = append(l.Rows, one)
}

// member writes the step to a member of an object as JSONPath does.
func member(key string) string {
	if key != "" && strings.IndexFunc(key, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0 {
		return "." + key
	}
	return "[" + inJSON(key) + "]"
}

// decode reads a value without changing its numbers.
func decode(raw json.RawMessage) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return v, d.Decode(&v) == nil
}

// inJSON writes a value as JSON in one line.
func inJSON(v any) string {
	data, _ := jsonobj.Marshal(v) // the value came from JSON
	return string(data)
}

// sameNumber reports whether two values are one number in two spellings.
func sameNumber(a, b any) bool {
	x, ok := a.(json.Number)
	y, ok2 := b.(json.Number)
	if !ok || !ok2 {
		return false
	}
	f, err := x.Float64()
	g, err2 := y.Float64()
	return err == nil && err2 == nil && f == g && math.Abs(f) < 1<<53
}

// around cuts two texts to the part that begins shortly before their first difference.
func around(a, b string) (x, y string) {
	x, y = a, b
	const before, most = 80, 1200
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	if from := same - before; from > before {
		for !utf8.RuneStart(a[from]) {
			from--
		}
		x, y = "…"+a[from:], "…"+b[from:]
	}
	return short(x, most), short(y, most)
}
