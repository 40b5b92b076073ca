package web

import (
	"regexp"
	"strings"
)

// logSpan is a part of a log, in one of the few colours that a log may have.
type logSpan struct {
	span
	Class string
}

// sgr is the terminal's way to say how what follows looks.
var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// styled parts a log: red, green, yellow, blue, bold and dim become classes. Every other escape is
// shown as the text that it is.
func styled(text string) []logSpan {
	var out []logSpan
	class := ""
	add := func(part string) {
		if part == "" {
			return
		}
		for _, s := range visible(part) {
			out = append(out, logSpan{s, class})
		}
	}
	at := 0
	for _, m := range sgr.FindAllStringSubmatchIndex(text, -1) {
		next, known := classOfSGR(class, text[m[2]:m[3]])
		if !known {
			continue
		}
		add(text[at:m[0]])
		at, class = m[1], next
	}
	add(text[at:])
	return out
}

// classOfSGR is the class after a sequence, or that it says something else.
func classOfSGR(class, parameters string) (next string, known bool) {
	for p := range strings.SplitSeq(parameters, ";") {
		switch strings.TrimLeft(p, "0") {
		case "":
			class = ""
		case "1", "2", "31", "32", "33", "34":
			class = strings.TrimSpace(class + " a" + strings.TrimLeft(p, "0"))
		case "22", "39":
			class = ""
		default:
			return "", false
		}
	}
	return class, true
}
