package report

import (
	"bufio"
	"fmt"
	"io"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// document writes an indented JSON object piece by piece.
type document struct {
	w *bufio.Writer
	// held is the value that was written last. It is held back until the next piece, so that unclose
	// can open it again.
	held []byte
	err  error
}

func newDocument(w io.Writer) *document { return &document{w: bufio.NewWriterSize(w, 64<<10)} }

// value writes a value and indents its further lines by prefix.
func (d *document) value(v any, prefix string) {
	d.spill()
	if d.err == nil {
		d.held, d.err = indented(v, prefix)
	}
}

// unclose removes the end of the object that was written last, so that more members can follow.
func (d *document) unclose(end string) {
	d.held = d.held[:max(0, len(d.held)-len("\n"+end))]
}

func (d *document) text(s string) {
	d.spill()
	if d.err == nil {
		_, d.err = d.w.WriteString(s)
	}
}

// elementPrefix is how far the elements of an array on the first level are indented.
const elementPrefix = "    "

// element writes one element of an array that stands on the first level.
func (d *document) element(none *bool, v any) {
	d.beginElement(none)
	d.value(v, elementPrefix)
}

func (d *document) beginElement(none *bool) {
	if !*none {
		d.text(",")
	}
	*none = false
	d.text("\n" + elementPrefix)
}

func (d *document) endElements(none bool) {
	if none {
		d.text("]")
	} else {
		d.text("\n  ]")
	}
}

func (d *document) spill() {
	if d.err == nil {
		_, d.err = d.w.Write(d.held)
	}
	d.held = nil
}

func (d *document) flush() error {
	d.spill()
	if d.err != nil {
		return d.err
	}
	return d.w.Flush()
}

// layout is that of encoding/json with indentation and without escapes for HTML.
var layout = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsontext.WithIndent("  "))

// indented writes a value as JSON, with its further lines indented by prefix.
func indented(v any, prefix string) ([]byte, error) {
	text, err := jsonv2.Marshal(v, layout, jsontext.WithIndentPrefix(prefix))
	return inert(text), err
}

// inert escapes what a terminal or a CI log would act on if it showed the JSON text: DEL and the
// control characters above it, which JSON does not escape, and ## as in ##vso[…]. All of them can
// occur only inside strings.
func inert(text []byte) []byte {
	var out []byte
	done := 0
	replace := func(i, n int, r rune) {
		out = fmt.Appendf(append(out, text[done:i]...), `\u%04x`, r)
		done = i + n
	}
	for i := 0; i+1 < len(text); i++ {
		switch c, next := text[i], text[i+1]; {
		case c == '#' && next == '#':
			replace(i, 1, '#')
		case c == 0x7f:
			replace(i, 1, 0x7f)
		case c == 0xc2 && 0x80 <= next && next <= 0x9f:
			replace(i, 2, rune(next))
		}
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}
