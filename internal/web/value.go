package web

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// The limits of a value: characters, and texts in it that are shown once more.
const (
	maxValue = 2400
	maxTexts = 5
	longText = 120
)

// textPart is a part of a value: the value as JSON, and its long texts, by their paths, once more
// as text.
type textPart struct {
	Name string
	Text string
	// More counts the bytes that are left out.
	More int
}

// Spans returns the text with its colours, as for a log.
func (p textPart) Spans() []logSpan { return styled(p.Text) }

// valueParts shows a value. It shows only the beginning of a long one.
func valueParts(raw json.RawMessage) []textPart {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if text := stringOf(raw); text != "" {
		begin, more := cut(text, maxValue)
		return []textPart{{"", begin, more}}
	}
	text := string(raw)
	if len(raw) < 64*maxValue {
		text = indented(raw)
	}
	begin, more := cut(text, maxValue)
	out := []textPart{{"", begin, more}}
	if len(raw) > 64<<20 {
		return out
	}
	if v, ok := decode(raw); ok {
		eachText("$", v, func(path, text string) bool {
			begin, more := cut(text, maxValue)
			out = append(out, textPart{path, begin, more})
			return len(out) <= maxTexts
		})
	}
	return out
}

// maxIndented is the depth of the deepest value that is indented: the spaces before a deep value
// are many times its content.
const maxIndented = 40

// indented writes a value as JSON in lines. It leaves a value that is deep, or not JSON, as it is.
func indented(raw json.RawMessage) string {
	var out bytes.Buffer
	if deeper(raw, maxIndented) || json.Indent(&out, raw, "", "  ") != nil {
		return readable(string(raw))
	}
	return readable(out.String())
}

// deeper reports whether a value has more than most levels.
func deeper(raw []byte, most int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > most {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// eachText calls f with each long text in a value and its path, until f returns false.
func eachText(at string, v any, f func(path, text string) bool) bool {
	switch v := v.(type) {
	case string:
		if len(v) > longText || strings.Contains(v, "\n") {
			return f(at, v)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !eachText(at+member(name), v[name], f) {
				return false
			}
		}
	case []any:
		for i, one := range v {
			if !eachText(at+"["+strconv.Itoa(i)+"]", one, f) {
				return false
			}
		}
	}
	return true
}

// readable restores <, > and &, which encoders of JSON write as escapes because of HTML. A page
// escapes them itself.
func readable(text string) string {
	if !strings.Contains(text, `\u00`) {
		return text
	}
	var out strings.Builder
	for {
		i := strings.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:i])
		if i+6 <= len(text) {
			if c, ok := map[string]string{`\u003c`: "<", `\u003e`: ">", `\u0026`: "&"}[strings.ToLower(text[i:i+6])]; ok {
				out.WriteString(c)
				text = text[i+6:]
				continue
			}
		}
		out.WriteString(text[i : i+2]) // a backslash and what it escapes, which may be another one
		text = text[i+2:]
	}
}

// textOf writes a JSON value as a person reads it: a text without quotes, everything else indented.
func textOf(raw json.RawMessage) string {
	if text, isText := jsonobj.Unquote(raw); isText {
		return text
	}
	return indented(raw)
}
