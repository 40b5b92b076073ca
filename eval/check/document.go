package check

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// document makes isJson and containsJson.
func (r *reader) document(kind string, v *input.Node) test {
	want := "JSON"
	var schema *jsonschema.Resolved
	switch {
	case v.Kind == input.Object:
		want = "JSON that fits the schema"
		if schema = r.schema(v); schema == nil {
			return nil
		}
	case v.Kind != input.Bool || v.Text != "true":
		r.Errorf(v, "expected true or a JSON schema, got %s", v.JSON())
		return nil
	}
	if kind == "containsJson" {
		return ofText("a text with "+want+" in it", func(t string) answer { return containsJSON(t, schema) })
	}
	return func(_ context.Context, _ *scene, actual any) answer {
		a := answer{want: want, got: shownValue(actual)}
		var raw []byte
		if t, ok := actual.(string); ok {
			if raw = []byte(t); strings.TrimSpace(t) == "" || !jsonobj.Valid(raw) {
				a.got = "what is no JSON: " + a.got
				return a
			}
		} else {
			var err error
			if raw, err = jsonobj.Marshal(actual); err != nil {
				a.unfit = "it cannot be written as JSON"
				return a
			}
		}
		if wrong := against(schema, raw); wrong != "" {
			a.got += ": " + wrong
			return a
		}
		a.score = 1
		return a
	}
}

// against says what is wrong with a document, nothing if it fits the schema.
func against(schema *jsonschema.Resolved, raw []byte) string {
	if schema == nil {
		return ""
	}
	if _, err := pyvalue.Parse(raw); err != nil { // also one that is nested too deep
		return err.Error()
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return err.Error()
	}
	if err := schema.Validate(v); err != nil {
		return shown(err.Error())
	}
	return ""
}

// containsJSON looks for an object or an array. The work is bounded: a text may have very many beginnings
// of documents that never end.
func containsJSON(t string, schema *jsonschema.Resolved) answer {
	work := 8*len(t) + 1<<20
	wrong := ""
	for at := 0; ; {
		next := strings.IndexAny(t[at:], "{[")
		if next < 0 {
			break
		}
		if at += next; work <= 0 {
			return answer{unfit: "it has too many beginnings of JSON that do not end"}
		}
		rest := &countingReader{Reader: strings.NewReader(t[at:])}
		var raw json.RawMessage
		err := json.NewDecoder(rest).Decode(&raw)
		work -= rest.read
		if err != nil {
			at++
			continue
		}
		problem := against(schema, raw)
		if problem == "" {
			return answer{score: 1}
		}
		if wrong == "" {
			wrong = shown(string(raw)) + ": " + problem
		}
		at += len(raw)
	}
	if wrong != "" {
		return answer{got: wrong}
	}
	return answer{}
}

// countingReader counts what has been read.
type countingReader struct {
	io.Reader
	read int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.read += n
	return n, err
}

// maxPattern is how many instructions a regular expression of a schema may have: nothing ends it.
const maxPattern = 1000

// maxExpanded is how many schemas the references of a schema may lead to, each counted as often as it
// is reached: a few definitions that name the next one twice are endless work.
const maxExpanded = 10_000

// schema reads a JSON schema. Its references must not form a circle: a document would be compared with
// them for ever.
func (r *reader) schema(v *input.Node) *jsonschema.Resolved {
	before := len(r.Problems)
	refs := map[string][]string{}
	body := *v // what there is besides the definitions
	body.Members = nil
	for _, m := range v.Members {
		if m.Key != "$defs" && m.Key != "definitions" {
			body.Members = append(body.Members, m)
			continue
		}
		for _, one := range m.Value.Members {
			refs["#/"+m.Key+"/"+one.Key] = r.references(&body, one.Value, false)
		}
	}
	own := r.references(&body, &body, false)
	known := map[string]bool{}
	for _, name := range own {
		if found := circle(refs, definition(name), known); found != "" {
			r.Errorf(v, "%s refers to itself, which is not supported here", found)
			break
		}
	}
	if len(r.Problems) > before {
		return nil
	}
	if expanded(refs, own, map[string]int{}) > maxExpanded {
		r.Errorf(v, "the references lead to more than %d schemas", maxExpanded)
		return nil
	}
	var schema jsonschema.Schema
	err := json.Unmarshal(v.JSON(), &schema)
	if err == nil {
		var resolved *jsonschema.Resolved
		if resolved, err = schema.Resolve(nil); err == nil {
			return resolved
		}
	}
	r.Errorf(v, "expected a JSON schema: %v", err)
	return nil
}

