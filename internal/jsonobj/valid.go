package jsonobj

import "encoding/binary"

// MaxDepth is how deep objects and arrays may be in each other: as deep as encoding/json takes them.
const MaxDepth = 10000

// Valid reports whether a text is one JSON value, as json.Valid does. It is several times faster where the strings are long, which is
// what tools answer.
func Valid(b []byte) bool {
	i := validValue(b, SkipSpace(b, 0), 0)
	return i >= 0 && SkipSpace(b, i) == len(b)
}

// ValidMembers is Valid for an object, and calls member for each of its members on the way. What it was called with means nothing if the text turns out
// not to be valid.
func ValidMembers(b []byte, member func(key, value []byte)) bool {
	i := SkipSpace(b, 0)
	if i == len(b) || b[i] != '{' {
		return false
	}
	i = validItems(b, i, 0, func(spelled, value []byte) { member(unspell(spelled), value) })
	return i >= 0 && SkipSpace(b, i) == len(b)
}

// validValue returns the index after the value that starts at i, or -1.
func validValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; {
	case c == '"':
		return validString(b, i)
	case c == '{':
		return validItems(b, i, depth, nil)
	case c == '[':
		return validItems(b, i, depth, nil)
	case c == 't':
		return validWord(b, i, "true")
	case c == 'f':
		return validWord(b, i, "false")
	case c == 'n':
		return validWord(b, i, "null")
	case c == '-' || isDigit(c):
		return validNumber(b, i)
	}
	return -1
}

// validItems is validValue for an object or an array. member, if it is not nil, gets the members of an object.
func validItems(b []byte, i, depth int, member func(spelled, value []byte)) int {
	if depth == MaxDepth {
		return -1
	}
	isObject := b[i] == '{'
	end := byte(']')
	if isObject {
		end = '}'
	}
	if i = SkipSpace(b, i+1); i < len(b) && b[i] == end {
		return i + 1
	}
	for {
		var spelled []byte
		if isObject {
			start := i
			if i = validString(b, i); i < 0 {
				return -1
			}
			spelled = b[start:i]
			if i = SkipSpace(b, i); i >= len(b) || b[i] != ':' {
				return -1
			}
			i = SkipSpace(b, i+1)
		}
		start := i
		if i = validValue(b, i, depth+1); i < 0 {
			return -1
		}
		if member != nil {
			member(spelled, b[start:i])
		}
		if i = SkipSpace(b, i); i >= len(b) {
			return -1
		}
		switch b[i] {
		case end:
			return i + 1
		case ',':
			i = SkipSpace(b, i+1)
		default:
			return -1
		}
	}
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// validString is validValue for a string.
func validString(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	for i++; ; {
		// Eight bytes at once, as long as none of them is a quote, a backslash or a control character
		// (https://graphics.stanford.edu/~seander/bithacks.html, "determine if a word has a byte less than n").
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			quote, escape := w^(ones*'"'), w^(ones*'\\')
			if ((w-ones*' ')&^w|(quote-ones)&^quote|(escape-ones)&^escape)&highs != 0 {
				break
			}
			i += 8
		}
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c != '\\':
			i++
		default:
			if i = validEscape(b, i+1); i < 0 {
				return -1
			}
		}
	}
}

// validEscape returns the index after what follows a backslash, or -1.
func validEscape(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if i+4 >= len(b) {
			return -1
		}
		for _, c := range b[i+1 : i+5] {
			if !isDigit(c) && (c|0x20 < 'a' || c|0x20 > 'f') {
				return -1
			}
		}
		return i + 5
	}
	return -1
}

// validNumber is validValue for a number.
func validNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	start := i
	if i = skipDigits(b, i); i == start || b[start] == '0' && i > start+1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		start = i + 1
		if i = skipDigits(b, start); i == start {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		start = i
		if i = skipDigits(b, i); i == start {
			return -1
		}
	}
	return i
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func validWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}
