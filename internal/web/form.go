package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// field is an entry of a form that was made from a JSON schema.
type field struct {
	// Key is the key of the value. Name is the name of the form's field, which has nothing of the key
	// in it.
	Key, Name   string
	Title, Help string
	// Kind is text, long, number, yes, one of Choices, or json for values without a field of their
	// own.
	Kind string
	// Choices have their places as values.
	Choices  []choice
	Required bool
	// Value is the value that was entered, or the place of a choice.
	Value string
	// Error says what is wrong with the value.
	Error string

	isInteger bool
	limits    limits
	// values are the values of the choices, as JSON.
	values []json.RawMessage
}

// option is one value that an answer may have, and its name for people.
type option struct {
	value json.RawMessage
	name  string
}

// fieldPrefix begins the names of the fields of such a form.
const fieldPrefix = "f."

// The limits of a form. If a schema has more fields, or stands deeper, there is no form, and people
// answer with JSON.
const (
	maxFields = 60
	maxDepth  = 4
)

// formOf finds the JSON schema of an answer in the payload, nil if there is none.
func formOf(payload json.RawMessage) json.RawMessage { return findSchema(payload, maxDepth) }

func findSchema(value json.RawMessage, depth int) json.RawMessage {
	o, err := jsonobj.ParseObject(value)
	if err != nil || depth == 0 {
		return nil
	}
	for _, key := range []string{"requestedSchema", "schema", "input"} {
		if s := o.Object(key); s.Text("type") == "object" && len(s.Object("properties")) > 0 {
			return o.Get(key)
		}
	}
	for _, m := range o {
		if found := findSchema(m.Value, depth-1); found != nil {
			return found
		}
	}
	return nil
}

// readForm makes fields of the properties of a schema, in their order.
func readForm(schema json.RawMessage) (out []field) {
	o, _ := jsonobj.ParseObject(schema) // without a schema there are no fields
	var required []string
	_ = json.Unmarshal(o.Get("required"), &required)
	properties := o.Object("properties")
	if len(properties) > maxFields {
		return nil
	}
	for i, m := range properties {
		p, _ := jsonobj.ParseObject(m.Value) // true allows any value
		f := field{
			Key: m.Key, Name: fieldPrefix + strconv.Itoa(i), Title: p.Text("title"), Help: p.Text("description"),
			Required: slices.Contains(required, m.Key),
		}
		if f.Title == "" {
			f.Title = m.Key
		}
		if d := p.Get("default"); d != nil {
			f.Value = plain(textOf(d))
		}
		_ = json.Unmarshal(m.Value, &f.limits) // a limit that is invalid limits nothing
		f.choose(choicesOf(p), p.Get("default"))
		switch kind := p.Text("type"); {
		case len(f.Choices) > 0:
			f.Kind = "one"
		case kind == "boolean":
			f.Kind = "yes"
		case kind == "integer", kind == "number":
			f.Kind, f.isInteger = "number", kind == "integer"
		case kind == "string":
			f.Kind = "text"
			var most int
			if json.Unmarshal(p.Get("maxLength"), &most) != nil || most > 200 {
				f.Kind = "long"
			}
		default:
			f.Kind = "json"
		}
		out = append(out, f)
	}
	return out
}

// choose makes the field one of choices, if there are any.
func (f *field) choose(from []option, byDefault json.RawMessage) {
	if len(from) == 0 {
		return
	}
	f.Value = ""
	for i, one := range from {
		at := strconv.Itoa(i)
		if byDefault != nil && jsonobj.Canonical(one.value) == jsonobj.Canonical(byDefault) {
			f.Value = at
		}
		f.values, f.Choices = append(f.values, one.value), append(f.Choices, choice{at, one.name})
	}
}

// text returns the value that was entered, or the text of the choice.
func (f *field) text() string {
	if chosen := f.chosen(); chosen != nil {
		return textOf(chosen)
	}
	return f.Value
}

// chosen returns the value of the choice that was entered, nil if there is none.
func (f *field) chosen() json.RawMessage {
	at, err := strconv.Atoi(f.Value)
	if err != nil || at < 0 || at >= len(f.values) {
		return nil
	}
	return f.values[at]
}

