package web

import (
	"strings"
	"testing"
)

func TestWhatActsIsShownByName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain äöü 日本\n\ttab": "plain äöü 日本\n\ttab",
		"a\x1b[31mred":        "a<ESC>[31mred",
		"\u202egnp.exe":       "<U+202E>gnp.exe",
		"zero\u200bwidth":     "zero<U+200B>width",
		"\ufeffbom":           "<U+FEFF>bom",
		"bad \xff byte":       "bad <\uFFFD> byte",
		"line\r\nend\rback":   "line\nend<CR>back",
		"\u0085next":          "<U+0085>next",
		"tag \U000e0041":      "tag <U+E0041>",
		"":                    "",
	} {
		var got strings.Builder
		for _, s := range visible(text) {
			if s.Control {
				got.WriteString("<" + s.Text + ">")
			} else {
				got.WriteString(s.Text)
			}
		}
		if got.String() != want {
			t.Errorf("%q: %q, want %q", text, got.String(), want)
		}
		if p := plain(text); strings.ContainsAny(p, "\x1b\u202e\u200b\ufeff\u0085\U000e0041") || strings.Count(p, "")-1 != len([]rune(text)) {
			t.Errorf("%q: %q in an attribute", text, p)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("a\x1b\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range visible(text) {
			if strings.ContainsFunc(s.Text, func(r rune) bool { return acts(r) && r != '\uFFFD' }) {
				t.Errorf("%q has %q", text, s.Text)
			}
		}
	})
}
