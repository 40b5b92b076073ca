package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"

	"github.com/evalrun/evalrun/internal/input"
)

const (
	// maxDepth is how deep a document may nest, as in package input.
	maxDepth = 512
	// maxPath is the greatest length of a value's path. Every value keeps its own, so a long key over
	// many values would take much more memory than the file.
	maxPath = 1024
)

// errLost says that a document is no TOML, or that the index does not understand it.
var errLost = errors.New("not TOML")

// tomlIndex finds the places of the keys and values of a document. It makes the tree of the
// document, in which every scalar is a string with its literal; strings have no text yet.
//
// It assumes that the document is valid. For an invalid one it may make any tree, or return
// errLost.
type tomlIndex struct {
	file string
	data []byte
	at   int // the offset of the next byte
	root *input.Node
	// members finds the members of an object by name.
	members map[*input.Node]map[string]*input.Node
	// inline are the tables and arrays between brackets, to which nothing further on may add. The
	// decoder accepts some such additions.
	inline   map[*input.Node]bool
	newlines []int
	// column is the column of the byte at offset last, from which the next one is counted if it is in
	// the same line.
	last, column int
}

// tomlTable is an object and how deep it lies.
type tomlTable struct {
	node  *input.Node
	depth int
}

// tomlKey is one part of a dotted key.
type tomlKey struct {
	name string
	at   int
}

func newTOMLIndex(file string, data []byte) *tomlIndex {
	x := &tomlIndex{file: file, data: data,
		members: map[*input.Node]map[string]*input.Node{}, inline: map[*input.Node]bool{}, column: 1}
	for i, c := range data {
		if c == '\n' {
			x.newlines = append(x.newlines, i)
		}
	}
	x.root = x.object("", 0)
	return x
}