// keywords are those that references looks at. The values of the ones in ofNames are objects whose keys
// are names that somebody has chosen, and no keywords.
var (
	ofNames  = []string{"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
	keywords = append([]string{"$ref", "$id", "$dynamicRef", "$recursiveRef", "const", "enum", "default", "examples",
		"type", "pattern"}, ofNames...)
)

// references returns the references in a part of a schema, and refuses those that are not supported.
// names says that the keys of the part are names.
func (r *reader) references(whole, n *input.Node, names bool) (refs []string) {
	for _, item := range n.Items {
		refs = append(refs, r.references(whole, item, false)...)
	}
	for _, m := range n.Members {
		if names {
			refs = append(refs, r.references(whole, m.Value, false)...)
			continue
		}
		// The library takes a keyword in any case.
		for _, known := range keywords {
			if known != m.Key && strings.EqualFold(known, m.Key) {
				r.Errorf(m.Value, "expected a JSON schema: there is no keyword %q; did you mean %q?", m.Key, known)
			}
		}
		switch m.Key {
		case "$ref":
			// An escaped name would be another one here than in the library.
			if name := m.Value.Text; (strings.HasPrefix(name, "#/$defs/") || strings.HasPrefix(name, "#/definitions/")) &&
				!strings.ContainsAny(name, "%~") {
				refs = append(refs, name)
				continue
			}
			r.Errorf(m.Value, "expected #/$defs/NAME or #/definitions/NAME, got %s", m.Value.JSON())
		case "$id":
			if n != whole { // the references below it would be those of another schema
				r.Errorf(m.Value, "only the whole schema may have $id here")
			}
		case "const", "enum", "default", "examples":
			continue // values, not schemas
		case "type":
			r.typeNames(m.Value)
		case "$dynamicRef", "$recursiveRef":
			r.Errorf(m.Value, "%s is not supported here", m.Key)
		case "pattern":
			r.pattern(m.Value, m.Value.Text)
		case "patternProperties":
			for _, one := range m.Value.Members {
				r.pattern(one.Value, one.Key)
			}
		}
		refs = append(refs, r.references(whole, m.Value, slices.Contains(ofNames, m.Key))...)
	}
	return refs
}

// typeNames refuses names of types that do not exist, with which nothing would fit the schema. A property
// may be called type, too.
func (r *reader) typeNames(n *input.Node) {
	known := []string{"null", "boolean", "object", "array", "number", "integer", "string"}
	for _, one := range append([]*input.Node{n}, n.Items...) {
		if one.Kind == input.String && !slices.Contains(known, one.Text) {
			r.Errorf(one, "expected a JSON schema: there is no type %q%s", one.Text, input.Suggest(one.Text, known))
		}
	}
}

func (r *reader) pattern(n *input.Node, pattern string) {
	if _, size, err := compile(pattern); err == nil && size > maxPattern {
		r.Errorf(n, "the expression is too large: %s", fmt.Sprintf("%d instructions, at most %d", size, maxPattern))
	}
}

// definition is the definition that a reference leads into: one such as #/$defs/a/items is one to a.
func definition(name string) string {
	if parts := strings.Split(name, "/"); len(parts) > 3 {
		return strings.Join(parts[:3], "/")
	}
	return name
}

// circle returns a definition that leads to itself, beginning with the one of a name; empty if there is none.
// known has the definitions that were met, and whether all of their references were followed.
func circle(refs map[string][]string, name string, known map[string]bool) string {
	if followed, met := known[name]; met {
		if followed {
			return ""
		}
		return name
	}
	known[name] = false
	for _, ref := range refs[name] {
		if found := circle(refs, definition(ref), known); found != "" {
			return found
		}
	}
	known[name] = true
	return ""
}

// expanded counts the schemas to which references lead that form no circle, up to one more than there
// may be.
func expanded(refs map[string][]string, from []string, known map[string]int) int {
	n := 0
	for _, name := range from {
		name = definition(name)
		if _, ok := known[name]; !ok {
			known[name] = expanded(refs, refs[name], known)
		}
		n = min(n+1+known[name], maxExpanded+1)
	}
	return n
}
