package input

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/agext/levenshtein"
)

// Reader walks documents and collects their problems.
type Reader struct {
	Problems Problems
}

// Errorf records that the value at n is wrong.
func (r *Reader) Errorf(n *Node, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{File: n.File, Line: n.Line, Column: n.Column,
		Key: n.Path, Message: fmt.Sprintf(format, args...)})
}

// Warnf records that the value at n is strange.
func (r *Reader) Warnf(n *Node, format string, args ...any) {
	r.Errorf(n, format, args...)
	r.Problems[len(r.Problems)-1].Warning = true
}

// Fields reads the members of one object. Its accessors record a problem and return the zero value
// if the member is of another kind. For a member that is absent or null they return the default, or
// record a problem if the accessor says Required. A member is found under its camelCase name and,
// as UiPath accepts it, under its snake_case name.
type Fields struct {
	Node *Node
	r    *Reader
	// known are the names that were asked for, and used are the keys found for them.
	known []string
	used  map[string]bool
}

// Object starts reading n. If n is not an object, Object records a problem and every accessor
// returns its default.
func (r *Reader) Object(n *Node) *Fields {
	f := &Fields{Node: n, r: r, used: map[string]bool{}}
	if n.Kind != Object {
		r.Errorf(n, "expected an object, got %s", n.Kind)
	}
	return f
}

// Objects starts reading each item of the array n, with its index. An item that is not an object is
// recorded as a problem and left out.
func (r *Reader) Objects(n *Node) iter.Seq2[int, *Fields] {
	return func(yield func(int, *Fields) bool) {
		for i, item := range n.Items {
			if f := r.Object(item); item.Kind == Object && !yield(i, f) {
				return
			}
		}
	}
}

// Has reports whether the member is there and not null.
func (f *Fields) Has(name string) bool {
	n := f.Get(name)
	return n != nil && n.Kind != Null
}

// Count returns how many of the members are there, whatever their kinds.
func (f *Fields) Count(names ...string) (given int) {
	for _, name := range names {
		if f.Get(name) != nil {
			given++
		}
	}
	return given
}

// Get returns the member's value whatever its kind, or nil if it is absent.
func (f *Fields) Get(name string) *Node {
	if !slices.Contains(f.known, name) {
		f.known = append(f.known, name)
	}
	for _, key := range []string{name, Snake(name)} {
		if v := f.Node.Member(key); v != nil {
			f.used[key] = true
			return v
		}
	}
	return nil
}

// Required returns the member's value, or records that it is missing and returns nil.
func (f *Fields) Required(name string, kind Kind) *Node {
	n := f.Get(name)
	if n == nil {
		if f.Node.Kind == Object {
			f.r.Problems = append(f.r.Problems, Problem{File: f.Node.File, Line: f.Node.Line, Column: f.Node.Column,
				Key: join(f.Node.Path, name), Message: "missing; expected " + kind.String()})
		}
		return nil
	}
	return f.check(n, kind)
}

// Optional returns the member's value if it is there, not null and of this kind.
func (f *Fields) Optional(name string, kind Kind) *Node {
	n := f.Get(name)
	if n == nil || n.Kind == Null {
		return nil
	}
	return f.check(n, kind)
}

func (f *Fields) check(n *Node, kind Kind) *Node {
	if n.Kind != kind {
		f.r.Errorf(n, "expected %s, got %s", kind, n.Kind)
		return nil
	}
	return n
}

// String returns an optional string.
func (f *Fields) String(name, otherwise string) string {
	if n := f.Optional(name, String); n != nil {
		return n.Text
	}
	return otherwise
}

// RequiredString returns a string that must be there and not be empty.
func (f *Fields) RequiredString(name string) string {
	n := f.Required(name, String)
	if n == nil {
		return ""
	}
	if n.Text == "" {
		f.r.Errorf(n, "expected a string that is not empty")
	}
	return n.Text
}

// Bool returns an optional boolean.
func (f *Fields) Bool(name string, otherwise bool) bool {
	if n := f.Optional(name, Bool); n != nil {
		return n.Text == "true"
	}
	return otherwise
}

// Int returns an optional whole number within bounds.
func (f *Fields) Int(name string, otherwise, least, most int) int {
	n := f.Optional(name, Number)
	if n == nil {
		return otherwise
	}
	v, err := strconv.Atoi(n.Text)
	if err != nil || v < least || v > most {
		f.r.Errorf(n, "expected a whole number from %d to %d, got %s", least, most, n.Text)
		return otherwise
	}
	return v
}

// Float returns an optional number within bounds.
func (f *Fields) Float(name string, otherwise, least, most float64) float64 {
	n := f.Optional(name, Number)
	if n == nil {
		return otherwise
	}
	v, err := strconv.ParseFloat(n.Text, 64)
	if err != nil || !(v >= least && v <= most) { // NaN is neither
		f.r.Errorf(n, "expected a number from %v to %v, got %s", least, most, n.Text)
		return otherwise
	}
	return v
}

