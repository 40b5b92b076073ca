package tasks

import (
	"bytes"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/evalrun/evalrun/internal/input"
)

const (
	// maxDepth is how deep a document may nest, as in package input.
	maxDepth = 512
	// maxPath is how long the path of a value may be. Every value keeps its own, so a long key over
	// many values would take much more memory than the file.
	maxPath = 1024
	// maxTOML bounds a document: the decoder takes time in proportion to the square of the keys of
	// a table, 3 s here.
	maxTOML = 256 << 10
)

// parseTOML reads a TOML document into the tree that package input makes of JSON and YAML. Whole
// numbers keep their value, floats their literal; what JSON has no value for (dates, inf, nan) is a
// string. The error is an [input.Problem].
func parseTOML(file string, data []byte) (*input.Node, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(data) > maxTOML {
		return nil, input.Problem{File: file, Message: fmt.Sprintf("larger than %d bytes", maxTOML)}
	}
	b := &tomlBuilder{file: file, data: data, index: map[*input.Node]map[string]*input.Node{}, column: 1}
	for i, c := range data {
		if c == '\n' {
			b.newlines = append(b.newlines, i)
		}
	}
	// The decoder knows all rules of the language, such as that a table is defined once; the parser
	// below has the places and leaves most rules to the decoder.
	var discarded map[string]any
	if err := toml.Unmarshal(data, &discarded); err != nil {
		return nil, b.syntax(err)
	}
	b.root = b.object("", 0)
	table := tomlTable{node: b.root}
	p := unstable.Parser{}
	p.Reset(data)
	for p.NextExpression() {
		var err error
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table, err = b.header(e)
		case unstable.KeyValue:
			err = b.keyValue(table, e)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.Error(); err != nil {
		return nil, b.syntax(err)
	}
	return b.root, nil
}

type tomlBuilder struct {
	file     string
	data     []byte
	newlines []int
	root     *input.Node
	// index finds the members of an object by name.
	index map[*input.Node]map[string]*input.Node
	// column is that of the byte at offset last, from where the next one is counted if it is in the
	// same line.
	last, column int
}

// tomlTable is an object and how deep it lies.
type tomlTable struct {
	node  *input.Node
	depth int
}

// header enters the table of [a.b] or adds one to the array of [[a.b]].
func (b *tomlBuilder) header(e *unstable.Node) (tomlTable, error) {
	keys := keysOf(e)
	// The brackets stand before the first key.
	start := int(keys[0].Raw.Offset)
	for start > 0 && strings.IndexByte(" \t[", b.data[start-1]) >= 0 {
		start--
	}
	for b.data[start] != '[' {
		start++
	}
	t := tomlTable{node: b.root}
	for i, key := range keys {
		t.depth++
		name := string(key.Data)
		path, err := b.path(t, name, start)
		if err != nil {
			return t, err
		}
		next := b.index[t.node][name]
		if i == len(keys)-1 && e.Kind == unstable.ArrayTable {
			if next == nil {
				next = b.node(input.Array, path, start)
				b.add(t.node, name, key, next)
			}
			item := b.object(next.Path+"["+strconv.Itoa(len(next.Items))+"]", start)
			next.Items = append(next.Items, item)
			return tomlTable{node: item, depth: t.depth + 1}, nil
		}
		if next == nil {
			next = b.object(path, start)
			b.add(t.node, name, key, next)
		}
		if next.Kind == input.Array { // a table below the last one of an array of tables
			t.depth++
			next = next.Items[len(next.Items)-1]
		}
		t.node = next
	}
	return t, nil
}

// keyValue adds a.b = value to a table.
func (b *tomlBuilder) keyValue(t tomlTable, e *unstable.Node) error {
	keys := keysOf(e)
	for _, key := range keys[:len(keys)-1] {
		t.depth++
		name := string(key.Data)
		path, err := b.path(t, name, int(key.Raw.Offset))
		if err != nil {
			return err
		}
		next := b.index[t.node][name]
		if next == nil {
			next = b.object(path, int(key.Raw.Offset))
			b.add(t.node, name, key, next)
		}
		t.node = next
	}
	last := keys[len(keys)-1]
	name := string(last.Data)
	// An array has no place in the parser's tree, so the value's is found behind the equals sign.
	start := int(last.Raw.Offset + last.Raw.Length)
	start += bytes.IndexByte(b.data[start:], '=') + 1
	for b.data[start] == ' ' || b.data[start] == '\t' {
		start++
	}
	path, err := b.path(t, name, int(last.Raw.Offset))
	if err != nil {
		return err
	}
	value, err := b.value(e.Value(), path, start, t.depth+1)
	if err != nil {
		return err
	}
	b.add(t.node, name, last, value)
	return nil
}

// value makes a node of a value that starts at an offset.
func (b *tomlBuilder) value(e *unstable.Node, path string, start, depth int) (*input.Node, error) {
	if depth > maxDepth {
		return nil, b.tooDeep(start)
	}
	switch e.Kind {
	case unstable.Array:
		n := b.node(input.Array, path, start)
		for it := e.Children(); it.Next(); {
			child := it.Node()
			at := start // of an array in an array only the outer one's place is known
			if child.Raw.Length > 0 {
				at = int(child.Raw.Offset)
			}
			item, err := b.value(child, path+"["+strconv.Itoa(len(n.Items))+"]", at, depth+1)
			if err != nil {
				return nil, err
			}
			n.Items = append(n.Items, item)
		}
		return n, nil
	case unstable.InlineTable:
		n := b.object(path, start)
		for it := e.Children(); it.Next(); {
			if err := b.keyValue(tomlTable{node: n, depth: depth}, it.Node()); err != nil {
				return nil, err
			}
		}
		return n, nil
	}
	n := b.node(input.String, path, start)
	n.Text = string(e.Data)
	switch e.Kind {
	case unstable.Bool:
		n.Kind = input.Bool
	case unstable.Integer:
		if i, ok := new(big.Int).SetString(n.Text, 0); ok {
			n.Kind, n.Text = input.Number, i.String()
		}
	case unstable.Float:
		if !strings.HasSuffix(n.Text, "inf") && !strings.HasSuffix(n.Text, "nan") {
			n.Kind, n.Text = input.Number, strings.TrimPrefix(strings.ReplaceAll(n.Text, "_", ""), "+")
		}
	}
	return n, nil
}

func (b *tomlBuilder) node(kind input.Kind, path string, offset int) *input.Node {
	line, column := b.position(offset)
	return &input.Node{Kind: kind, File: b.file, Line: line, Column: column, Path: path}
}

func (b *tomlBuilder) object(path string, offset int) *input.Node {
	n := b.node(input.Object, path, offset)
	b.index[n] = map[string]*input.Node{}
	return n
}

func (b *tomlBuilder) add(parent *input.Node, name string, key *unstable.Node, value *input.Node) {
	line, column := b.position(int(key.Raw.Offset))
	parent.Members = append(parent.Members, input.Member{Key: name, Line: line, Column: column, Value: value})
	b.index[parent][name] = value
}

// path is that of a member of a table. A document that nests too deep is refused here and in value.
func (b *tomlBuilder) path(t tomlTable, name string, offset int) (string, error) {
	path := join(t.node.Path, name)
	if t.depth > maxDepth {
		return "", b.tooDeep(offset)
	}
	if len(path) > maxPath {
		line, column := b.position(offset)
		return "", input.Problem{File: b.file, Line: line, Column: column, Message: fmt.Sprintf("the key and those above it are longer than %d bytes", maxPath)}
	}
	return path, nil
}

// position turns an offset into a line and a column in characters, both from 1.
func (b *tomlBuilder) position(offset int) (line, column int) {
	before, _ := slices.BinarySearch(b.newlines, offset)
	start, column := 0, 1
	if before > 0 {
		start = b.newlines[before-1] + 1
	}
	if start <= b.last && b.last <= offset {
		start, column = b.last, b.column
	}
	b.last, b.column = offset, column+utf8.RuneCount(b.data[start:offset])
	return before + 1, b.column
}

func (b *tomlBuilder) syntax(err error) input.Problem {
	p := input.Problem{File: b.file, Line: 1, Column: 1, Message: "not valid TOML: " + strings.TrimPrefix(err.Error(), "toml: ")}
	var d *toml.DecodeError
	if errors.As(err, &d) {
		line, column := d.Position() // the column in bytes
		p.Line, p.Column, p.Key = line, column, strings.Join(d.Key(), ".")
		start := 0
		if line > 1 && line-2 < len(b.newlines) {
			start = b.newlines[line-2] + 1
		}
		if end := start + column - 1; end >= start && end <= len(b.data) {
			p.Column = utf8.RuneCount(b.data[start:end]) + 1
		}
	}
	return p
}

func (b *tomlBuilder) tooDeep(offset int) input.Problem {
	line, column := b.position(offset)
	return input.Problem{File: b.file, Line: line, Column: column, Message: fmt.Sprintf("nested deeper than %d levels", maxDepth)}
}

// keysOf returns the parts of a dotted key.
func keysOf(e *unstable.Node) []*unstable.Node {
	var keys []*unstable.Node
	for it := e.Key(); it.Next(); {
		keys = append(keys, it.Node())
	}
	return keys
}

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
