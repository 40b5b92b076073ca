package report

import (
	"fmt"
	"io"
	"strings"
)

// The limits of the table at the end of a run: rows, and characters of a name and of a reason.
const (
	tableRows   = 50
	nameWidth   = 60
	reasonWidth = 160
)

// lines writes text without the blanks that a table leaves at the ends of lines. It keeps the first
// error.
type lines struct {
	w   io.Writer
	buf []byte
	err error
}

func (l *lines) printf(format string, args ...any) { _, _ = fmt.Fprintf(l, format, args...) }

func (l *lines) Write(p []byte) (int, error) {
	for _, b := range p {
		if b == '\n' {
			l.buf = append([]byte(strings.TrimRight(string(l.buf), " ")), '\n')
			if l.err == nil {
				_, l.err = l.w.Write(l.buf)
			}
			l.buf = l.buf[:0]
			continue
		}
		l.buf = append(l.buf, b)
	}
	return len(p), l.err
}
