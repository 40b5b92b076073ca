package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
)

// The limits of a value that is shown as a tree: nodes, and open levels.
const (
	maxNodes  = 150
	openLevel = 3
)

// shown is a value as a page shows it: as a tree, in which texts are not escaped, and as JSON.
type shown struct {
	Tree *node
	// Parts are the value as JSON or text. For a value with a tree there is only the JSON.
	Parts []textPart
	// URL leads to the whole value; empty if no URL does.
	URL string
}

// node is a member of a value.
type node struct {
	// Name is the name or the index of the member, empty for the whole value.
	Name string
	// Text is a leaf: a text as it is, anything else as JSON. Long is set if it has a box of its own.
	Text string
	Long bool
	// Kind is text, other, object or list. For the last two Of counts the members, of which Left are
	// left out.
	Kind     string
	Of, Left int
	Members  []node
	// Open is set if its members are shown. Differs is set if it is not as expected.
	Open, Differs bool
	// More counts the bytes of a text that are left out.
	More int
}

// Summary describes a node that has members.
func (n node) Summary() string {
	if n.Kind == "list" {
		return "[" + strconv.Itoa(n.Of) + "]"
	}
	return "{" + strconv.Itoa(n.Of) + "}"
}

// shownValue shows a value. differs has the paths at which it is not as expected. url leads to
// the whole value.
func shownValue(raw json.RawMessage, differs map[string]bool, url string) shown {
	out := shown{Parts: valueParts(raw), URL: url}
	if len(out.Parts) == 0 || len(raw) >= 64*maxValue || stringOf(raw) != "" || deeper(raw, maxIndented) {
		return out
	}
	v, ok := decode(raw)
	if !ok {
		return out
	}
	switch v.(type) {
	case map[string]any, []any:
	default:
		return out
	}
	left := maxNodes
	tree := newNode("", "$", v, 0, differs, &left)
	out.Tree, out.Parts = &tree, out.Parts[:1]
	return out
}

func newNode(name, path string, v any, level int, differs map[string]bool, left *int) node {
	n := node{Name: name, Open: level < openLevel, Differs: differs[path]}
	add := func(name, path string, v any) {
		if *left <= 0 {
			n.Left++
			return
		}
		*left--
		n.Members = append(n.Members, newNode(name, path, v, level+1, differs, left))
	}
	switch v := v.(type) {
	case string:
		n.Kind = "text"
		n.Text, n.More = cut(v, maxValue)
		n.Long = len(v) > longText || strings.Contains(v, "\n")
	case map[string]any:
		if n.Kind, n.Of = "object", len(v); n.Of == 0 {
			n.Kind, n.Text = "other", "{}"
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			add(key, path+member(key), v[key])
		}
	case []any:
		if n.Kind, n.Of = "list", len(v); n.Of == 0 {
			n.Kind, n.Text = "other", "[]"
		}
		for i, one := range v {
			add(strconv.Itoa(i), fmt.Sprintf("%s[%d]", path, i), one)
		}
	default:
		n.Kind, n.Text = "other", inJSON(v)
	}
	return n
}

// differing returns the paths of leaves at which the output differs from the expected value, if
// that is an object or a list.
func differing(expected, output json.RawMessage) map[string]bool {
	out := map[string]bool{}
	if len(expected) == 0 || len(output) == 0 || len(expected)+len(output) > 64*maxValue {
		return out
	}
	if l := leavesOf(&eval.Comparison{Expected: expected, Actual: output, Relation: eval.Includes}); l != nil {
		for _, row := range l.Rows {
			out[row.Path] = true
		}
	}
	return out
}
