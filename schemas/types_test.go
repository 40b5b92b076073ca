package schemas

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalrun/evalrun/eval/calibrate"
	"github.com/evalrun/evalrun/eval/compare"
)

// Every property of the schema of the results document has a field, and every field a property, of
// the same type and equally optional.
func TestResultsHaveTheTypesOfTheirSchema(t *testing.T) {
	schema, err := load("results.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	c := comparison{root: schema, seen: map[string]bool{}}
	c.value("results", schema, reflect.TypeFor[Results]())
	for _, problem := range c.problems {
		t.Error(problem)
	}
}

// The same for what compare and calibrate write.
func TestComparisonsHaveTheTypesOfTheirSchemas(t *testing.T) {
	for file, typ := range map[string]reflect.Type{"comparison": reflect.TypeFor[compare.Document](), "selftest": reflect.TypeFor[compare.SelfTestDocument](),
		"calibration": reflect.TypeFor[calibrate.Document]()} {
		schema, err := load(file + ".schema.json")
		if err != nil {
			t.Fatal(err)
		}
		c := comparison{root: schema, seen: map[string]bool{}}
		c.value(file, schema, typ)
		for _, problem := range c.problems {
			t.Error(problem)
		}
	}
}

// The same for an event, and for the data of each of its types.
func TestEventsHaveTheTypesOfTheirSchema(t *testing.T) {
	schema, err := load("event.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	c := comparison{root: schema, seen: map[string]bool{}}
	c.value("event", schema, reflect.TypeFor[Event]())
	types := schema.Properties["type"].Enum
	if len(types) != len(schema.AllOf) {
		t.Errorf("%d types and %d kinds of data", len(types), len(schema.AllOf))
	}
	for _, one := range schema.AllOf {
		typ, _ := (*one.If.Properties["type"].Const).(string)
		data := newData(EventType(typ))
		if data == nil || !slices.Contains(types, any(typ)) {
			t.Errorf("no type for the data of %q", typ)
			continue
		}
		c.value(typ, one.Then.Properties["data"], reflect.TypeOf(data).Elem())
	}
	for _, problem := range c.problems {
		t.Error(problem)
	}
}

// comparison compares a schema with Go types, and collects where they differ.
type comparison struct {
	root     *jsonschema.Schema
	seen     map[string]bool
	problems []string
}

func (c *comparison) problem(at, format string, args ...any) {
	c.problems = append(c.problems, at+": "+fmt.Sprintf(format, args...))
}

// value compares the schema of a value with the type that it is read into.
func (c *comparison) value(at string, s *jsonschema.Schema, typ reflect.Type) {
	if s.Ref != "" {
		name := path.Base(s.Ref)
		if key := name + " " + typ.String(); c.seen[key] {
			return
		} else {
			c.seen[key] = true
		}
		c.value(name, c.root.Defs[name], typ)
		return
	}
	if typ == reflect.TypeFor[json.RawMessage]() {
		return // any value
	}
	kinds, object := kindsOf(s)
	if typ.Kind() == reflect.Pointer {
		c.value(at, withoutNull(s, object), typ.Elem())
		return
	}
	if len(kinds) != 1 {
		c.problem(at, "the schema allows %v, the type is %s", kinds, typ)
		return
	}
	if want := kindOf(typ); kinds[0] != want {
		c.problem(at, "the schema says %s, the type %s is read from %s", kinds[0], typ, want)
		return
	}
	switch typ.Kind() {
	case reflect.Slice:
		if s.Items != nil {
			c.value(at+"[]", s.Items, typ.Elem())
		}
	case reflect.Map:
		if s.AdditionalProperties != nil {
			c.value(at+".*", s.AdditionalProperties, typ.Elem())
		}
	case reflect.Struct:
		if typ != reflect.TypeFor[time.Time]() {
			c.object(at, withoutNull(s, object), typ)
		}
	}
}

// object compares properties with fields.
func (c *comparison) object(at string, s *jsonschema.Schema, typ reflect.Type) {
	fields := map[string]field{}
	collect(fields, typ)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		f, ok := fields[name]
		if !ok {
			c.problem(at+"."+name, "%s has no field for it", typ)
			continue
		}
		delete(fields, name)
		property := s.Properties[name]
		if required := slices.Contains(s.Required, name); required == f.optional {
			c.problem(at+"."+name, "required is %v in the schema, the field may be left out: %v", required, f.optional)
		}
		if pointer := f.typ.Kind() == reflect.Pointer; pointer && !f.optional && !allowsNull(property) {
			c.problem(at+"."+name, "the field may be null, the schema does not allow it")
		} else if !pointer && f.typ != reflect.TypeFor[json.RawMessage]() && f.typ.Kind() != reflect.Map && allowsNull(property) {
			c.problem(at+"."+name, "the schema allows null, the field %s does not", f.typ)
		}
		c.value(at+"."+name, withoutNull(property, nil), f.typ)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		c.problem(at+"."+name, "%s has a field for it, the schema has no property", typ)
	}
}

type field struct {
	typ      reflect.Type
	optional bool
}

// collect finds the fields of a struct and of those that are embedded in it, by JSON name.
func collect(out map[string]field, typ reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			collect(out, f.Type)
		default:
			out[name] = field{f.Type, strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")}
		}
	}
}

// kindsOf are the JSON types that a schema allows, and of an anyOf the schema of the one that is
// not null.
func kindsOf(s *jsonschema.Schema) (kinds []string, object *jsonschema.Schema) {
	switch {
	case s.Type != "":
		return []string{s.Type}, nil
	case s.Types != nil:
		return slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" }), nil
	case s.AnyOf != nil:
		for _, one := range s.AnyOf {
			if one.Type != "null" {
				kinds, _ = kindsOf(one)
				object = one
			}
		}
		return kinds, object
	case s.Enum != nil || s.Const != nil:
		return []string{"string"}, nil // all enumerations are of strings
	}
	return nil, nil
}

// withoutNull is the schema of the value if it is not null.
func withoutNull(s, object *jsonschema.Schema) *jsonschema.Schema {
	if object == nil && s.AnyOf != nil {
		_, object = kindsOf(s)
	}
	if object != nil {
		return object
	}
	return s
}

func allowsNull(s *jsonschema.Schema) bool {
	return slices.Contains(s.Types, "null") || slices.ContainsFunc(s.AnyOf, func(one *jsonschema.Schema) bool { return one.Type == "null" })
}

// kindOf is the JSON type that a Go type is read from.
func kindOf(typ reflect.Type) string {
	if typ == reflect.TypeFor[time.Time]() {
		return "string"
	}
	switch typ.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.String:
		return "string"
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	}
	return typ.Kind().String()
}
