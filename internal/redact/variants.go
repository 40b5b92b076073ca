package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// variants are the spellings of a value that are searched in a text, with its escapes and
// without.
func variants(value string) []string {
	out := []string{value, strings.ReplaceAll(value, " ", "+")} // as a query has it
	if plain := withoutEscapes(value); utf8.RuneCountInString(plain) >= minLength {
		out = append(out, plain)
	}
	for _, form := range encoded(value) {
		out = append(out, base64Cores(form)...)
	}
	return out
}

// withoutEscapes returns a value after undoing every level of JSON, also levels that only look
// as if they were in the value. It drops backslashes at the end, because they would join
// those of the text after them.
func withoutEscapes(value string) string {
	var out []byte
	var e escape
	emit := func(b symbol) { out = append(out, b.b) }
	for i := range len(value) {
		e.push(symbol{b: value[i]}, inAllJSON, emit)
	}
	for _, b := range e.pending[:e.n] {
		emit(b)
	}
	return strings.TrimRight(string(out), `\`)
}

// maxForms is the length of the longest value whose forms are all searched in base64. A longer one
// would take too much memory.
const maxForms = 4096

// encoded returns the forms that a value may have before it is put into base64, in which no escapes
// can be undone.
func encoded(value string) []string {
	seen := map[string]bool{}
	var out []string
	add := func(form string) {
		if !seen[form] {
			seen[form] = true
			out = append(out, form)
		}
	}
	add(value)
	add(jsonEscaped(value, false))
	if len(value) > maxForms {
		return out
	}
	for _, escape := range jsonWriters {
		add(escape(value))
		add(escape(escape(value)))
	}
	query := url.QueryEscape(value)
	for _, escaped := range []string{
		query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(value), component(value)} {
		add(escaped)
		add(lowerHex(escaped))
	}
	for _, core := range base64Cores(value) {
		add(core)
	}
	return out
}

// jsonWriters escape a text as the libraries of several languages do.
var jsonWriters = []func(string) string{
	func(s string) string { return jsonEscaped(s, false) },
	func(s string) string { return jsonEscaped(s, true) },
	func(s string) string { return jsonASCII(jsonEscaped(s, false), "%04x") }, // Python
	func(s string) string { return jsonASCII(jsonEscaped(s, false), "%04X") }, // .NET
	// JavaScript, some of it
	func(s string) string { return strings.ReplaceAll(jsonEscaped(s, false), "/", `\/`) },
	func(s string) string { return strings.ReplaceAll(jsonASCII(jsonEscaped(s, false), "%04x"), "/", `\/`) }, // PHP
}

// jsonEscaped returns the text between the quotes.
func jsonEscaped(value string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	_ = enc.Encode(value) // a string always encodes
	return strings.Trim(b.String(), "\n")[1 : b.Len()-2]
}

// jsonASCII escapes the characters that are not ASCII, with digits in the given format.
func jsonASCII(escaped, digits string) string {
	var b strings.Builder
	for _, r := range escaped {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u`+digits+`\u`+digits, high, low)
		default:
			fmt.Fprintf(&b, `\u`+digits, r)
		}
	}
	return b.String()
}

// component escapes as JavaScript's encodeURIComponent does.
func component(value string) string {
	return strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").
		Replace(url.QueryEscape(value))
}

// lowerHex writes %2F as %2f.
func lowerHex(escaped string) string {
	b := []byte(escaped)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], bytes.ToLower(b[i+1:i+3]))
			i += 2
		}
	}
	return string(b)
}

// base64Cores returns the characters of a value's base64 that do not depend on the bytes before and
// after it, for each of the three places at which it may begin in a group of three bytes.
func base64Cores(value string) []string {
	var out []string
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := enc.EncodeToString(append(make([]byte, before), value...))
			from, to := (8*before+5)/6, 8*(before+len(value))/6
			out = append(out, text[from:to])
		}
	}
	return out
}
