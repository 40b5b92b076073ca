// Package jsonobj cuts JSON into its parts and puts them together again without decoding them, so
// that parts which nobody has to read stay the same, byte for byte. It knows nothing of the meaning
// of the documents.
package jsonobj

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how deep objects and arrays may be nested, as in encoding/json.
const MaxDepth = 10000

// Valid reports whether a text is one JSON value, as json.Valid does. It is four times as fast for
// long strings, which are typical of tools' answers.
func Valid(b []byte) bool {
	return jsontext.Value(b).IsValid(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// Members calls member for each member of the JSON object that b starts with, and returns the
// object's length, or -1 if there is none. It finds where values end and does not check them: the
// caller asks Valid. It exists because encoding/json takes keys in any case, does not tell where
// glued messages part, and reads each message twice.
func Members(b []byte, member func(key, value []byte)) int {
	return members(b, func(key, _, value []byte) { member(key, value) })
}

// Get returns a member of the object that a document is, the first with that key; nil if there is
// none.
func Get(doc json.RawMessage, key string) (found json.RawMessage) {
	Members(doc[SkipSpace(doc, 0):], func(k, value []byte) {
		if found == nil && string(k) == key {
			found = value
		}
	})
	return found
}

// members is like Members and also passes each key as it is spelled.
func members(b []byte, member func(key, spelled, value []byte)) int {
	if len(b) == 0 || b[0] != '{' {
		return -1
	}
	for i := SkipSpace(b, 1); i < len(b); i = SkipSpace(b, i+1) {
		if b[i] == '}' {
			return i + 1
		}
		start := i
		if i = skipString(b, i); i < 0 {
			return -1
		}
		spelled := b[start:i]
		key := unspell(spelled)
		i = SkipSpace(b, i)
		if i >= len(b) || b[i] != ':' {
			return -1
		}
		start = SkipSpace(b, i+1)
		if i = skipValue(b, start); i < 0 {
			return -1
		}
		member(key, spelled, b[start:i])
		i = SkipSpace(b, i)
		if i >= len(b) {
			return -1
		}
		switch b[i] {
		case ',':
		case '}':
			return i + 1
		default:
			return -1
		}
	}
	return -1
}

// unspell returns the key with this spelling. What is no UTF-8 in it becomes U+FFFD, as in encoding/json.
func unspell(spelled []byte) []byte {
	key := spelled[1 : len(spelled)-1]
	if bytes.IndexByte(key, '\\') >= 0 || !utf8.Valid(key) {
		text, _ := Unquote(spelled)
		return []byte(text)
	}
	return key
}

// SkipSpace returns the index of the first byte from i on that is no white space.
func SkipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at i, or -1.
func skipString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; ; i++ {
		quote := bytes.IndexByte(b[i:], '"')
		if quote < 0 {
			return -1
		}
		escapes := 0
		for b[i+quote-1-escapes] == '\\' { // ends at the opening quote at the latest
			escapes++
		}
		i += quote
		if escapes%2 == 0 {
			return i + 1
		}
	}
}

// skipValue returns the index after the value that starts at i, or -1.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	if b[i] == '"' {
		return skipString(b, i)
	}
	start := i
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end := skipString(b, i)
			if end < 0 {
				return -1
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i // the end of the object around a number or a word
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 && i > start {
				return i
			}
		}
	}
	return -1
}

// Unquote returns the text of a JSON string.
func Unquote(b []byte) (string, bool) {
	if len(b) < 2 || b[0] != '"' {
		return "", false
	}
	if inner := b[1 : len(b)-1]; bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return string(inner), true
	}
	var s string
	err := json.Unmarshal(b, &s)
	return s, err == nil
}

// IsNull reports whether a value is null or missing.
func IsNull(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }
