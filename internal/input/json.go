package input

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep a document may nest. Nothing that evalrun reads needs a tenth of it.
const maxDepth = 512

type jsonParser struct {
	file string
	data []byte
	dec  *json.Decoder
	// line and column are the place of the byte at offset at; they only move forward.
	at, line, column int
}

// ParseJSON reads one JSON document, whatever its file is called.
func ParseJSON(file string, data []byte) (*Node, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	p := &jsonParser{file: file, data: data, line: 1, column: 1}
	if !utf8.Valid(data) {
		return nil, p.problem(invalidUTF8(data), "", "expected UTF-8 text, got bytes that are not UTF-8")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, Problem{File: file, Line: 1, Column: 1, Message: "the file is empty; expected a JSON document"}
	}
	p.dec = json.NewDecoder(bytes.NewReader(data))
	p.dec.UseNumber()
	tok, err := p.next()
	if err != nil {
		return nil, err
	}
	root, err := p.value(tok, "", 0)
	if err != nil {
		return nil, err
	}
	rest := int(p.dec.InputOffset())
	for rest < len(data) && isSpace(data[rest]) {
		rest++
	}
	if rest < len(data) {
		return nil, p.problem(rest, "", "expected the end of the file after the document, got more text")
	}
	return root, nil
}

// ParseWrittenJSON reads one JSON document that somebody wrote to be run. Half of a character, as
// in "\ud83d", is a [Problem] there: it would silently become another one.
func ParseWrittenJSON(file string, data []byte) (*Node, error) {
	n, err := ParseJSON(file, data)
	if err != nil {
		return nil, err
	}
	if at := halfCharacter(data); at >= 0 {
		p := &jsonParser{file: file, data: data, line: 1, column: 1}
		return nil, p.problem(at, "",
			fmt.Sprintf("expected whole characters, got half of one, %s; the other half is missing", data[at:at+len(`\uXXXX`)]))
	}
	return n, nil
}

// halfCharacter returns the offset of the first surrogate of a document that stands alone, -1 if
// there is none.
func halfCharacter(data []byte) int {
	unit := func(at int) rune {
		if at+6 > len(data) || data[at] != '\\' || data[at+1] != 'u' {
			return 0
		}
		v, _ := strconv.ParseUint(string(data[at+2:at+6]), 16, 16) // it has been parsed
		return rune(v)
	}
	for at := 0; at < len(data); at++ {
		if data[at] != '\\' {
			continue
		}
		switch r := unit(at); {
		case !utf16.IsSurrogate(r):
			at++ // skips the escaped character
		case utf16.DecodeRune(r, unit(at+6)) == utf8.RuneError:
			return at
		default:
			at += 11
		}
	}
	return -1
}

// token is a JSON token and the offset at which it starts.
type token struct {
	json.Token
	offset int
}

func (p *jsonParser) next() (token, error) {
	start := int(p.dec.InputOffset())
	tok, err := p.dec.Token()
	if err != nil {
		var syntax *json.SyntaxError
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return token{}, p.problem(len(p.data), "", "the document is cut: the file ends inside a value")
		case errors.As(err, &syntax):
			at := max(min(int(p.dec.InputOffset()), len(p.data)), 0)
			for at < len(p.data) && (isSpace(p.data[at]) || p.data[at] == ',' || p.data[at] == ':') {
				at++
			}
			return token{}, p.problem(at, "", "not valid JSON: "+syntax.Error()+p.hint(at))
		}
		return token{}, p.problem(start, "", "not valid JSON: "+err.Error())
	}
	for start < len(p.data) && (isSpace(p.data[start]) || p.data[start] == ',' || p.data[start] == ':') {
		start++
	}
	return token{tok, start}, nil
}

// hint returns advice if the text at an offset is one of the usual mistakes.
func (p *jsonParser) hint(at int) string {
	before, rest := bytes.TrimRight(p.data[:at], " \t\r\n"), p.data[at:]
	switch {
	case bytes.HasSuffix(before, []byte(",")) &&
		(bytes.HasPrefix(rest, []byte("}")) || bytes.HasPrefix(rest, []byte("]"))):
		return "; remove the comma after the last member"
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")), bytes.HasPrefix(rest, []byte("#")):
		return "; JSON has no comments, YAML has"
	case bytes.HasPrefix(rest, []byte("NaN")), bytes.HasPrefix(rest, []byte("Infinity")),
		bytes.HasPrefix(rest, []byte("-Infinity")):
		return "; JSON has only finite numbers, and null"
	case bytes.HasPrefix(rest, []byte("'")):
		return `; strings and keys are in double quotes: "`
	case bytes.HasPrefix(rest, []byte("None")), bytes.HasPrefix(rest, []byte("True")),
		bytes.HasPrefix(rest, []byte("False")):
		return "; JSON has null, true and false"
	}
	return ""
}

func (p *jsonParser) value(tok token, path string, depth int) (*Node, error) {
	n := &Node{File: p.file, Path: path}
	n.Line, n.Column = p.position(tok.offset)
	if depth > maxDepth {
		return nil, p.problem(tok.offset, "", fmt.Sprintf("nested deeper than %d levels", maxDepth))
	}
	switch v := tok.Token.(type) {
	case nil:
		n.Kind = Null
	case bool:
		n.Kind, n.Text = Bool, strconv.FormatBool(v)
	case json.Number:
		n.Kind, n.Text = Number, v.String()
	case string:
		n.Kind, n.Text = String, v
	case json.Delim:
		if v == '[' {
			return n, p.array(n, depth)
		}
		return n, p.object(n, depth)
	}
	return n, nil
}

func (p *jsonParser) array(n *Node, depth int) error {
	n.Kind = Array
	for {
		tok, err := p.next()
		if err != nil {
			return err
		}
		if tok.Token == json.Delim(']') {
			return nil
		}
		item, err := p.value(tok, n.Path+"["+strconv.Itoa(len(n.Items))+"]", depth+1)
		if err != nil {
			return err
		}
		n.Items = append(n.Items, item)
	}
}

func (p *jsonParser) object(n *Node, depth int) error {
	n.Kind = Object
	seen := map[string]bool{}
	for {
		key, err := p.next()
		if err != nil {
			return err
		}
		if key.Token == json.Delim('}') {
			return nil
		}
		name := key.Token.(string) // the decoder accepts nothing else here
		if seen[name] {
			return p.problem(key.offset, join(n.Path, name), "the key is given twice")
		}
		seen[name] = true
		line, column := p.position(key.offset)
		tok, err := p.next()
		if err != nil {
			return err
		}
		value, err := p.value(tok, join(n.Path, name), depth+1)
		if err != nil {
			return err
		}
		n.Members = append(n.Members, Member{Key: name, Line: line, Column: column, Value: value})
	}
}

// position turns an offset into line and column. Offsets come in ascending order, so the whole file
// is counted once.
func (p *jsonParser) position(offset int) (line, column int) {
	if offset < p.at {
		p.at, p.line, p.column = 0, 1, 1
	}
	for ; p.at < offset; p.at++ {
		switch {
		case p.data[p.at] == '\n':
			p.line++
			p.column = 1
		case utf8.RuneStart(p.data[p.at]):
			p.column++
		}
	}
	return p.line, p.column
}

func (p *jsonParser) problem(offset int, key, message string) Problem {
	line, column := p.position(offset)
	return Problem{File: p.file, Line: line, Column: column, Key: key, Message: message}
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(data)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// join appends a key to a path.
func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
