package report

import (
	"strings"

	"github.com/evalrun/evalrun/internal/redact"
)

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
