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

// schema reads a JSON schema. Its references must not form a circle: a document would be compared with
// them for ever.
func (r *reader) schema(v *input.Node) *jsonschema.Resolved {
	before := len(r.Problems)
	refs := map[string][]string{}
	for _, where := range []string{"$defs", "definitions"} {
		defs := v.Member(where)
		if defs == nil {
			continue
		}
		for _, m := range defs.Members {
			name := "#/" + where + "/" + m.Key
			refs[name] = r.references(m.Value)
		}
	}
	r.references(v)
	for name := range refs {
		if reaches(refs, name, name, map[string]bool{}) {
			r.Errorf(v, "%s refers to itself, which is not supported here", name)
			break
		}
	}
	if len(r.Problems) > before {
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

// references returns the references in a schema, and refuses those that are not supported.
func (r *reader) references(n *input.Node) (refs []string) {
	for _, item := range n.Items {
		refs = append(refs, r.references(item)...)
	}
	for _, m := range n.Members {
		switch m.Key {
		case "$ref":
			if name := m.Value.Text; strings.HasPrefix(name, "#/$defs/") || strings.HasPrefix(name, "#/definitions/") {
				refs = append(refs, name)
				continue
			}
			r.Errorf(m.Value, "expected #/$defs/NAME or #/definitions/NAME, got %s", m.Value.JSON())
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
		refs = append(refs, r.references(m.Value)...)
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

// reaches reports whether references lead from one definition to another. A reference into a definition,
// such as #/$defs/a/items, is one to it.
func reaches(refs map[string][]string, from, to string, seen map[string]bool) bool {
	for _, name := range refs[from] {
		if parts := strings.Split(name, "/"); len(parts) > 3 {
			name = strings.Join(parts[:3], "/")
		}
		if name == to {
			return true
		}
		if !seen[name] {
			seen[name] = true
			if reaches(refs, name, to, seen) {
				return true
			}
		}
	}
	return false
}
