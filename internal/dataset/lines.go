package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/evalrun/evalrun/internal/input"
)

// openLines reads JSON Lines: an object on each line. Empty lines are passed over.
func (f *file) openLines() error {
	source := f.bytes()
	lines := bufio.NewScanner(source)
	lines.Buffer(nil, maxRow)
	f.next = func() (*input.Node, error) {
		for {
			source.row()
			if !lines.Scan() {
				return nil, f.lineProblem(lines.Err())
			}
			f.line++
			if len(bytes.TrimSpace(lines.Bytes())) > 0 {
				return f.object(lines.Bytes())
			}
		}
	}
	return nil
}

func (f *file) object(text []byte) (*input.Node, error) {
	row, err := input.ParseWrittenJSON(f.name, text)
	var p input.Problem
	if errors.As(err, &p) {
		p.Line = f.line
		return nil, p
	}
	if err != nil {
		return nil, err
	}
	if row.Kind != input.Object {
		return nil, f.problem(f.line, row.Column, "expected an object on each line, got %s", row.Kind)
	}
	moveTo(row, f.line)
	return row, nil
}

// moveTo moves a document that was parsed by itself to its line in the file.
func moveTo(n *input.Node, line int) {
	n.Line = line
	for _, item := range n.Items {
		moveTo(item, line)
	}
	for i := range n.Members {
		n.Members[i].Line = line
		moveTo(n.Members[i].Value, line)
	}
}

func (f *file) lineProblem(err error) error {
	switch {
	case err == nil:
		return io.EOF
	case errors.Is(err, errLong), errors.Is(err, bufio.ErrTooLong):
		return f.last(f.problem(f.line+1, 1, "a line is longer than %d MiB", maxRow>>20))
	}
	return err
}
