package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/evalrun/evalrun/internal/input"
)

// openArray reads a JSON file that is an array of objects, each of which is a row.
func (f *file) openArray() error {
	source := f.bytes()
	source.row()
	a := &array{f: f, source: source, text: bufio.NewReader(source), line: 1, column: 1}
	if start, _ := a.text.Peek(3); string(start) == "\xef\xbb\xbf" { // an error comes again with the first row
		_, _ = a.text.Discard(len(start)) // it has been peeked
	}
	switch c, err := a.skip(); {
	case errors.Is(err, io.EOF):
		return f.problem(1, 1, "the file is empty; expected an array of objects")
	case err != nil:
		return a.problem(err)
	case c != '[':
		return f.problem(a.line, a.column,
			"expected an array of objects, as a .json data set is; a file with an object on each line is named .jsonl")
	}
	_, _ = a.read() // the bracket
	f.next = a.next
	return nil
}

// array is the text of an array, of which one element is held at a time.
type array struct {
	f      *file
	source *bounded
	text   *bufio.Reader
	// line and column are those of the next byte.
	line, column int
	// begun says that an element was read.
	begun bool
}

func (a *array) read() (byte, error) {
	c, err := a.text.ReadByte()
	switch {
	case err != nil:
	case c == '\n':
		a.line, a.column = a.line+1, 1
	case c&0xC0 != 0x80: // columns count characters
		a.column++
	}
	return c, err
}

// skip passes over white space, and returns the byte that follows without reading it.
func (a *array) skip() (byte, error) {
	for {
		c, err := a.text.ReadByte()
		if err != nil {
			return 0, err
		}
		_ = a.text.UnreadByte() // one byte was read just now
		if !bytes.ContainsRune([]byte(" \t\r\n"), rune(c)) {
			return c, nil
		}
		_, _ = a.read()
	}
}

func (a *array) next() (*input.Node, error) {
	a.source.row()
	c, err := a.skip()
	if err == nil && c == ']' {
		_, _ = a.read()
		if _, err := a.skip(); !errors.Is(err, io.EOF) {
			return nil, a.f.last(a.f.problem(a.line, a.column, "expected the end of the file after the array, got more text"))
		}
		return nil, io.EOF
	}
	if err == nil && a.begun {
		if c != ',' {
			return nil, a.f.last(a.f.problem(a.line, a.column, "expected a comma or the end of the array after an element"))
		}
		_, _ = a.read()
		_, err = a.skip()
	}
	if err != nil {
		return nil, a.problem(err)
	}
	a.begun = true
	line, column := a.line, a.column
	text, err := a.element()
	if err != nil {
		return nil, a.problem(err)
	}
	a.f.line = line
	row, err := input.ParseWrittenJSON(a.f.name, text)
	var p input.Problem
	if errors.As(err, &p) {
		p.Line, p.Column = moved(p.Line, p.Column, line, column)
		return nil, a.f.last(p)
	}
	if err != nil {
		return nil, err
	}
	if row.Kind != input.Object {
		return nil, a.f.problem(line, column, "expected an array of objects, got %s in it", row.Kind)
	}
	move(row, line, column)
	return row, nil
}

// element reads an object or a list to its end, and anything else up to the comma or bracket behind
// it. It does not check whether it is valid: the parser does.
func (a *array) element() ([]byte, error) {
	var text []byte
	depth, quoted, escaped := 0, false, false
	for {
		c, err := a.text.ReadByte()
		if err != nil {
			return nil, err
		}
		_ = a.text.UnreadByte() // one byte was read just now
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == ']'):
			return text, nil
		case c == '}' || c == ']':
			depth--
		}
		_, _ = a.read()
		text = append(text, c)
		if depth == 0 && !quoted && (c == '}' || c == ']') {
			return text, nil
		}
	}
}

// problem says why the file cannot be read on.
func (a *array) problem(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return a.f.last(a.f.problem(a.line, a.column, "the document is cut: the file ends inside the array"))
	case errors.Is(err, errLong):
		return a.f.last(a.f.problem(a.line, a.column, "an element is longer than %d MiB", maxRow>>20))
	}
	return err
}

// move shifts a document that was parsed by itself to its place in the file.
func move(n *input.Node, line, column int) {
	for i := range n.Members {
		n.Members[i].Line, n.Members[i].Column = moved(n.Members[i].Line, n.Members[i].Column, line, column)
		move(n.Members[i].Value, line, column)
	}
	for _, item := range n.Items {
		move(item, line, column)
	}
	n.Line, n.Column = moved(n.Line, n.Column, line, column)
}

// moved returns the place in the file of a place in a document that begins at line and column.
func moved(ownLine, ownColumn, line, column int) (int, int) {
	if ownLine == 1 {
		return line, ownColumn + column - 1
	}
	return ownLine + line - 1, ownColumn
}
