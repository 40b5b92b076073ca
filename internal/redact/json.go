package redact

import (
	"bytes"
	"encoding/json"
)

// json redacts string by string, so that the places of quotes and brackets stay: the strings
// without their escapes, keys included, and numbers. A secret that is itself a piece of JSON text
// takes the whole value with it.
func (r *Redactor) json(raw json.RawMessage) json.RawMessage {
	out, changed := r.tokens(raw)
	if !changed && !r.has(raw) {
		return raw
	}
	rest := r.Bytes(out)
	if json.Valid(rest) || !json.Valid(raw) {
		return rest
	}
	return quote(r.markerOf(out))
}

// tokens redacts the strings and numbers of a JSON text.
func (r *Redactor) tokens(raw []byte) (out []byte, changed bool) {
	done := 0
	replace := func(from, to int, text string) {
		out = append(append(out, raw[done:from]...), quote(text)...)
		done, changed = to, true
	}
	for i := 0; i < len(raw); {
		from := i
		switch c := raw[i]; {
		case c == '"':
			i = stringEnd(raw, i)
			text, ok := unquote(raw[from:i])
			if clean := r.String(text); ok && clean != text {
				replace(from, i, clean)
			}
		case c == '-' || '0' <= c && c <= '9':
			for i < len(raw) && bytes.IndexByte([]byte("+-.0123456789Ee"), raw[i]) >= 0 {
				i++
			}
			if i-from >= minLength && r.has(raw[from:i]) {
				replace(from, i, string(r.Bytes(raw[from:i])))
			}
		default:
			i++
		}
	}
	if !changed {
		return raw, false
	}
	return append(out, raw[done:]...), true
}

// stringEnd returns the place after the quote that ends a string.
func stringEnd(raw []byte, from int) int {
	for i := from + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

func unquote(token []byte) (text string, ok bool) {
	if len(token) >= 2 && bytes.IndexByte(token, '\\') < 0 {
		return string(token[1 : len(token)-1]), token[len(token)-1] == '"'
	}
	err := json.Unmarshal(token, &text)
	return text, err == nil
}

func quote(text string) []byte {
	return []byte(`"` + jsonEscaped(text, false) + `"`)
}

// markerOf returns the marker of the first secret in a text that has one.
func (r *Redactor) markerOf(p []byte) string {
	if n, found := r.m.occursIn(p); found {
		return r.m.markers[n.marker]
	}
	return ""
}
