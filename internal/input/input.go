// Package input reads the documents that people write for evalrun, in JSON or YAML, and keeps the
// position of every value, so that an error can name file, line, key and the expected value.
//
// [Parse] makes a tree of [Node]; a [Reader] walks it and collects every [Problem] instead of
// stopping at the first one. The package knows nothing of eval sets, agents or tasks.
package input

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/redact"
)

// Kind is the JSON type of a node.
type Kind int

// The kinds of a node.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
)

// String returns the kind with its article, as it reads in "expected …, got …".
func (k Kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// Node is one value of a document.
type Node struct {
	Kind Kind
	// File is the name under which the document was parsed; Line and Column count from 1, Column in
	// characters.
	File   string
	Line   int
	Column int
	// Path is the place inside the document, such as evaluations[2].inputs; empty for the root.
	Path string
	// Text is the value of a string, the literal of a number, "true" or "false".
	Text string
	// Items are the elements of an array.
	Items []*Node
	// Members are the members of an object, in the order of the document.
	Members []Member
}

// Member is one member of an object.
type Member struct {
	Key    string
	Line   int
	Column int
	Value  *Node
}

// Parse reads one document: YAML if the file's name ends in .yaml or .yml, JSON otherwise.
// The error, if any, is a [Problem].
func Parse(file string, data []byte) (*Node, error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".yaml", ".yml":
		return parseYAML(file, data)
	}
	return ParseWrittenJSON(file, data)
}

// Member returns the value of the member with this key, or nil.
func (n *Node) Member(key string) *Node {
	if n == nil {
		return nil
	}
	for i := range n.Members {
		if n.Members[i].Key == key {
			return n.Members[i].Value
		}
	}
	return nil
}

// JSON returns the value as compact JSON. Numbers keep their literal. A nil node gives nil.
func (n *Node) JSON() json.RawMessage {
	if n == nil {
		return nil
	}
	var b bytes.Buffer
	n.write(&b)
	return b.Bytes()
}

func (n *Node) write(b *bytes.Buffer) {
	switch n.Kind {
	case Null:
		b.WriteString("null")
	case Bool, Number:
		b.WriteString(n.Text)
	case String:
		writeString(b, n.Text)
	case Array:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b)
		}
		b.WriteByte(']')
	case Object:
		b.WriteByte('{')
		for i, m := range n.Members {
			if i > 0 {
				b.WriteByte(',')
			}
			writeString(b, m.Key)
			b.WriteByte(':')
			m.Value.write(b)
		}
		b.WriteByte('}')
	}
}

func writeString(b *bytes.Buffer, s string) {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)       // a string always encodes
	b.Truncate(b.Len() - 1) // Encode ends with a newline
}

// Problem is one thing in a document that is wrong, or with Warning only strange.
type Problem struct {
	File    string
	Line    int
	Column  int
	Key     string
	Message string
	Warning bool
}

// These are the most characters of a key and of a message that are shown.
const (
	maxKey     = 200
	maxMessage = 1000
)

// Error returns file:line:column: key: message, as one line that is harmless to a terminal and to a
// CI log: the key, and the quotes in the message, were written by somebody else.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(harmless(p.File, len(p.File)))
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", p.Line, p.Column)
	}
	b.WriteString(": ")
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Key != "" {
		b.WriteString(harmless(p.Key, maxKey) + ": ")
	}
	b.WriteString(harmless(p.Message, maxMessage))
	return b.String()
}

// harmless returns a text on one line, cut to a number of characters.
func harmless(s string, most int) string {
	s = strings.NewReplacer("\n", " ", "\t", " ").Replace(redact.Terminal(s))
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}

// Problems are the problems of one or more documents, in the order in which they were found.
type Problems []Problem

// maxShown is how many problems are listed. The same mistake may be in each of a million rows.
const maxShown = 20

// Error lists the problems, one a line, in the order of their places, each once. If there are very
// many it lists the first, and says how many more there are.
func (ps Problems) Error() string {
	ordered := slices.Clone(ps)
	slices.SortStableFunc(ordered, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	ordered = slices.Compact(ordered)
	shown := ordered[:min(len(ordered), maxShown)]
	lines := make([]string, len(shown))
	for i, p := range shown {
		lines[i] = p.Error()
	}
	if more := len(ordered) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return strings.Join(lines, "\n")
}

// Err returns the problems that are not warnings as an error, or nil if there are none.
// With strict, warnings are errors as well.
func (ps Problems) Err(strict bool) error {
	var wrong Problems
	for _, p := range ps {
		if !p.Warning || strict {
			p.Warning = false
			wrong = append(wrong, p)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return wrong
}

// Warnings returns only the warnings.
func (ps Problems) Warnings() Problems {
	var out Problems
	for _, p := range ps {
		if p.Warning {
			out = append(out, p)
		}
	}
	return out
}

// Error is an error in the user's input: an option, a file, an id. Its text is for the person who
// gave it.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error itself, such as the problems of a file.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an [Error].
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }
