package pyvalue

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

var errLiteral = errors.New("not a Python literal")

// ParseLiteral reads the literals of Python's ast.literal_eval: dicts, lists, tuples, sets,
// strings, bytes, numbers, True, False, None and Ellipsis. Some tracing libraries write a tool's
// arguments as str(dict). Escapes of the form \N{NAME} are not read: they would need the names of
// all characters.
func ParseLiteral(s string) (any, error) {
	if strings.ContainsRune(s, 0) {
		return nil, errLiteral
	}
	p := &literalParser{s: strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(s)}
	p.s = strings.TrimLeft(p.s, " \t\f\n")
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.take(',') {
		return nil, errLiteral // a tuple without brackets is no tool's arguments
	}
	if p.space(); p.at < len(p.s) {
		return nil, errLiteral
	}
	return v, nil
}

type literalParser struct {
	s  string
	at int
}

// space skips white space and comments.
func (p *literalParser) space() {
	for p.at < len(p.s) {
		switch c := p.s[p.at]; {
		case strings.IndexByte(" \t\f\r\n", c) >= 0:
			p.at++
		case c == '#':
			for p.at < len(p.s) && p.s[p.at] != '\n' {
				p.at++
			}
		default:
			return
		}
	}
}

// take skips white space and consumes c if it comes next.
func (p *literalParser) take(c byte) bool {
	p.space()
	if p.at < len(p.s) && p.s[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *literalParser) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, errDepth
	}
	p.space()
	if p.at >= len(p.s) {
		return nil, errLiteral
	}
	switch p.s[p.at] {
	case '{':
		p.at++
		return p.braces(depth)
	case '[':
		p.at++
		items, _, err := p.items(']', depth)
		return items, err
	case '(':
		p.at++
		items, comma, err := p.items(')', depth)
		if err == nil && len(items) == 1 && !comma {
			return items[0], nil // brackets round a value, not a tuple
		}
		return Tuple(items), err
	}
	if stringStart.MatchString(p.s[p.at:]) {
		return p.strings()
	}
	if number := numberStart.FindString(p.s[p.at:]); number != "" {
		p.at += len(number)
		return p.number(number)
	}
	return p.word()
}

// braces reads a dict or a set.
func (p *literalParser) braces(depth int) (any, error) {
	var keys, values []any
	isDict, comma := true, true
	for !p.take('}') {
		if !comma {
			return nil, errLiteral
		}
		key, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if len(keys) == 0 {
			isDict = p.take(':')
		} else if isDict != p.take(':') {
			return nil, errLiteral
		}
		keys = append(keys, key)
		if isDict {
			value, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		if comma = p.take(','); comma && p.take(',') {
			return nil, errLiteral
		}
	}
	if slices.ContainsFunc(keys, unhashable) {
		return nil, errLiteral
	}
	if !isDict {
		var b strings.Builder
		b.WriteByte('{')
		writeItems(&b, keys)
		b.WriteByte('}')
		return Opaque(b.String()), nil
	}
	return dict(keys, values), nil
}

func unhashable(v any) bool {
	switch v := v.(type) {
	case []any, *Object:
		return true
	case Tuple:
		return slices.ContainsFunc(v, unhashable)
	}
	return false
}

func dict(keys, values []any) any {
	o := New()
	for i, key := range keys {
		name, ok := key.(string)
		if !ok {
			parts := make([]string, len(keys))
			for i := range keys {
				parts[i] = Repr(keys[i]) + ": " + Repr(values[i])
			}
			return Opaque("{" + strings.Join(parts, ", ") + "}")
		}
		o.Set(name, values[i])
	}
	return o
}

// items reads up to the closing bracket and reports whether the last item was followed by a comma.
func (p *literalParser) items(end byte, depth int) (items []any, comma bool, err error) {
	items = []any{}
	for !p.take(end) {
		if len(items) > 0 && !comma {
			return nil, false, errLiteral
		}
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, false, err
		}
		items = append(items, item)
		comma = p.take(',')
	}
	return items, comma, nil
}

var (
	// numberStart matches a sign and a number, then any characters glued to it, which make it no
	// number.
	numberStart = regexp.MustCompile(`^[+-]?[ \t]*\.?[0-9](?:[eE][+-]?[0-9]|[\w.])*`)
	integer     = regexp.MustCompile(`^(?:0(?:_?0)*|[1-9](?:_?[0-9])*|0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+)$`)
	float       = regexp.MustCompile(`^(?:[0-9](?:_?[0-9])*)?\.?(?:[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?$`)
	stringStart = regexp.MustCompile(`^(?i:u|r|b|br|rb)?['"]`)
)

// number reads a number, and a complex one such as 1+2j, which is two.
func (p *literalParser) number(text string) (any, error) {
	negative := strings.HasPrefix(text, "-")
	text = strings.TrimLeft(text, "+- \t")
	if strings.HasSuffix(strings.ToLower(text), "j") && !strings.HasPrefix(strings.ToLower(text), "0x") {
		return Opaque(text), nil
	}
	v, err := pythonNumber(text, negative)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at < len(p.s) && (p.s[p.at] == '+' || p.s[p.at] == '-') {
		imaginary := numberStart.FindString(p.s[p.at:])
		if !strings.HasSuffix(strings.ToLower(imaginary), "j") {
			return nil, errLiteral
		}
		p.at += len(imaginary)
		return Opaque("(" + Repr(v) + imaginary + ")"), nil
	}
	return v, nil
}

