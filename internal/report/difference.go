package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// The limits of a comparison's lines: differences, and characters of a value.
const (
	mostDifferences = 20
	valueWidth      = 120
)

// differences says in one line for each leaf how the values of a comparison differ.
func differences(c *eval.Comparison) []string {
	expected, ok := decode(c.Expected)
	actual, ok2 := decode(c.Actual)
	if !ok || !ok2 {
		return nil
	}
	d := difference{includes: c.Relation == eval.Includes || c.Relation == eval.Calls}
	switch c.Relation {
	case eval.Contains, eval.NotContains, eval.NotEquals:
		words := map[eval.Relation]string{
			eval.Contains: "to contain ", eval.NotContains: "not to contain ", eval.NotEquals: "anything but ",
		}
		d.add("", "expected "+words[c.Relation]+shown(expected)+", got "+shown(actual))
	case eval.Counts:
		d.counts(expected, actual)
	case eval.Calls:
		d.calls(expected, actual)
	default:
		d.value("", expected, actual)
	}
	if len(d.lines) == 0 { // the evaluator sees a difference that is none here
		d.add("", "expected "+shown(expected)+", got "+shown(actual))
	}
	if more := d.n - len(d.lines); more > 0 {
		d.lines = append(d.lines, fmt.Sprintf("… and %s more", count(more, "difference")))
	}
	return d.lines
}

// difference collects how two values differ.
type difference struct {
	// includes allows the actual value to have members that the expected one has not.
	includes bool
	lines    []string
	n        int
}

func (d *difference) add(path, text string) {
	d.n++
	if len(d.lines) == mostDifferences {
		return
	}
	if path != "" {
		text = path + ": " + text
	}
	d.lines = append(d.lines, text)
}

func (d *difference) value(path string, expected, actual any) {
	switch e := expected.(type) {
	case map[string]any:
		if a, ok := actual.(map[string]any); ok {
			d.object(path, e, a)
			return
		}
	case []any:
		if a, ok := actual.([]any); ok {
			d.array(path, e, a)
			return
		}
	case string:
		if a, ok := actual.(string); ok && e != a {
			d.text(path, e, a)
			return
		}
	}
	if !same(expected, actual) {
		d.add(path, "expected "+shown(expected)+", got "+shown(actual))
	}
}

func (d *difference) object(path string, expected, actual map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if a, ok := actual[key]; ok {
			d.value(member(path, key), expected[key], a)
		} else {
			d.add(member(path, key), "expected "+shown(expected[key])+", which is missing")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(actual)) {
		if _, ok := expected[key]; !ok && !d.includes {
			d.add(member(path, key), "not expected, got "+shown(actual[key]))
		}
	}
}

// array compares the parts between equal beginnings and ends, so that one element that is missing
// or too much does not make all elements after it differ.
func (d *difference) array(path string, expected, actual []any) {
	begin, end := 0, 0
	if len(expected) != len(actual) {
		least := min(len(expected), len(actual))
		for begin < least && same(expected[begin], actual[begin]) {
			begin++
		}
		for end < least-begin && same(expected[len(expected)-1-end], actual[len(actual)-1-end]) {
			end++
		}
	}
	for i := begin; i < max(len(expected), len(actual))-end; i++ {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(actual)-end:
			d.add(at, "expected "+shown(expected[i])+", which is missing")
		case i < len(expected)-end:
			d.value(at, expected[i], actual[i])
		case !d.includes:
			d.add(at, "not expected, got "+shown(actual[i]))
		}
	}
}

// text compares two texts that differ, by line if they have several.
func (d *difference) text(path, expected, actual string) {
	e, a := strings.Split(expected, "\n"), strings.Split(actual, "\n")
	if len(e) == 1 || len(a) == 1 {
		d.add(path, "expected "+quoted(excerpt(expected, actual))+", got "+quoted(excerpt(actual, expected)))
		return
	}
	lines := difference{}
	lines.array("", anys(e), anys(a))
	for _, line := range lines.lines {
		if at, rest, ok := strings.Cut(strings.TrimPrefix(line, "["), "]: "); ok {
			if n, err := strconv.Atoi(at); err == nil {
				line = "line " + strconv.Itoa(n+1) + ": " + rest
			}
		}
		d.add(path, line)
	}
	d.n += lines.n - len(lines.lines)
}

