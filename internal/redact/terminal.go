package redact

import (
	"regexp"
	"strings"
	"unicode"
)

var (
	// escapes are the control sequences of ECMA-48: CSI, the strings OSC, DCS, SOS, PM and APC up
	// to their end or the end of the line, and the short ones.
	escapes = regexp.MustCompile("(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]?" +
		"|(?:\x1b[\\]PX^_]|[\u009d\u0090\u0098\u009e\u009f])[^\x07\x1b\u009c\n]*(?:\x07|\x1b\\\\|\u009c)?" +
		"|\x1b[ -/]*[0-~]?")
	// hashes are commands that GitHub, Azure Pipelines and TeamCity find anywhere in a line:
	// ##[error], ##vso[…], ##teamcity[…]. colons are GitHub's ::error::…, which begin a line.
	hashes = regexp.MustCompile(`##(\w*\[)`)
	colons = regexp.MustCompile(`(?m)^(\s*)::`)
)

// Terminal makes a text harmless to a terminal and to a CI log. It removes terminal escapes,
// control characters other than line ends and tabs, and characters that change the direction of
// writing, and breaks the commands of CI systems.
func Terminal(s string) string {
	if isHarmless(s) {
		return s
	}
	s = escapes.ReplaceAllString(strings.ToValidUTF8(s, "\uFFFD"), "")
	s = strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || isDirection(r)) || r == '\u2028' || r == '\u2029' {
			return -1
		}
		return r
	}, s)
	s = hashes.ReplaceAllString(s, "# #$1")
	return colons.ReplaceAllString(s, "$1: :")
}

// Line is Terminal for a text in one line. Line ends become spaces.
func Line(s string) string {
	return strings.Join(strings.Fields(Terminal(s)), " ")
}

// isHarmless recognises most texts that need no change.
func isHarmless(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '#' || c == ':' {
			return false
		}
	}
	return true
}

func isDirection(r rune) bool {
	return r == '\u200e' || r == '\u200f' || '\u202a' <= r && r <= '\u202e' || '\u2066' <= r && r <= '\u2069'
}