// document reads the whole document. The error is errLost, or an [input.Problem] if a limit is
// exceeded.
func (x *tomlIndex) document() error {
	table := tomlTable{node: x.root}
	for x.skip(true); x.at < len(x.data); x.skip(true) {
		var err error
		if x.next() == '[' {
			table, err = x.header()
		} else {
			err = x.keyValue(table)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// header enters the table of [a.b] or adds one to the array of [[a.b]].
func (x *tomlIndex) header() (tomlTable, error) {
	start := x.at
	x.at++
	array := x.next() == '['
	if array {
		x.at++
	}
	keys, err := x.key()
	if err != nil {
		return tomlTable{}, err
	}
	if !x.take(']') || array && !x.take(']') {
		return tomlTable{}, errLost
	}
	t := tomlTable{node: x.root}
	for i, key := range keys {
		t.depth++
		path, err := x.path(t, key.name, start)
		if err != nil {
			return t, err
		}
		next := x.members[t.node][key.name]
		if x.inline[next] {
			return t, x.complete(next, key.at)
		}
		if i == len(keys)-1 && array {
			if next == nil {
				next = x.node(input.Array, path, start)
				x.add(t.node, key, next)
			}
			item := x.object(next.Path+"["+strconv.Itoa(len(next.Items))+"]", start)
			next.Items = append(next.Items, item)
			return tomlTable{node: item, depth: t.depth + 1}, nil
		}
		if next == nil {
			next = x.object(path, start)
			x.add(t.node, key, next)
		}
		if next.Kind == input.Array && len(next.Items) > 0 { // a table below the last one of an array of tables
			t.depth++
			next = next.Items[len(next.Items)-1]
		}
		if next.Kind != input.Object {
			return t, errLost
		}
		t.node = next
	}
	return t, nil
}

// keyValue adds a.b = value to a table.
func (x *tomlIndex) keyValue(t tomlTable) error {
	keys, err := x.key()
	if err != nil {
		return err
	}
	if !x.take('=') {
		return errLost
	}
	x.skip(false)
	for _, key := range keys[:len(keys)-1] {
		t.depth++
		path, err := x.path(t, key.name, key.at)
		if err != nil {
			return err
		}
		next := x.members[t.node][key.name]
		if next == nil {
			next = x.object(path, key.at)
			x.add(t.node, key, next)
		}
		if x.inline[next] {
			return x.complete(next, key.at)
		}
		if next.Kind != input.Object {
			return errLost
		}
		t.node = next
	}
	last := keys[len(keys)-1]
	path, err := x.path(t, last.name, last.at)
	if err != nil {
		return err
	}
	value, err := x.value(path, t.depth+1)
	if err != nil {
		return err
	}
	x.add(t.node, last, value)
	return nil
}

// key reads a dotted key.
func (x *tomlIndex) key() (keys []tomlKey, err error) {
	for {
		x.skip(false)
		key := tomlKey{at: x.at}
		switch x.next() {
		case '"', '\'':
			if err := x.quoted(); err != nil {
				return nil, err
			}
			var one map[string]string
			if toml.Unmarshal(slices.Concat([]byte("key = "), x.data[key.at:x.at]), &one) != nil {
				return nil, errLost
			}
			key.name = one["key"]
		default:
			for x.at < len(x.data) && bareKey(x.data[x.at]) {
				x.at++
			}
			if x.at == key.at {
				return nil, errLost
			}
			key.name = string(x.data[key.at:x.at])
		}
		if keys = append(keys, key); len(keys) > maxDepth+1 {
			return nil, x.tooDeep(keys[0].at)
		}
		if x.skip(false); x.next() != '.' {
			return keys, nil
		}
		x.at++
	}
}

func bareKey(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// value makes a node of the value that starts here.
func (x *tomlIndex) value(path string, depth int) (*input.Node, error) {
	start := x.at
	if depth > maxDepth {
		return nil, x.tooDeep(start)
	}
	switch x.next() {
	case '[':
		n := x.node(input.Array, path, start)
		defer func() { x.inline[n] = true }()
		return n, x.list(']', func() error {
			item, err := x.value(path+"["+strconv.Itoa(len(n.Items))+"]", depth+1)
			n.Items = append(n.Items, item)
			return err
		})
	case '{':
		n := x.object(path, start)
		defer func() { x.inline[n] = true }()
		return n, x.list('}', func() error { return x.keyValue(tomlTable{node: n, depth: depth}) })
	case '"', '\'':
		return x.node(input.String, path, start), x.quoted()
	}
	n := x.node(input.String, path, start)
	for x.at < len(x.data) && !bytes.ContainsRune([]byte(",]}#\r\n"), rune(x.data[x.at])) {
		x.at++
	}
	n.Text = strings.TrimRight(string(x.data[start:x.at]), " \t")
	if n.Text == "" {
		return nil, errLost
	}
	return n, nil
}

// list reads the elements between brackets, with commas between them.
func (x *tomlIndex) list(end byte, element func() error) error {
	x.at++
	for {
		if x.skip(true); x.take(end) {
			return nil
		}
		if err := element(); err != nil {
			return err
		}
		x.skip(true)
		if !x.take(',') && x.next() != end {
			return errLost
		}
	}
}

// quoted skips to the end of a string, of one line or of several.
func (x *tomlIndex) quoted() error {
	quote := x.data[x.at : x.at+1]
	if three := bytes.Repeat(quote, 3); bytes.HasPrefix(x.data[x.at:], three) {
		quote = three
	}
	x.at += len(quote)
	for !bytes.HasPrefix(x.data[x.at:], quote) {
		if x.next() == '\\' && quote[0] == '"' {
			x.at++
		}
		if x.at++; x.at >= len(x.data) {
			x.at = len(x.data)
			return errLost
		}
	}
	x.at += len(quote)
	for range len(quote) - 1 { // one or two quotes may stand before the three that end it
		x.take(quote[0])
	}
	return nil
}

// skip skips spaces, and comments and the ends of lines if they may stand there.
func (x *tomlIndex) skip(lines bool) {
	for x.at < len(x.data) {
		switch c := x.data[x.at]; {
		case c == ' ' || c == '\t' || lines && (c == '\n' || c == '\r'):
			x.at++
		case lines && c == '#':
			for x.at < len(x.data) && x.data[x.at] != '\n' {
				x.at++
			}
		default:
			return
		}
	}
}

// next returns the next byte, 0 at the end.
func (x *tomlIndex) next() byte {
	if x.at >= len(x.data) {
		return 0
	}
	return x.data[x.at]
}

// take skips the next byte if it is c.
func (x *tomlIndex) take(c byte) bool {
	if x.at >= len(x.data) || x.data[x.at] != c {
		return false
	}
	x.at++
	return true
}

func (x *tomlIndex) node(kind input.Kind, path string, offset int) *input.Node {
	line, column := x.position(offset)
	return &input.Node{Kind: kind, File: x.file, Line: line, Column: column, Path: path}
}

func (x *tomlIndex) object(path string, offset int) *input.Node {
	n := x.node(input.Object, path, offset)
	x.members[n] = map[string]*input.Node{}
	return n
}

func (x *tomlIndex) add(parent *input.Node, key tomlKey, value *input.Node) {
	line, column := x.position(key.at)
	parent.Members = append(parent.Members, input.Member{Key: key.name, Line: line, Column: column, Value: value})
	x.members[parent][key.name] = value
}

// path returns the path of a member of a table. It refuses a document that nests too deep, as value
// does.
func (x *tomlIndex) path(t tomlTable, name string, offset int) (string, error) {
	path := join(t.node.Path, name)
	if t.depth > maxDepth {
		return "", x.tooDeep(offset)
	}
	if len(path) > maxPath {
		return "", x.problem(offset, fmt.Sprintf("the key and those above it are longer than %d bytes", maxPath))
	}
	return path, nil
}

// position turns an offset into a line and a column in characters, both from 1.
func (x *tomlIndex) position(offset int) (line, column int) {
	before, _ := slices.BinarySearch(x.newlines, offset)
	start, column := 0, 1
	if before > 0 {
		start = x.newlines[before-1] + 1
	}
	if start <= x.last && x.last <= offset {
		start, column = x.last, x.column
	}
	x.last, x.column = offset, column+utf8.RuneCount(x.data[start:offset])
	return before + 1, x.column
}

func (x *tomlIndex) complete(n *input.Node, offset int) input.Problem {
	return x.problem(offset,
		fmt.Sprintf("not valid TOML: %s is written between brackets in line %d, which nothing can add to", n.Path, n.Line))
}

func (x *tomlIndex) tooDeep(offset int) input.Problem {
	return x.problem(offset, fmt.Sprintf("nested deeper than %d levels", maxDepth))
}

func (x *tomlIndex) problem(offset int, message string) input.Problem {
	line, column := x.position(offset)
	return input.Problem{File: x.file, Line: line, Column: column, Message: message}
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