// counts compares how often tools were called.
func (d *difference) counts(expected, actual any) {
	wanted, _ := expected.(map[string]any)
	made, _ := actual.(map[string]any)
	for _, tool := range slices.Sorted(maps.Keys(wanted)) {
		pair, _ := wanted[tool].([]any)
		if len(pair) != 2 {
			continue
		}
		got := made[tool]
		if got == nil {
			got = json.Number("0")
		}
		if op, _ := pair[0].(string); !holds(got, op, pair[1]) {
			d.add(visible(tool), "expected "+
				strings.TrimLeft(strings.TrimPrefix(op, "=")+" ", "= ")+shown(pair[1])+" calls, got "+shown(got))
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(made)) {
		if _, ok := wanted[tool]; !ok {
			d.add(visible(tool), "called "+shown(made[tool])+" times, nothing is expected of it")
		}
	}
}

// calls compares expected calls with those that come nearest.
func (d *difference) calls(expected, actual any) {
	wanted, _ := expected.([]any)
	made, _ := actual.([]any)
	for i, w := range wanted {
		call, _ := w.(map[string]any)
		name, _ := call["name"].(string)
		if i >= len(made) || made[i] == nil {
			delete(call, "name")
			d.add(visible(name), "no call like "+shown(call))
			continue
		}
		d.value(visible(name), w, made[i])
	}
}

// holds reports whether a count is as expected.
func holds(got any, op string, want any) bool {
	g, errG := strconv.ParseFloat(fmt.Sprint(got), 64)
	w, errW := strconv.ParseFloat(fmt.Sprint(want), 64)
	if errG != nil || errW != nil {
		return false
	}
	switch op {
	case ">":
		return g > w
	case "<":
		return g < w
	case ">=":
		return g >= w
	case "<=":
		return g <= w
	case "!=":
		return g != w
	}
	return g == w
}

// same reports whether two values are the same JSON, with numbers compared by value.
func same(a, b any) bool {
	switch x := a.(type) {
	case json.Number:
		y, ok := b.(json.Number)
		if !ok || x == y {
			return ok
		}
		f, errX := x.Float64()
		g, errY := y.Float64()
		return errX == nil && errY == nil && f == g && math.Abs(f) < 1<<53
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, same)
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && maps.EqualFunc(x, y, same)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

func decode(raw json.RawMessage) (v any, ok bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return v, dec.Decode(&v) == nil
}

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = text
	}
	return out
}

// member returns the path of an object's member.
func member(path, key string) string {
	plain := key != "" && strings.IndexFunc(key, func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) < 0
	switch {
	case !plain:
		return path + "[" + quoted(middle(key, valueWidth)) + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// shown writes a value as JSON in one line, shortened in the middle.
func shown(v any) string {
	if s, ok := v.(string); ok {
		return quoted(middle(s, valueWidth))
	}
	data, err := jsonobj.Marshal(v)
	if err != nil {
		return ""
	}
	return visible(middle(string(data), valueWidth))
}

// quoted writes a text as a JSON string in which nothing is invisible.
func quoted(s string) string {
	data, _ := jsonobj.Marshal(s) // a string can always be written
	return visible(string(data))
}

// visible escapes the characters that cannot be seen or would change how others are shown.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// excerpt cuts a long text to the part around where it differs from another.
func excerpt(s, other string) string {
	const around = 20
	r, o := []rune(s), []rune(other)
	if len(r) <= valueWidth {
		return s
	}
	begin, end := 0, 0
	for begin < min(len(r), len(o)) && r[begin] == o[begin] {
		begin++
	}
	for end < min(len(r), len(o))-begin && r[len(r)-1-end] == o[len(o)-1-end] {
		end++
	}
	from, to := max(0, begin-around), min(len(r), len(r)-end+around)
	out := middle(string(r[from:to]), valueWidth)
	if from > 0 {
		out = "…" + out
	}
	if to < len(r) {
		out += "…"
	}
	return out
}
