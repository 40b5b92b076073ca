package eval

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

var errLiteral = errors.New("not a Python literal")

// parseLiteral reads a Python literal made of dicts, lists, tuples, strings, numbers, True, False and None. Some
// tracing libraries write a tool's arguments as str(dict).
func parseLiteral(s string) (any, error) {
	p := &literalParser{s: s}
	v, err := p.value(0)
	if err != nil {
		return nil, err
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

func (p *literalParser) space() {
	for p.at < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.at]) >= 0 {
		p.at++
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
		return p.dict(depth)
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
		return items, err
	case '\'', '"':
		return p.str()
	}
	return p.word()
}

func (p *literalParser) dict(depth int) (any, error) {
	p.at++
	o := newObject()
	for !p.take('}') {
		if len(o.Keys) > 0 {
			if !p.take(',') {
				return nil, errLiteral
			}
			if p.take('}') {
				break
			}
		}
		key, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok || !p.take(':') {
			return nil, errLiteral
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		o.set(name, value)
	}
	return o, nil
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

func (p *literalParser) word() (any, error) {
	start := p.at
	for p.at < len(p.s) && strings.IndexByte(" \t\r\n,:]})", p.s[p.at]) < 0 {
		p.at++
	}
	switch word := p.s[start:p.at]; word {
	case "None":
		return nil, nil
	case "True":
		return true, nil
	case "False":
		return false, nil
	default:
		word = strings.TrimPrefix(word, "+")
		if json.Valid([]byte(word)) && strings.IndexByte("-0123456789", word[0]) >= 0 {
			return parseNumber(word), nil
		}
		// Python also writes 1. and .5, which are not JSON.
		f, err := strconv.ParseFloat(word, 64)
		if err != nil || strings.Trim(word, "-0123456789.") != "" || !strings.Contains(word, ".") {
			return nil, errLiteral
		}
		return number{Float: f}, nil
	}
}

// str reads a quoted string with Python's escapes; triple quotes are not read.
func (p *literalParser) str() (any, error) {
	quote := p.s[p.at]
	p.at++
	var b strings.Builder
	for p.at < len(p.s) {
		c := p.s[p.at]
		switch c {
		case quote:
			p.at++
			return b.String(), nil
		case '\\':
			if err := p.escape(&b); err != nil {
				return nil, err
			}
		case '\n':
			return nil, errLiteral
		default:
			b.WriteByte(c)
			p.at++
		}
	}
	return nil, errLiteral
}

func (p *literalParser) escape(b *strings.Builder) error {
	if p.at+1 >= len(p.s) {
		return errLiteral
	}
	c := p.s[p.at+1]
	p.at += 2
	if i := strings.IndexByte(`\'"abfnrtv`, c); i >= 0 {
		b.WriteByte("\\'\"\a\b\f\n\r\t\v"[i])
		return nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits == 0 {
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
