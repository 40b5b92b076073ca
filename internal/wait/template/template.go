// Package template fills what an eval set says of its jobs: texts with ${VAR}s, and URLs and bodies
// with {placeholders} too. A variable's value comes from the user, a placeholder's may come from a
// model, so the latter is escaped and never chooses a host.
package template

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// Placeholders are what a request may take from a trigger. All but triggerId, rolloutId and
// webhookUrl may come from a model, so they reach a URL only escaped, and never its host.
// inputArguments is for bodies only, webhookUrl for the start of a job.
var Placeholders = []string{
	"triggerId", "rolloutId", "process", "folderPath", "folderKey", "itemKey", "webhookUrl", "inputArguments",
}

// part is a piece of a template: literal text, a ${VAR} or a {placeholder}.
type part struct{ text, variable, placeholder string }

var (
	partPattern = regexp.MustCompile(`\$\{([^{}]*)\}|\{([^{}]*)\}`)
	nameOfVar   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	whole       = regexp.MustCompile(`^\{([A-Za-z]+)\}$`)
)

// Whole gives the name of the placeholder that a body's string is; ok is false for any other text.
func Whole(s string) (name string, ok bool) {
	if m := whole.FindStringSubmatch(s); m != nil {
		return m[1], true
	}
	return "", false
}

// Check says what is wrong with the ${VAR}s of a text.
func Check(s string) error {
	_, err := splitVars(s)
	return err
}

// splitVars splits a text at its ${VAR}s.
func splitVars(s string) ([]part, error) { return splitTemplate(s, false) }

// splitTemplate splits a text at its ${VAR}s and, if it is a URL, at its {placeholder}s.
func splitTemplate(s string, isURL bool) ([]part, error) {
	var out []part
	last := 0
	for _, m := range partPattern.FindAllStringSubmatchIndex(s, -1) {
		isVar := m[2] >= 0
		if !isVar && !isURL {
			continue
		}
		out = append(out, part{text: s[last:m[0]]})
		last = m[1]
		if !isVar {
			out = append(out, part{placeholder: s[m[4]:m[5]]})
			continue
		}
		name := s[m[2]:m[3]]
		if !nameOfVar.MatchString(name) {
			return nil, fmt.Errorf("expected the name of a variable in ${…}, got %q", name)
		}
		out = append(out, part{variable: name})
	}
	out = append(out, part{text: s[last:]})
	for _, p := range out {
		if strings.Contains(p.text, "${") {
			return nil, errors.New("a ${ is not closed by a }")
		}
		if isURL && strings.ContainsAny(p.text, "{}") {
			return nil, errors.New("a brace has no counterpart")
		}
	}
	return out, nil
}

// Resolver gives the value of a ${VAR}; a nil one has none.
type Resolver func(name string) (string, bool)

