package dataset

import (
	"bufio"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/internal/input"
)

// openCSV reads the header of a CSV file as RFC 4180 has it: separated by commas, or by another
// character, with the names of the columns in the first line. Every cell is a string.
func (f *file) openCSV(separator rune) error {
	source := f.bytes()
	source.row()
	text := bufio.NewReader(&lineEnds{r: source})
	switch start, _ := text.Peek(3); { // an error comes again with the first row
	case strings.HasPrefix(string(start), "\xff\xfe"), strings.HasPrefix(string(start), "\xfe\xff"):
		return f.problem(1, 1, "expected UTF-8 text, got UTF-16; save it as CSV in UTF-8")
	case string(start) == "\xef\xbb\xbf":
		_, _ = text.Discard(len(start)) // it has been peeked
	}
	r := csv.NewReader(text)
	r.Comma = separator
	r.FieldsPerRecord = -1 // counted here, for a message that helps
	r.ReuseRecord = true
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return f.problem(1, 1, "the file is empty; expected the names of the columns in the first line")
	}
	if err != nil {
		return f.csvProblem(err)
	}
	f.columns, f.line = slices.Clone(header), 1
	for i, name := range f.columns {
		line, column := r.FieldPos(i)
		switch {
		case !utf8.ValidString(name):
			return f.problem(line, column, "expected UTF-8 text, got bytes that are not UTF-8")
		case strings.TrimSpace(name) == "":
			return f.problem(line, column, "column %d has no name; expected the names of the columns in the first line", i+1)
		case slices.Contains(f.columns[:i], name):
			return f.problem(line, column, "two columns have the name %q", name)
		}
	}
	word, others := "commas", ";\t|"
	if separator == '\t' {
		word, others = "tabs", ",;|"
	}
	if name := f.columns[0]; len(f.columns) == 1 && strings.ContainsAny(name, others) {
		return f.problem(1, 1,
			"expected cells that are separated by %s, got one column with the name %q; save the file with %[1]s",
			word, name)
	}
	f.next = func() (*input.Node, error) {
		source.row()
		return f.csvRow(r)
	}
	return nil
}

// lineEnds keeps line ends within quotes as they are. Package csv removes one carriage return
// before each of them, so lineEnds doubles it.
type lineEnds struct {
	r      io.Reader
	quoted bool
	last   byte
	// ready are bytes that were read and not yet returned.
	ready, buffer []byte
}

func (l *lineEnds) Read(p []byte) (n int, err error) {
	if len(l.ready) == 0 {
		err = l.fill(len(p))
	}
	n = copy(p, l.ready)
	l.ready = l.ready[n:]
	return n, err
}

// fill reads at most that many bytes.
func (l *lineEnds) fill(most int) error {
	l.buffer = slices.Grow(l.buffer[:0], 3*most)
	n, err := l.r.Read(l.buffer[2*most : 3*most])
	l.ready = l.buffer[:0]
	for _, b := range l.buffer[2*most : 2*most+n] {
		switch {
		case b == '"':
			l.quoted = !l.quoted
		case b == '\n' && l.last == '\r' && l.quoted:
			l.ready = append(l.ready, '\r')
		}
		l.ready, l.last = append(l.ready, b), b
	}
	if len(l.ready) > most { // the rest is still to be given
		return nil
	}
	return err
}

func (f *file) csvRow(r *csv.Reader) (*input.Node, error) {
	cells, err := r.Read()
	if err != nil {
		return nil, f.csvProblem(err)
	}
	line, column := r.FieldPos(0)
	f.line = line
	if len(cells) != len(f.columns) {
		return nil, f.problem(line, column,
			"expected as many cells as there are columns, %d, got %d", len(f.columns), len(cells))
	}
	row := &input.Node{Kind: input.Object, File: f.name, Line: line, Column: column,
		Members: make([]input.Member, len(cells))}
	for i, cell := range cells {
		line, column := r.FieldPos(i)
		if !utf8.ValidString(cell) {
			p := f.problem(line, column, "expected UTF-8 text, got bytes that are not UTF-8")
			p.Key = f.columns[i]
			return nil, p
		}
		row.Members[i] = input.Member{Key: f.columns[i], Line: line, Column: column,
			Value: &input.Node{Kind: input.String, File: f.name, Line: line, Column: column, Path: f.columns[i], Text: cell}}
	}
	return row, nil
}

// csvProblem puts an error of package csv about a row into plain words. io.EOF stays as it is.
func (f *file) csvProblem(err error) error {
	const rule = `a cell that begins with a quote ends with one, and a quote in a cell is written twice ("") in a cell in quotes`
	var wrong *csv.ParseError
	switch {
	case errors.Is(err, errLong):
		return f.last(f.problem(f.line+1, 1, "a row is longer than %d MiB; is a quote not closed?", maxRow>>20))
	case errors.As(err, &wrong) && wrong.Line > wrong.StartLine:
		return f.last(f.problem(wrong.Line, wrong.Column,
			"the quotes are wrong in the row that begins in line %d; %s", wrong.StartLine, rule))
	case wrong != nil:
		return f.problem(wrong.Line, wrong.Column, "the quotes are wrong; %s", rule)
	}
	return err
}