func pythonNumber(text string, negative bool) (Number, error) {
	digits := strings.ReplaceAll(text, "_", "")
	switch {
	case integer.MatchString(text):
		i, ok := new(big.Int).SetString(digits, base(digits))
		if !ok {
			return Number{}, errLiteral
		}
		if negative {
			i.Neg(i)
		}
		return ParseNumber(i.String()), nil
	case float.MatchString(text) && text != "." && strings.ContainsAny(text, ".eE"):
		f, err := strconv.ParseFloat(digits, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return Number{}, errLiteral
		}
		if negative {
			f = -f
		}
		return Number{Float: f}, nil
	}
	return Number{}, errLiteral
}

// base returns 0 for a number whose base its prefix tells; zeros in front are no prefix.
func base(digits string) int {
	if strings.Trim(digits, "0") == "" {
		return 10
	}
	return 0
}

func (p *literalParser) word() (any, error) {
	for word, v := range map[string]any{"None": nil, "True": true, "False": false, "...": Opaque("Ellipsis"),
		"set()": Opaque("set()")} {
		rest, ok := strings.CutPrefix(p.s[p.at:], word)
		if next, _ := utf8.DecodeRuneInString(rest); ok &&
			(rest == "" || strings.ContainsRune(" \t\f\r\n#,:]})", next)) {
			p.at += len(word)
			return v, nil
		}
	}
	return nil, errLiteral
}

// strings reads a string, or several that stand beside each other and are one.
func (p *literalParser) strings() (any, error) {
	var b strings.Builder
	for first, isBytes := true, false; ; first = false {
		prefix := strings.ToLower(strings.TrimRight(stringStart.FindString(p.s[p.at:]), `'"`))
		if !first && isBytes != strings.Contains(prefix, "b") {
			return nil, errLiteral
		}
		isBytes = strings.Contains(prefix, "b")
		p.at += len(prefix)
		if err := p.str(&b, strings.Contains(prefix, "r"), isBytes); err != nil {
			return nil, err
		}
		end := p.at
		if p.space(); !stringStart.MatchString(p.s[p.at:]) {
			p.at = end
			if isBytes {
				return reprBytes(b.String()), nil
			}
			return b.String(), nil
		}
	}
}

// reprBytes prints bytes, which stand here as characters.
func reprBytes(s string) Opaque {
	var b strings.Builder
	b.WriteByte('b')
	for _, r := range Repr(s) {
		if r >= utf8.RuneSelf {
			fmt.Fprintf(&b, `\x%02x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return Opaque(b.String())
}

func (p *literalParser) str(b *strings.Builder, raw, isBytes bool) error {
	quote := p.s[p.at : p.at+1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(p.s[p.at:], triple) {
		quote = triple
	}
	p.at += len(quote)
	for p.at < len(p.s) {
		c := p.s[p.at]
		switch {
		case strings.HasPrefix(p.s[p.at:], quote):
			p.at += len(quote)
			return nil
		case c == '\\' && raw:
			if p.at+1 >= len(p.s) {
				return errLiteral
			}
			b.WriteString(p.s[p.at : p.at+2])
			p.at += 2
		case c == '\\':
			if err := p.escape(b, isBytes); err != nil {
				return err
			}
		case c == '\n' && len(quote) == 1, isBytes && c >= utf8.RuneSelf:
			return errLiteral
		default:
			b.WriteByte(c)
			p.at++
		}
	}
	return errLiteral
}

var octal = regexp.MustCompile(`^[0-7]{1,3}`)

func (p *literalParser) escape(b *strings.Builder, isBytes bool) error {
	if p.at+1 >= len(p.s) {
		return errLiteral
	}
	p.at++
	if digits := octal.FindString(p.s[p.at:]); digits != "" {
		p.at += len(digits)
		code, _ := strconv.ParseUint(digits, 8, 32) // three octal digits
		b.WriteRune(rune(code))
		return nil
	}
	c := p.s[p.at]
	p.at++
	if i := strings.IndexByte(`\'"abfnrtv`, c); i >= 0 {
		b.WriteByte("\\'\"\a\b\f\n\r\t\v"[i])
		return nil
	}
	if c == '\n' {
		return nil // the string goes on in the next line
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if isBytes && c != 'x' {
		digits = 0
	}
	if digits == 0 {
		if c == 'N' && !isBytes {
			return errLiteral
		}
		b.WriteByte('\\') // Python keeps an escape that it does not know
		b.WriteByte(c)
		return nil
	}
	if p.at+digits > len(p.s) {
		return errLiteral
	}
	code, err := strconv.ParseUint(p.s[p.at:p.at+digits], 16, 32)
	if err != nil || code > utf8.MaxRune {
		return errLiteral
	}
	p.at += digits
	b.WriteRune(rune(code))
	return nil
}
