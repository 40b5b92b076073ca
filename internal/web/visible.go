package web

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// span is a part of a text that somebody else wrote: ordinary text, or the name of one character
// that would act on whoever reads it.
type span struct {
	Text    string
	Control bool
}

// visible splits a text so that characters that are invisible, or would change the direction of
// writing, can be shown by name.
func visible(text string) []span {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if !strings.ContainsFunc(text, acts) {
		return []span{{Text: strings.ToValidUTF8(text, "\uFFFD")}}
	}
	var out []span
	from := 0
	for i, r := range text {
		if !acts(r) {
			continue
		}
		if from < i {
			out = append(out, span{Text: text[from:i]})
		}
		name := "\uFFFD" // it stands for a byte that is not UTF-8
		if r != utf8.RuneError {
			name = nameOf(r)
			from = i + utf8.RuneLen(r)
		} else if _, size := utf8.DecodeRuneInString(text[i:]); size > 0 {
			from = i + size
		}
		out = append(out, span{Text: name, Control: true})
	}
	if from < len(text) {
		out = append(out, span{Text: text[from:]})
	}
	return out
}

// plain makes a text for a title or an attribute, which cannot mark anything.
func plain(text string) string {
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if acts(r) {
			return '\uFFFD'
		}
		return r
	}, text), "\uFFFD")
}

// acts reports whether a character is invisible, is a control character other than a line end or a
// tab, or changes the direction of writing.
func acts(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < ' ', 0x7f <= r && r <= 0x9f, r == utf8.RuneError:
		return true
	case r < 0xad:
		return false
	}
	return r == 0xad || r == 0x61c || 0x200b <= r && r <= 0x200f ||
		0x2028 <= r && r <= 0x202e || 0x2060 <= r && r <= 0x206f ||
		r == 0xfeff || 0xfff9 <= r && r <= 0xfffb || 0xe0000 <= r && r <= 0xe007f
}

var c0 = strings.Fields("NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US")

func nameOf(r rune) string {
	if int(r) < len(c0) {
		return c0[r]
	}
	return fmt.Sprintf("U+%04X", r)
}

// cut returns the first most characters of a text, and the number of bytes that are left out.
func cut(text string, most int) (string, int) {
	n := 0
	for i := range text {
		if n == most {
			return text[:i], len(text) - i
		}
		n++
	}
	return text, 0
}
