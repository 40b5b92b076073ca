package web

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// logSpan is a part of a log, in one of the few colours that a log may have.
type logSpan struct {
	span
	Class string
}

// sgr matches the terminal's sequences for the look of the text that follows.
var sgr = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// styled splits a log: colours of the text, bold and dim become classes, and other attributes are
// left out. It shows every other escape as the text that it is.
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

// classOfSGR returns the class after a sequence. known is false for other sequences. Bright colours
// are shown as the others are.
func classOfSGR(class, parameters string) (next string, known bool) {
	all := strings.Split(parameters, ";")
	for i := 0; i < len(all); i++ {
		n, err := strconv.Atoi("0" + all[i])
		if 90 <= n && n <= 97 {
			n -= 60
		}
		switch {
		case err != nil || n > 107:
			return "", false
		case n == 0:
			class = ""
		case n == 1, n == 2, 31 <= n && n <= 36:
			class = strings.TrimSpace(without(class, n) + " a" + strconv.Itoa(n))
		case n == 22:
			class = without(without(class, 1), 2)
		case n == 30, n == 37, n == 39:
			class = without(class, 31)
		case n == 38 || n == 48: // a colour from a table of 256, or by its components
			if i++; i < len(all) && all[i] == "5" {
				i++
			} else {
				i += 3
			}
		}
	}
	return class, true
}

// without removes a look from a class. For a colour it removes any.
func without(class string, n int) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(class), func(one string) bool {
		return one == "a"+strconv.Itoa(n) || n > 30 && strings.HasPrefix(one, "a3")
	}), " ")
}