// Undecided reports whether none of the choices was made, so that a form must not make one.
func (f *field) Undecided() bool { return f.chosen() == nil }

// choicesOf returns the values that a property may have, of any type.
func choicesOf(p jsonobj.Object) (out []option) {
	var values []json.RawMessage
	var names []string
	_ = json.Unmarshal(p.Get("enum"), &values)
	_ = json.Unmarshal(p.Get("enumNames"), &names)
	for i, v := range values {
		one := option{v, nameOfValue(v)}
		if len(names) == len(values) {
			one.name = names[i]
		}
		out = append(out, one)
	}
	var consts []struct {
		Const json.RawMessage
		Title string
	}
	if json.Unmarshal(p.Get("oneOf"), &consts) != nil {
		return out
	}
	for _, c := range consts {
		if c.Const == nil {
			return nil // a schema here describes more values than can be listed
		}
		out = append(out, option{c.Const, cmp.Or(c.Title, nameOfValue(c.Const))})
	}
	return out
}

// nameOfValue writes a value in one line: a text without quotes, everything else as JSON.
func nameOfValue(v json.RawMessage) string {
	if text, isText := jsonobj.Unquote(v); isText {
		return text
	}
	var line bytes.Buffer
	if json.Compact(&line, v) != nil {
		return string(v)
	}
	return readable(line.String())
}

// texts makes options of texts.
func texts(all ...string) (out []option) {
	for _, text := range all {
		out = append(out, option{jsonobj.Quote(text), text})
	}
	return out
}

// ratingFields makes the fields for a rating that an evaluator takes from a person.
func ratingFields(shown jsonobj.Object) []field {
	f := field{Key: "value", Name: fieldPrefix + "0", Title: "Score from 0 to 1", Kind: "number", Required: true}
	var labels []string
	_ = json.Unmarshal(shown.Get("labels"), &labels)
	switch shown.Text("answer") {
	case "boolean":
		f.Title, f.Kind = "Verdict", "one"
		f.choose(texts("pass", "fail"), nil)
	case "labels":
		f.Title, f.Kind = "Label", "one"
		f.choose(texts(labels...), nil)
	}
	return []field{f}
}

// errNotFilled is returned if fields of a form have an Error that says what is wrong with them.
var errNotFilled = errors.New("the answer does not fit what is asked for")

// fill takes the values of a form into its fields, and returns the object that they make.
func fill(fields []field, values url.Values) (json.RawMessage, error) {
	o := jsonobj.Object{}
	wrong := false
	for i := range fields {
		f := &fields[i]
		f.Value = strings.ReplaceAll(values.Get(f.Name), "\r\n", "\n")
		value, err := f.json()
		if err != nil {
			f.Error, wrong = err.Error(), true
		}
		if value != nil {
			o = append(o, jsonobj.Member{Key: f.Key, Value: value})
		}
	}
	if wrong {
		return nil, errNotFilled
	}
	return o.JSON(), nil
}

// json returns the value of a field, nil if it was left out.
func (f *field) json() (json.RawMessage, error) {
	if f.Kind == "yes" {
		return json.RawMessage(strconv.FormatBool(f.Value == "true")), nil
	}
	if strings.TrimSpace(f.Value) == "" {
		if f.Required {
			return nil, errors.New("expected an answer")
		}
		return nil, nil
	}
	switch f.Kind {
	case "number":
		text := strings.TrimSpace(f.Value)
		if _, err := strconv.ParseInt(text, 10, 64); f.isInteger && err != nil {
			return nil, fmt.Errorf("expected a whole number, got %q", plain(text))
		}
		if _, err := strconv.ParseFloat(text, 64); err != nil || !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("expected a number, got %q", plain(text))
		}
		return json.RawMessage(text), f.limits.ofNumber(text)
	case "text", "long":
		return jsonobj.Quote(f.text()), f.limits.ofText(f.text())
	case "one":
		chosen := f.chosen()
		if chosen == nil {
			return nil, errors.New("expected one of the choices")
		}
		return chosen, nil
	case "json":
		if !json.Valid([]byte(f.Value)) {
			return nil, errors.New("expected one JSON document")
		}
		return json.RawMessage(f.Value), nil
	}
	return jsonobj.Quote(f.text()), nil
}
