package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// path is the way to a part of a value.
type path struct {
	text  string
	steps []step
}

// step is a key, or the index of an element, which counts from the end if it is negative.
type step struct {
	key   string
	index int
	isKey bool
}

// pathStep matches a key, which may stand in brackets and quotes, or an index.
var pathStep = regexp.MustCompile(`^(?:\[(-?[0-9]{1,9})\]|\[("(?:[^"\\]|\\.)*")\]|([^.\[\]]+))`)

// missingError says that a value is not there.
type missingError struct{ message string }

func (e *missingError) Error() string { return e.message }

func parsePath(text string) (*path, error) {
	p := &path{text: text}
	rest := text
	for rest != "" {
		if len(p.steps) > 0 && rest[0] == '.' {
			rest = rest[1:]
		}
		m := pathStep.FindStringSubmatch(rest)
		if m == nil || len(p.steps) > 0 && m[3] != "" && text[len(text)-len(rest)-1] != '.' {
			p.steps = nil
			break
		}
		one := step{key: m[3], isKey: m[1] == ""}
		if m[1] != "" {
			one.index, _ = strconv.Atoi(m[1]) // nine digits are a number
		}
		if m[2] != "" && json.Unmarshal([]byte(m[2]), &one.key) != nil {
			p.steps = nil
			break
		}
		p.steps = append(p.steps, one)
		rest = rest[len(m[0]):]
	}
	if len(p.steps) == 0 {
		return nil, fmt.Errorf(`expected a path such as messages[-1].content or data["a.b"][0], got %q; `+
			"jq takes expressions", text)
	}
	return p, nil
}

// of follows the path. The error is a missingError.
func (p *path) of(v any) (any, error) {
	for _, s := range p.steps {
		if text, ok := v.(string); ok {
			if parsed, err := pyvalue.Parse([]byte(text)); err == nil {
				v = parsed
			}
		}
		if s.isKey {
			o, ok := v.(*pyvalue.Object)
			if !ok {
				return nil, &missingError{fmt.Sprintf("%s is not there: %q needs an object, and there is %s",
					p.text, s.key, pyvalue.KindOf(v))}
			}
			if v, ok = o.Values[s.key]; !ok {
				return nil, &missingError{fmt.Sprintf("%s is not there: there is no %q", p.text, s.key)}
			}
			continue
		}
		list, ok := v.([]any)
		if !ok {
			return nil, &missingError{fmt.Sprintf("%s is not there: [%d] needs an array, and there is %s",
				p.text, s.index, pyvalue.KindOf(v))}
		}
		i := s.index
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return nil, &missingError{fmt.Sprintf("%s is not there: the length of the array is %d", p.text, len(list))}
		}
		v = list[i]
	}
	return v, nil
}

// value returns the value that a check is about.
func (c *check) value(ctx context.Context, s *scene) (any, error) {
	v := s.value
	switch p := c.path; {
	case c.jq != nil:
		raw, err := jsonobj.Marshal(v)
		if err != nil {
			return nil, err
		}
		raw, err = c.jq.Value(ctx, raw)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return nil, fmt.Errorf("jq was ended before it had a value: %w", err) // how fast a machine is is no score
		}
		if err != nil {
			return nil, &missingError{"jq finds no value: " + shown(err.Error())}
		}
		if v, err = pyvalue.Parse(raw); err != nil {
			return nil, err
		}
	case p != nil || s.path != nil:
		if p == nil {
			p = s.path
		}
		var err error
		if v, err = p.of(v); err != nil {
			return nil, err
		}
	}
	if len(c.transforms) == 0 {
		return v, nil
	}
	t, unfit := text(v)
	if unfit != "" {
		return nil, &missingError{unfit}
	}
	for _, name := range c.transforms {
		t = transforms[name](t)
	}
	return t, nil
}

// text returns a value as a text: one that is none as JSON. It says why null is none.
func text(v any) (t, unfit string) {
	switch v := v.(type) {
	case nil:
		return "", "it is null, which is no text"
	case string:
		return v, ""
	}
	raw, err := jsonobj.Marshal(v)
	if err != nil {
		return "", "it cannot be written as JSON"
	}
	return string(raw), ""
}

// transforms are the changes of a text by their names.
var transforms = map[string]func(string) string{
	"trim":     strings.TrimSpace,
	"lower":    strings.ToLower,
	"upper":    strings.ToUpper,
	"collapse": collapse,
	"firstLine": func(s string) string {
		line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
		return strings.TrimSpace(line)
	},
	"lastLine": func(s string) string {
		s = strings.TrimSpace(s)
		return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
	},
	"unfence": unfence,
}

func transformNames() []string { return slices.Sorted(maps.Keys(transforms)) }

func collapse(s string) string { return strings.Join(strings.Fields(s), " ") }

// unfence returns the text in the first code block of Markdown, or all of it if there is none.
func unfence(s string) string {
	const fence = "```"
	_, after, ok := strings.Cut(s, fence)
	if !ok {
		return s
	}
	_, after, ok = strings.Cut(after, "\n") // the language
	if !ok {
		return s
	}
	inner, _, _ := strings.Cut(after, fence)
	return strings.TrimSuffix(inner, "\n")
}

// shown returns a text for people: quoted, and cut.
func shown(s string) string {
	const most = 200
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return fmt.Sprintf("%s… (%d characters)", strconv.Quote(s[:cut]), utf8.RuneCountInString(s))
}

// shownValue is shown for any value.
func shownValue(v any) string {
	if v == nil {
		return "null"
	}
	t, _ := text(v)
	if _, ok := v.(string); !ok && len(t) <= 200 {
		return t
	}
	return shown(t)
}
