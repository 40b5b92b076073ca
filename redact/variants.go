package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf16"
)

// variants are the spellings under which a value is looked for.
func variants(value string) []string {
	plain, html := jsonEscaped(value, false), jsonEscaped(value, true)
	out := []string{
		value, plain, html, jsonASCII(plain),
		strings.ReplaceAll(plain, "/", `\/`), // as PHP and older JavaScript libraries write it
	}
	query := url.QueryEscape(value)
	for _, escaped := range []string{query, strings.ReplaceAll(query, "+", "%20"), url.PathEscape(value), component(value)} {
		out = append(out, escaped, lowerHex(escaped))
	}
	return append(out, base64Cores(value)...)
}

// jsonEscaped is what stands between the quotes.
func jsonEscaped(value string, html bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	_ = enc.Encode(value) // a string always encodes
	return strings.Trim(b.String(), "\n")[1 : b.Len()-2]
}

// jsonASCII escapes what is not ASCII, as Python's json.dumps does.
func jsonASCII(escaped string) string {
	var b strings.Builder
	for _, r := range escaped {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// component escapes as JavaScript's encodeURIComponent does.
func component(value string) string {
	return strings.NewReplacer("+", "%20", "%21", "!", "%27", "'", "%28", "(", "%29", ")", "%2A", "*").Replace(url.QueryEscape(value))
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

// base64Cores are those characters of a value's base64 that do not depend on what stands before and after it, for each
// of the three places at which it may begin in a group of three bytes.
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
