package pyvalue

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// Str returns Python's str(): a string as it is, anything else as repr prints it.
func Str(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return Repr(v)
}

// Repr returns Python's repr() of a value.
func Repr(v any) string {
	var b strings.Builder
	writeRepr(&b, v)
	return b.String()
}

func writeRepr(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case Number:
		if v.Integer {
			b.WriteString(v.Text)
		} else {
			b.WriteString(ReprFloat(v.Float))
		}
	case string:
		writeReprString(b, v)
	case []any:
		b.WriteByte('[')
		writeItems(b, v)
		b.WriteByte(']')
	case Tuple:
		b.WriteByte('(')
		writeItems(b, v)
		if len(v) == 1 {
			b.WriteByte(',')
		}
		b.WriteByte(')')
	case Opaque:
		b.WriteString(string(v))
	case *Object:
		b.WriteByte('{')
		for i, key := range v.Keys {
			if i > 0 {
				b.WriteString(", ")
			}
			writeReprString(b, key)
			b.WriteString(": ")
			writeRepr(b, v.Values[key])
		}
		b.WriteByte('}')
	}
}

func writeItems(b *strings.Builder, items []any) {
	for i, item := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		writeRepr(b, item)
	}
}

// Lower is Python's str.lower(): "İ" becomes two characters, and the last "Σ" of a word "ς". It is
// done in one piece, because Caser.String works through a buffer and forgets at its end whether it
// is inside a word.
func Lower(s string) string {
	lower := make([]byte, 2*len(s)+utf8.UTFMax) // no character becomes twice as long
	n, _, err := cases.Lower(language.Und).Transform(lower, []byte(s), true)
	if err != nil {
		return strings.ToLower(s)
	}
	return string(lower[:n])
}

// ReprFloat prints the shortest digits that give the float back, with an exponent below 1e-4 and
// from 1e16 on.
func ReprFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// writeReprString prints a string in single quotes, in double quotes if it has single and no double
// ones.
func writeReprString(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	plain := 0 // where the characters begin that are copied as they are
	for i, r := range s {
		if r != quote && r != '\\' && unicode.IsPrint(r) {
			continue
		}
		b.WriteString(s[plain:i])
		plain = i + utf8.RuneLen(r)
		switch {
		case r == quote || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteString(s[plain:])
	b.WriteRune(quote)
}

// Canonical returns the JSON of a value with sorted keys and floats for numbers.
func Canonical(v any) string {
	var b strings.Builder
	writeCanonical(&b, v)
	return b.String()
}

func writeCanonical(b *strings.Builder, v any) {
	switch v := v.(type) {
	case Number:
		b.WriteString(ReprFloat(v.Float))
	case []any:
		b.WriteByte('[')
		for _, item := range v {
			writeCanonical(b, item)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case *Object:
		b.WriteByte('{')
		for _, key := range slices.Sorted(slices.Values(v.Keys)) {
			writeReprString(b, key)
			b.WriteByte(':')
			writeCanonical(b, v.Values[key])
			b.WriteByte(',')
		}
		b.WriteByte('}')
	default:
		writeRepr(b, v)
	}
}

// Truthy is Python's notion of true.
func Truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case Number:
		return v.Float != 0
	case []any:
		return len(v) > 0
	case *Object:
		return len(v.Keys) > 0
	}
	return false
}

// Truth is Python's float(b): 1 or 0.
func Truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