// Duration returns an optional duration, written as Go writes it ("10m", "1h30m"). It must not be
// negative.
func (f *Fields) Duration(name string, otherwise time.Duration) time.Duration {
	n := f.Get(name)
	if n == nil || n.Kind == Null {
		return otherwise
	}
	if n.Kind != String {
		f.r.Errorf(n, `expected a duration such as "30s" or "10m", got %s`, n.Kind)
		return otherwise
	}
	d, err := time.ParseDuration(n.Text)
	if err != nil || d < 0 {
		f.r.Errorf(n, `expected a duration such as "30s" or "10m", got %q`, n.Text)
		return otherwise
	}
	return d
}

// Enum returns an optional string that must be one of the values.
func (f *Fields) Enum(name, otherwise string, values ...string) string {
	n := f.Optional(name, String)
	if n == nil {
		return otherwise
	}
	if !slices.Contains(values, n.Text) {
		f.r.Errorf(n, "expected one of %s, got %q%s", strings.Join(values, ", "), n.Text, Suggest(n.Text, values))
		return otherwise
	}
	return n.Text
}

// Strings returns an optional array of strings.
func (f *Fields) Strings(name string) []string {
	n := f.Optional(name, Array)
	if n == nil {
		return nil
	}
	out := make([]string, 0, len(n.Items))
	for _, item := range n.Items {
		if item.Kind != String {
			f.r.Errorf(item, "expected a string, got %s", item.Kind)
			continue
		}
		out = append(out, item.Text)
	}
	return out
}

// IsLabel reports whether a text can be a tag of workers.
func IsLabel(text string) bool {
	const more = "._-"
	return text != "" && len(text) <= 63 && !strings.Contains(more, text[:1]) && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(more, c)
	})
}

// Labels returns an optional array of tags of workers.
func (f *Fields) Labels(name string) []string {
	out := f.Strings(name)
	for i, text := range out {
		if !IsLabel(text) && len(f.Get(name).Items) == len(out) {
			f.r.Errorf(f.Get(name).Items[i], "expected a tag of up to 63 letters, digits, dots, hyphens and underscores, got %q", text)
		}
	}
	return out
}

// StringMap returns an optional object whose values are strings.
func (f *Fields) StringMap(name string) map[string]string {
	n := f.Optional(name, Object)
	if n == nil {
		return nil
	}
	out := make(map[string]string, len(n.Members))
	for _, m := range n.Members {
		if m.Value.Kind != String {
			f.r.Errorf(m.Value, "expected a string, got %s", m.Value.Kind)
			continue
		}
		out[m.Key] = m.Value.Text
	}
	return out
}

// Ignore names keys that may be there and have no effect in evalrun.
func (f *Fields) Ignore(names ...string) {
	for _, name := range names {
		f.Get(name)
	}
}

// Unknown returns the members that nobody has asked for.
func (f *Fields) Unknown() (unknown []Member) {
	for _, m := range f.Node.Members {
		if !f.used[m.Key] && !slices.Contains(f.known, m.Key) {
			unknown = append(unknown, m)
		}
	}
	return unknown
}

// Done warns of every key that nobody asked for, naming the nearest known one.
func (f *Fields) Done() {
	for _, m := range f.Unknown() {
		f.unknown(m, Suggest(m.Key, f.known), true)
	}
}

// Refuse is like Done if a key that has no effect would do harm: each of them is an error, which
// names the known ones.
func (f *Fields) Refuse() {
	for _, m := range f.Unknown() {
		f.unknown(m, "; expected one of "+strings.Join(f.known, ", ")+Suggest(m.Key, f.known), false)
	}
}

// RefuseLike is like Refuse for the unknown keys that look like a known one.
func (f *Fields) RefuseLike(known string, looks func(key string) bool) {
	for _, m := range f.Unknown() {
		if looks(m.Key) {
			f.used[m.Key] = true
			f.unknown(m, fmt.Sprintf("; did you mean %q?", known), false)
		}
	}
}

func (f *Fields) unknown(m Member, hint string, warning bool) {
	f.r.Problems = append(f.r.Problems, Problem{File: f.Node.File, Line: m.Line, Column: m.Column,
		Key: join(f.Node.Path, m.Key), Message: "unknown key" + hint, Warning: warning})
}

// List joins names for a message.
func List(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// Suggest returns `; did you mean "…"?` with the nearest of the known names, or nothing if none is
// near.
func Suggest(name string, known []string) string {
	const longest = 100 // comparing takes time in proportion to the length
	if len(name) > longest {
		return ""
	}
	best, bestScore := "", 0.0
	for _, k := range known {
		if score := levenshtein.Similarity(strings.ToLower(name), strings.ToLower(k), nil); score > bestScore {
			best, bestScore = k, score
		}
	}
	if bestScore < 0.5 {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// Snake turns camelCase into snake_case.
func Snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}
