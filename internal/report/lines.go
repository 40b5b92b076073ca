package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/evalrun/evalrun/internal/redact"
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

func tableHead(out *lines, columns ...string) {
	tableRow(out, columns...)
	tableRow(out, strings.Split(strings.Repeat("---,", len(columns)-1)+"---", ",")...)
}

func tableRow(out *lines, cells ...string) { out.printf("| %s |\n", strings.Join(cells, " | ")) }

// markdown escapes a text so that it means only itself, also in a table.
func markdown(s string) string {
	var b strings.Builder
	for _, r := range redact.Line(s) {
		switch r {
		case '&':
			b.WriteString("&amp;")
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '@':
			b.WriteString("&#64;") // an @ would notify somebody
		case '\\', '`', '*', '_', '~', '[', ']', '#', '|', '$':
			b.WriteRune('\\')
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// html escapes a line inside HTML in which Markdown has no meaning.
func html(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "@", "&#64;", "|", "&#124;").Replace(s)
}

// code writes a text in code type. It uses HTML because a pipe in backticks would still end a
// table's cell.
func code(s string) string {
	return "<code>" + strings.NewReplacer(
		"&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "&#124;", "`", "&#96;", "*", "&#42;", "_", "&#95;",
		"[", "&#91;", "]", "&#93;", "~", "&#126;", "$", "&#36;", "\\", "&#92;", "@", "&#64;", ":", "&#58;", "#", "&#35;",
	).Replace(redact.Line(s)) + "</code>"
}