// Expand replaces the ${VAR}s of a text.
func (r Resolver) Expand(s string) (string, error) {
	parts, err := splitVars(s)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, p := range parts {
		value := p.text
		if p.variable != "" {
			if value, err = r.Value(p.variable); err != nil {
				return "", err
			}
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// Value gives the value of a variable. The error names one that has none.
func (r Resolver) Value(name string) (string, error) {
	if r != nil {
		if v, ok := r(name); ok {
			return v, nil
		}
	}
	return "", fmt.Errorf("the variable ${%s} has no value; pass it with --env %s or in an --env-file", name, name)
}

// AddVariables adds the names of a text's ${VAR}s to a set.
func AddVariables(s string, into map[string]bool) {
	parts, _ := splitVars(s) // errors were reported when the configuration was read
	for _, p := range parts {
		if p.variable != "" {
			into[p.variable] = true
		}
	}
}

// CheckURL says what is wrong with a URL template, as far as that can be said without the values of
// its variables.
func CheckURL(template string, allowed []string) error {
	parts, err := splitTemplate(template, true)
	if err != nil {
		return err
	}
	dummies := map[string]string{}
	for _, name := range Placeholders {
		dummies[name] = "x"
	}
	for _, p := range parts {
		if p.placeholder != "" && len(allowed) == 0 {
			return fmt.Errorf("expected no placeholder, got {%s}", p.placeholder)
		}
		if p.placeholder != "" && !slices.Contains(allowed, p.placeholder) {
			return fmt.Errorf("expected one of the placeholders {%s}, got {%s}", strings.Join(allowed, "}, {"), p.placeholder)
		}
	}
	// A variable at the beginning may hold the scheme, or the scheme and the host; both are tried.
	for _, first := range []string{"https://host", "https"} {
		at := 0
		_, err = URL(template, func(string) (string, bool) {
			if at++; at == 1 && strings.HasPrefix(template, "${") {
				return first, true
			}
			return "v", true
		}, dummies)
		if err == nil {
			return nil
		}
	}
	return err
}

const notAURL = "expected a URL that begins with http:// or https:// and a host"

// URL fills a URL template. A variable's value stands as it is. A placeholder's value is escaped
// for the path or the query, wherever it stands; it may not stand before the path or after a '#',
// and in a path it may not be empty or lead out of its segment.
func URL(template string, resolve Resolver, values map[string]string) (string, error) {
	parts, err := splitTemplate(template, true)
	if err != nil {
		return "", err
	}
	// fixed has an x for every placeholder: what the URL is when no value can be at fault.
	var filled, fixed strings.Builder
	for _, p := range parts {
		text := p.text
		switch {
		case p.variable != "":
			if text, err = resolve.Value(p.variable); err != nil {
				return "", err
			}
		case p.placeholder != "":
			escaped, err := escape(p.placeholder, values[p.placeholder], fixed.String())
			if err != nil {
				return "", err
			}
			filled.WriteString(escaped)
			fixed.WriteString("x")
			continue
		}
		filled.WriteString(text)
		fixed.WriteString(text)
	}
	u, err := url.Parse(filled.String())
	if err != nil {
		// The error has the URL in it, and that may hold a secret.
		return "", errors.New(notAURL)
	}
	want, err := url.Parse(fixed.String())
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", errors.New(notAURL)
	case u.Host != want.Host || u.Scheme != want.Scheme ||
		strings.Count(u.EscapedPath(), "/") != strings.Count(want.EscapedPath(), "/"):
		return "", errors.New("a placeholder's value changes more than its own part of the URL")
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		if plain, err := url.PathUnescape(segment); err != nil || plain == "." || plain == ".." {
			return "", errors.New(`the path has a segment "." or ".."`)
		}
	}
	return u.String(), nil
}

// escape escapes a placeholder's value for its place, which it knows by the part of the URL before
// it.
func escape(name, value, before string) (string, error) {
	_, rest, hasScheme := strings.Cut(before, "://")
	switch {
	case !hasScheme || !strings.ContainsAny(rest, "/?"):
		return "", fmt.Errorf("{%s} stands before the path; what a model says may not choose the host", name)
	case strings.Contains(rest, "#"):
		return "", fmt.Errorf("{%s} stands after a '#', which is not sent", name)
	case strings.Contains(rest, "?"):
		return url.QueryEscape(value), nil
	case value == "":
		return "", fmt.Errorf("{%s} is empty and stands in the path of a URL", name)
	}
	// Some proxies decode %2F and then follow "..", so a value is refused for any dots that could
	// be a segment.
	for segment := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return "", fmt.Errorf(
				"{%s} is %q, which would lead out of its segment of the URL's path", name, jsonvalue.Excerpt([]byte(value)))
		}
	}
	return url.PathEscape(value), nil
}

// Body fills a body template: a string that is one placeholder becomes its value, which is a text
// or a document; other strings have their ${VAR}s replaced.
func Body(
	template json.RawMessage, resolve Resolver, values map[string]string, documents map[string]json.RawMessage,
) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(template))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	v, err := fill(v, func(s string) (any, error) {
		if name, ok := Whole(s); ok {
			if document, ok := documents[name]; ok {
				return document, nil
			}
			if value, ok := values[name]; ok {
				if value == "" && name == "webhookUrl" {
					return nil, nil // no server can be reached
				}
				return value, nil
			}
		}
		return resolve.Expand(s)
	})
	if err != nil {
		return nil, err
	}
	return jsonvalue.Marshal(v), nil
}

// AddBodyVariables adds the names of a body template's ${VAR}s to a set.
func AddBodyVariables(body json.RawMessage, into map[string]bool) {
	var v any
	if json.Unmarshal(body, &v) == nil {
		_, _ = fill(v, func(s string) (any, error) { AddVariables(s, into); return s, nil })
	}
}

// fill replaces the strings of a decoded JSON value.
func fill(v any, replace func(string) (any, error)) (out any, err error) {
	switch v := v.(type) {
	case string:
		return replace(v)
	case []any:
		for i := range v {
			if v[i], err = fill(v[i], replace); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = fill(v[k], replace); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

// CheckText checks the ${VAR}s of a string; other values have none.
func CheckText(r *input.Reader, n *input.Node) {
	if n.Kind != input.String {
		return
	}
	if err := Check(n.Text); err != nil {
		r.Errorf(n, "%s", err)
	}
}
