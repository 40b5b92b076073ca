package dataset

import (
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// template is a value in which {row.NAME} stands for a column of a row. A text that is only one
// {row.NAME} becomes the column's value, whatever its kind; in a longer text the value is written
// as text. Values are not filled in again.
type template struct {
	root   *input.Node
	places []place
}

// place is a {row.NAME} of a template.
type place struct {
	name string
	node *input.Node
}

var (
	placePattern = regexp.MustCompile(`\{row\.([^{}]*)\}`)
	startPattern = regexp.MustCompile(`\{\s*row\s*\.`)
)

// newTemplate makes a template from a value. It records problems of its places in r.
func newTemplate(r *input.Reader, n *input.Node) *template {
	t := &template{root: n}
	t.find(r, n)
	return t
}

func (t *template) find(r *input.Reader, n *input.Node) {
	if n.Kind == input.String {
		t.findIn(r, n)
	}
	for _, item := range n.Items {
		t.find(r, item)
	}
	for _, m := range n.Members {
		if startPattern.MatchString(m.Key) {
			r.Errorf(m.Value, "a key is not filled in; expected {row.…} only in values")
		}
		t.find(r, m.Value)
	}
}

func (t *template) findIn(r *input.Reader, n *input.Node) {
	found := placePattern.FindAllStringSubmatch(n.Text, -1)
	switch {
	case strings.Contains(n.Text, "{{row."):
		r.Errorf(n, "expected single braces, as in {row.subject}, got %q", n.Text)
		return
	case len(startPattern.FindAllString(n.Text, -1)) != len(found):
		r.Errorf(n, "expected the name of a column as in {row.subject}, with its closing brace and no spaces, got %q", n.Text)
		return
	}
	for _, m := range found {
		if strings.TrimSpace(m[1]) == "" {
			r.Errorf(n, "expected the name of a column in {row.…}, got %s", m[0])
			continue
		}
		t.places = append(t.places, place{m[1], n})
	}
}

// check records in r the columns that the template names and a table does not have. Names inside a
// column that is an object are checked in the rows only.
func (t *template) check(r *input.Reader, file string, columns []string) {
	for _, p := range t.places {
		in := func(name string) bool { return p.name == name || strings.HasPrefix(p.name, name+".") }
		if !slices.ContainsFunc(columns, in) {
			r.Errorf(p.node, "%s has no column %q; it has %s%s",
				file, p.name, strings.Join(columns, ", "), input.Suggest(p.name, columns))
		}
	}
}

// fill fills in a row. The values have the row's place in its file and their path in the template. A
// column that the row does not have is an [input.Problem].
func (t *template) fill(row *input.Node) (*input.Node, error) { return fillNode(t.root, row) }

func fillNode(n, row *input.Node) (*input.Node, error) {
	out := *n
	out.File, out.Line, out.Column = row.File, row.Line, row.Column
	switch n.Kind {
	case input.String:
		return fillText(&out, row)
	case input.Array:
		out.Items = make([]*input.Node, len(n.Items))
		for i, item := range n.Items {
			var err error
			if out.Items[i], err = fillNode(item, row); err != nil {
				return nil, err
			}
		}
	case input.Object:
		out.Members = make([]input.Member, len(n.Members))
		for i, m := range n.Members {
			v, err := fillNode(m.Value, row)
			if err != nil {
				return nil, err
			}
			out.Members[i] = input.Member{Key: m.Key, Line: row.Line, Column: row.Column, Value: v}
		}
	}
	return &out, nil
}

// fillText fills in a text, which n is a copy of.
func fillText(n, row *input.Node) (*input.Node, error) {
	found := placePattern.FindAllStringSubmatchIndex(n.Text, -1)
	var b strings.Builder
	last := 0
	for _, at := range found {
		name := n.Text[at[2]:at[3]]
		v := column(row, name)
		if v == nil {
			return nil, input.Problem{File: row.File, Line: row.Line, Column: row.Column,
				Key: n.Path, Message: missing(row, name)}
		}
		if at[0] == 0 && at[1] == len(n.Text) {
			whole := *v
			whole.Path = n.Path
			return &whole, nil
		}
		b.WriteString(n.Text[last:at[0]])
		b.WriteString(text(v))
		last = at[1]
	}
	b.WriteString(n.Text[last:])
	n.Text = b.String()
	return n, nil
}

// column returns the value of a row's column. If the row has no column of the name, a dot leads
// into an object.
func column(row *input.Node, name string) *input.Node {
	if v := row.Member(name); v != nil {
		return v
	}
	for i := range len(name) {
		if name[i] == '.' {
			if v := row.Member(name[:i]); v != nil && v.Kind == input.Object {
				return column(v, name[i+1:])
			}
		}
	}
	return nil
}

func missing(row *input.Node, name string) string {
	names := make([]string, len(row.Members))
	for i, m := range row.Members {
		names[i] = m.Key
	}
	return "the row has no " + name + "; it has " + strings.Join(names, ", ") + input.Suggest(name, names)
}

// text writes a value inside a longer text: null is nothing, and an object or array its JSON.
func text(v *input.Node) string {
	switch v.Kind {
	case input.Null:
		return ""
	case input.Array, input.Object:
		return string(v.JSON())
	}
	return v.Text
}
