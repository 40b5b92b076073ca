package pyvalue

import (
	"regexp"
	"strings"
)

// ParseJSON reads JSON as Python's json.loads does, which knows NaN and the infinities.
func ParseJSON(s string) (any, error) {
	v, err := Parse([]byte(s))
	if err == nil || !strings.Contains(s, "NaN") && !strings.Contains(s, "Infinity") {
		return v, err
	}
	p := &jsonParser{s: s}
	if v, err = p.value(0); err != nil {
		return nil, err
	}
	if p.space(); p.at < len(p.s) {
		return nil, errJSON
	}
	return v, nil
}

// jsonParser leaves strings and finite numbers to parseValue.
type jsonParser struct {
	s  string
	at int
}

var (
	jsonString = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	jsonWord   = regexp.MustCompile(`^[\w.+-]+`)
)

func (p *jsonParser) space() {
	for p.at < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.at]) >= 0 {
		p.at++
	}
}

func (p *jsonParser) take(c byte) bool {
	p.space()
	if p.at < len(p.s) && p.s[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *jsonParser) value(depth int) (any, error) {
	switch {
	case depth > maxDepth:
		return nil, errDepth
	case p.take('{'):
		return p.object(depth)
	case p.take('['):
		return p.array(depth)
	}
	word := jsonString.FindString(p.s[p.at:])
	if word == "" {
		word = jsonWord.FindString(p.s[p.at:])
	}
	if word == "" {
		return nil, errJSON
	}
	p.at += len(word)
	if f, ok := nonFinite[word]; ok {
		return Number{Float: f}, nil
	}
	return Parse([]byte(word))
}

func (p *jsonParser) object(depth int) (any, error) {
	o := New()
	if p.take('}') {
		return o, nil
	}
	for {
		key, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name, ok := key.(string)
		if !ok || !p.take(':') {
			return nil, errJSON
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		o.Set(name, value)
		if p.take('}') {
			return o, nil
		}
		if !p.take(',') {
			return nil, errJSON
		}
	}
}

func (p *jsonParser) array(depth int) (any, error) {
	items := []any{}
	if p.take(']') {
		return items, nil
	}
	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		if p.take(']') {
			return items, nil
		}
		if !p.take(',') {
			return nil, errJSON
		}
	}
}
