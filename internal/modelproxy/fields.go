package modelproxy

import (
	"bytes"
	"encoding/json"
)

const (
	// maxDepth is how deep a text may be nested. A text that is nested deeper cannot be read.
	maxDepth = 1000
	// maxPath is how long the name of a wanted member can be.
	maxPath = 64
)

// fields picks a few members out of a JSON text that passes in pieces, and drops the rest: bodies
// may be huge, and the wanted members are often at the end. A member is named by the keys that lead
// to it, joined by dots; arrays on the way add nothing. If several members have one name, the last
// that is not null counts. The text is not validated: invalid JSON gives invalid values, in bounded
// memory.
type fields struct {
	// wanted says how many bytes to keep of each member.
	wanted map[string]int
	// ended is set when the outermost object or array has been closed. Anything after it is not
	// read.
	ended bool

	values map[string][]byte
	// open holds the open brackets. path is the name of the current member. starts has the
	// positions in path where the key of each open object begins.
	open   []byte
	path   []byte
	starts []int

	inString, escaped bool
	// inKey is set in a key, expectKey where one may begin, expectValue after its colon.
	inKey, expectKey, expectValue bool
	// name is the member that is being kept; empty if none is. kept is its value so far, and depth
	// is the depth at which it began.
	name  string
	limit int
	kept  []byte
	depth int
}

// reset prepares for another text.
func (f *fields) reset() {
	clear(f.values)
	f.open, f.path, f.starts, f.kept = f.open[:0], f.path[:0], f.starts[:0], f.kept[:0]
	f.ended, f.inString, f.escaped, f.inKey, f.expectKey, f.expectValue, f.name =
		false, false, false, false, false, false, ""
}

// value returns a member. It is nil if the member was missing, was null, or is longer than the part
// that was kept.
func (f *fields) value(name string) json.RawMessage {
	if v := f.values[name]; json.Valid(v) {
		return v
	}
	return nil
}

// text returns a member that is a string.
func (f *fields) text(name string) string {
	var s string
	_ = json.Unmarshal(f.values[name], &s) // a value that is not a string is empty
	return s
}

// isFilled reports whether a member is an array that is not empty.
func (f *fields) isFilled(name string) bool {
	rest, ok := bytes.CutPrefix(f.values[name], []byte("["))
	rest = bytes.TrimSpace(rest)
	return ok && len(rest) > 0 && rest[0] != ']'
}

// write reads a piece of the text.
func (f *fields) write(p []byte) {
	for len(p) > 0 && len(f.open) <= maxDepth && !f.ended {
		if f.inString {
			n := f.string(p)
			p = p[n:]
			continue
		}
		c := p[0]
		p = p[1:]
		switch c {
		case '"':
			f.inString, f.inKey = true, f.expectKey
			f.begin()
		case '{', '[':
			f.begin()
			f.open = append(f.open, c)
			if c == '{' {
				f.starts = append(f.starts, len(f.path))
			}
			f.expectKey = c == '{'
		case '}', ']':
			f.close(c)
		case ',':
			f.finish()
			f.expectKey = len(f.open) > 0 && f.open[len(f.open)-1] == '{'
		case ':':
			f.expectKey, f.expectValue = false, true
		case ' ', '\t', '\r', '\n':
		default:
			f.begin()
		}
		f.keep(c)
	}
}

// string reads on in a string or key, and returns how many bytes of p it took.
func (f *fields) string(p []byte) int {
	n := 0
	for n < len(p) && f.inString {
		c := p[n]
		n++
		switch {
		case f.escaped:
			f.escaped = false
		case c == '\\':
			f.escaped = true
		case c == '"':
			f.inString = false
		}
	}
	if f.inKey {
		key := p[:n]
		if !f.inString {
			key, f.inKey = p[:n-1], false
		}
		if room := maxPath - len(f.path); room > 0 {
			f.path = append(f.path, key[:min(room, len(key))]...)
		}
	}
	f.keep(p[:n]...)
	return n
}

// begin is called where a value or a key may begin.
func (f *fields) begin() {
	if f.inKey { // this key replaces the key of the member before
		start := f.starts[len(f.starts)-1]
		f.path = f.path[:start]
		if start > 0 && start < maxPath {
			f.path = append(f.path, '.')
		}
	}
	if !f.expectValue {
		return
	}
	f.expectValue = false
	if f.name != "" {
		return
	}
	if limit, ok := f.wanted[string(f.path)]; ok {
		f.name, f.limit, f.depth, f.kept = string(f.path), limit, len(f.open), f.kept[:0]
	}
}

// close is called for a closing bracket.
func (f *fields) close(c byte) {
	f.finish()
	if len(f.open) == 0 || f.open[len(f.open)-1] != c-2 { // { and } are two apart in ASCII, as are [ and ]
		f.open = append(f.open, make([]byte, maxDepth+1)...) // this is not JSON: read no further
		return
	}
	f.open = f.open[:len(f.open)-1]
	if c == '}' {
		f.path = f.path[:f.starts[len(f.starts)-1]]
		f.starts = f.starts[:len(f.starts)-1]
	}
	f.expectKey = false
	f.ended = f.ended || len(f.open) == 0
}

// finish ends the value that is being kept, if it ends here.
func (f *fields) finish() {
	if f.name == "" || len(f.open) != f.depth {
		return
	}
	if kept := bytes.TrimSpace(f.kept); string(kept) != "null" {
		if f.values == nil {
			f.values = map[string][]byte{}
		}
		f.values[f.name] = bytes.Clone(kept)
	}
	f.name = ""
}

// keep keeps a piece of the value.
func (f *fields) keep(p ...byte) {
	if f.name == "" {
		return
	}
	if room := f.limit - len(f.kept); room > 0 {
		f.kept = append(f.kept, p[:min(room, len(p))]...)
	}
}
