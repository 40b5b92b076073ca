package web

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// The limits of what is shown of a value: characters, and texts in it that are shown once more.
const (
	maxValue = 2400
	maxTexts = 5
	longText = 120
)

// textPart is a part of a value: the value as JSON, and its long texts once more as text.
type textPart struct {
	Name string
	Text string
	// More is how many bytes are left out.
	More int
}

// valueParts shows a value. Of a long one the beginning is shown.
func valueParts(raw json.RawMessage) []textPart {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	if text := stringOf(raw); text != "" {
		begin, more := cut(text, maxValue)
		return []textPart{{"", begin, more}}
	}
	text := string(raw)
	var pretty bytes.Buffer
	if len(raw) < 64*maxValue && json.Indent(&pretty, raw, "", "  ") == nil {
		text = readable(pretty.String())
	}
	begin, more := cut(text, maxValue)
	out := []textPart{{"", begin, more}}
	var members map[string]json.RawMessage
	if len(raw) > 64<<20 || json.Unmarshal(raw, &members) != nil {
		return out
	}
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if text := stringOf(members[name]); (len(text) > longText || strings.Contains(text, "\n")) && len(out) <= maxTexts {
			begin, more := cut(text, maxValue)
			out = append(out, textPart{name, begin, more})
		}
	}
	return out
}

// readable is JSON with <, > and & as they are, which encoders write as escapes because of HTML. A page
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
