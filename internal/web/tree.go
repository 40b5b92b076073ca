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

// The limits of a value that is shown as a tree: nodes, and levels that are open.
const (
	maxNodes  = 150
	openLevel = 3
)

// shown is a value as a page shows it: as a tree, in which texts stand as they are, and as JSON.
type shown struct {
	Tree *node
	// Parts are the value as JSON or text; of a value with a tree only that.
	Parts []textPart
	// URL is where all of it can be had; empty if that is nowhere.
	URL string
}

// node is a member of a value.
type node struct {
	// Name is the name or the place of the member, empty of the whole value.
	Name string
	// Text is a leaf: a text as it is, anything else as JSON. Long says that it has a box of its own.
	Text string
	Long bool
	// Kind is text, other, object or list. Of the last two Of counts the members, of which Left are left out.
	Kind     string
	Of, Left int
	Members  []node
	// Open says that its members are shown. Differs says that it is not as it was expected.
	Open, Differs bool
	// More is how many bytes of a text are left out.
	More int
}

// Summary says what a node is that has members.
func (n node) Summary() string {
	if n.Kind == "list" {
		return "[" + strconv.Itoa(n.Of) + "]"
	}
	return "{" + strconv.Itoa(n.Of) + "}"
}

// shownValue shows a value. differs has the paths at which it is not as it was expected, url is where all of
// it can be had.
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

// differing are the paths of leaves at which the output is not what is expected, where what is expected is an
// object or a list.
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
