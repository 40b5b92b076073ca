package wait

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// defaultFolder is the folder of a process that names none (the founding proposal's "Shared").
const defaultFolder = "Shared"

// ParseSpecs reads the value of one interrupt: one of UiPath's models, or any other value, which
// waits for an answer over the API. The elements of a list are siblings. A model is known by its
// fields, or named by the value's "type" or "__type__".
func ParseSpecs(value json.RawMessage) ([]Spec, error) {
	if err := jsonvalue.Check(value); err != nil {
		return nil, err
	}
	if jsonvalue.KindOf(value) != '[' {
		spec, err := parseSpec(value)
		return []Spec{spec}, err
	}
	items, err := jsonvalue.Elements(value, maxTriggers)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, errors.New("expected at least one thing to wait for, got an empty list")
	}
	specs := make([]Spec, len(items))
	for i, item := range items {
		if specs[i], err = parseSpec(item); err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return specs, nil
}

func parseSpec(value json.RawMessage) (Spec, error) {
	o, _ := jsonvalue.ParseObject(value)
	m, name, err := recognise(o)
	if err != nil {
		return Spec{}, err
	}
	if m == nil {
		return Spec{Type: TypeAPI, Name: string(TypeAPI), Payload: value}, nil
	}
	s := Spec{
		Type: m.typ, Name: name, ItemKey: at(o, m.item), Process: at(o, m.process), FolderPath: at(o, m.path),
		FolderKey: at(o, m.key), Payload: value,
	}
	switch m.class {
	case "InvokeProcess":
		if s.Process == "" {
			return s, errors.New("InvokeProcess: name: expected a string that is not empty")
		}
		if s.FolderPath == "" && s.FolderKey == "" {
			s.FolderPath = defaultFolder
		}
		s.Payload = invocation(o)
	case "MeshJob":
		if v, ok := o.Get("submitted_payload"); ok && jsonvalue.KindOf(v) != '{' && jsonvalue.KindOf(v) != 'n' {
			return s, fmt.Errorf("MeshJob: submitted_payload: expected an object, got %s", jsonvalue.KindName(v))
		}
		if s.Process == "" {
			return s, errors.New("MeshJob: capability: expected a string that is not empty")
		}
	case "WaitUntil":
		v, _ := m.field(o, "resume_time")
		at, err := parseTime(jsonvalue.String(v))
		if err != nil {
			return s, fmt.Errorf("WaitUntil: resume_time: %w", err)
		}
		s.ResumeAt = &at
	}
	return s, nil
}

// invocation is the payload of an InvokeProcess as the results document shows it: process_name and
// input_arguments, then what else was given. The folder is in the trigger itself.
func invocation(o jsonvalue.Object) json.RawMessage {
	arguments, _ := o.Get("input_arguments")
	if jsonvalue.KindOf(arguments) != '{' {
		arguments = json.RawMessage("{}")
	}
	name, _ := o.Get("name")
	out := jsonvalue.Object{{Key: "process_name", Value: name}, {Key: "input_arguments", Value: arguments}}
	for _, m := range o {
		switch m.Folded {
		case "name", "processname", "inputarguments", "processfolderpath", "processfolderkey":
			continue
		}
		if jsonvalue.KindOf(m.Value) != 'n' { // the models dump every field that was not set as null
			out = append(out, m)
		}
	}
	return out.JSON()
}

// InputArguments are the arguments of the process to start; {} if there are none.
func (s Spec) InputArguments() json.RawMessage {
	if o, ok := jsonvalue.ParseObject(s.Payload); ok {
		if v, found := o.Get("input_arguments"); found && jsonvalue.KindOf(v) == '{' {
			return v
		}
	}
	return json.RawMessage("{}")
}

var dateLike = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d`)

// parseTime reads RFC 3339, also with the space that Python's str() puts between date and time, and
// gives UTC.
func parseTime(s string) (time.Time, error) {
	if dateLike.MatchString(s) {
		s = s[:10] + "T" + s[11:]
	}
	t, err := time.Parse(time.RFC3339, strings.ToUpper(s))
	if err != nil {
		return time.Time{}, fmt.Errorf(
			`expected a time with its zone such as "2026-07-06T12:00:00Z", got %q`, jsonvalue.Excerpt([]byte(s)))
	}
	return t.UTC(), nil
}
