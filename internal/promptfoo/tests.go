package promptfoo

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// maxTests bounds what a matrix of variables expands to.
const maxTests = 100_000

// test is one test before its variables are multiplied out.
type test struct {
	node        *input.Node
	description string
	vars        []variable
	asserts     []*input.Node
	threshold   *input.Node
	// transform is that of the whole output.
	transform *input.Node
	judge     *input.Node
	metadata  *input.Node
}

// variable is one variable with the values that it takes in turn.
type variable struct {
	name   string
	values []json.RawMessage
}

func (im *importer) tests(f *input.Fields) {
	var base test
	if n := f.Optional("defaultTest", input.Object); n != nil {
		base = im.test(n, test{node: n})
	} else if n := f.Get("defaultTest"); n != nil && n.Kind == input.String {
		im.miss(n, "a default test in a file has no counterpart")
	}
	n := f.Get("tests")
	if n == nil {
		return
	}
	items := []*input.Node{n}
	if n.Kind == input.Array {
		items = n.Items
	}
	for _, item := range items {
		switch item.Kind {
		case input.Object:
			im.expand(im.test(item, base))
		case input.String:
			im.testFile(item, base)
		default:
			im.Errorf(item, "expected a test, or a file of tests, got %s", item.Kind)
		}
	}
}

// testFile reads tests of a CSV, YAML or JSON file.
func (im *importer) testFile(n *input.Node, base test) {
	name := strings.TrimPrefix(n.Text, "file://")
	switch ext := filepath.Ext(name); {
	case strings.ContainsAny(name, "*?["), strings.HasPrefix(name, "http"), strings.HasPrefix(name, "huggingface:"):
		im.miss(n, "tests of %s have no counterpart", name)
	case ext == ".csv":
		im.csv(n, name, base)
	case ext == ".yaml" || ext == ".yml" || ext == ".json":
		data, err := im.read(name)
		if err != nil {
			im.Errorf(n, "%v", err)
			return
		}
		root, err := input.Parse(filepath.Join(im.dir, name), data)
		if err != nil {
			im.Errorf(n, "%v", err)
			return
		}
		items := []*input.Node{root}
		if root.Kind == input.Array {
			items = root.Items
		}
		for _, item := range items {
			im.expand(im.test(item, base))
		}
	default:
		im.miss(n, "tests of %s have no counterpart; a .csv, .yaml or .json file has", name)
	}
}

// test reads a test over the default one.
func (im *importer) test(n *input.Node, base test) test {
	f := im.Object(n)
	t := base
	t.node, t.description = n, f.String("description", "")
	if v := f.Optional("metadata", input.Object); v != nil {
		t.metadata = v
	}
	t.vars = append([]variable{}, base.vars...)
	if vars := f.Get("vars"); vars != nil && vars.Kind == input.Object {
		for _, m := range vars.Members {
			if values, ok := im.values(m.Value); ok {
				t.setVar(m.Key, values)
			}
		}
	} else if vars != nil && vars.Kind != input.Null {
		im.miss(vars, "variables in a file have no counterpart")
	}
	t.asserts = append([]*input.Node{}, base.asserts...)
	if list := f.Optional("assert", input.Array); list != nil {
		t.asserts = append(t.asserts, list.Items...)
	}
	if v := f.Optional("threshold", input.Number); v != nil {
		t.threshold = v
	}
	if o := f.Optional("options", input.Object); o != nil {
		of := im.Object(o)
		if v := of.Get("transform"); v != nil {
			t.transform = v
		}
		if v := of.Get("provider"); v != nil {
			t.judge = v
		}
		im.rest(of)
	}
	im.rest(f)
	return t
}

func (t *test) setVar(name string, values []json.RawMessage) {
	for i := range t.vars {
		if t.vars[i].name == name {
			t.vars[i].values = values
			return
		}
	}
	t.vars = append(t.vars, variable{name, values})
}

// values returns the values of a variable: those of an array are taken in turn if the first is a text. Any
// other array is one value.
func (im *importer) values(n *input.Node) ([]json.RawMessage, bool) {
	items := []*input.Node{n}
	if n.Kind == input.Array && len(n.Items) > 0 && n.Items[0].Kind == input.String {
		items = n.Items
	}
	var out []json.RawMessage
	for _, item := range items {
		if item.Kind != input.String {
			out = append(out, item.JSON())
			continue
		}
		text, ok := im.text(item)
		if !ok {
			return nil, false
		}
		if wrong := anyPlace.FindString(text); wrong != "" {
			im.miss(item, "%s in a variable has no counterpart", wrong)
			return nil, false
		}
		out = append(out, jsonOf(text))
	}
	return out, len(out) > 0
}

// expand makes an evaluation for each choice of values.
func (im *importer) expand(t test) {
	total := 1
	for _, v := range t.vars {
		if total *= len(v.values); total > maxTests || len(im.out.Evaluations)+total > maxTests {
			im.Errorf(t.node, "expected at most %d tests", maxTests)
			return
		}
	}
	for k := range total {
		vars, rest := map[string]json.RawMessage{}, k
		for i := len(t.vars) - 1; i >= 0; i-- { // the last variable changes first
			v := t.vars[i]
			vars[v.name] = v.values[rest%len(v.values)]
			rest /= len(v.values)
		}
		im.evaluation(t, vars, k, total)
	}
}

func (im *importer) evaluation(t test, vars map[string]json.RawMessage, k, total int) {
	number := len(im.out.Evaluations) + 1
	e := evaluation{ID: fmt.Sprintf("test-%d", number), Name: t.description, Inputs: jsonOf(vars),
		Criteria: map[string]map[string]any{}}
	if e.Name == "" {
		e.Name = fmt.Sprintf("Test %d", number)
	} else if total > 1 {
		e.Name = fmt.Sprintf("%s (%d of %d)", e.Name, k+1, total)
	}
	if t.metadata != nil {
		_ = json.Unmarshal(t.metadata.JSON(), &e.Metadata) // it is an object
	}
	a := &asserts{importer: im, test: t, vars: vars, evaluation: &e, first: k == 0}
	var checks []map[string]any
	for _, n := range t.asserts {
		if c := a.one(n); c != nil {
			checks = append(checks, c)
		}
	}
	if len(checks) > 0 {
		if t.threshold != nil {
			checks = []map[string]any{{"allOf": checks, "threshold": t.threshold.JSON()}}
		}
		e.Criteria[checksID], e.hasChecks = map[string]any{"checks": checks}, true
	}
	if len(t.asserts) == 0 && a.first {
		im.differ(t.node, "the test asserts nothing: there it passes, and here it is not scored")
	}
	im.out.Evaluations = append(im.out.Evaluations, e)
}

// expectedColumn matches the columns of CSV files that hold an assertion.
var expectedColumn = regexp.MustCompile(`^__expected[0-9]*$`)

// csv reads tests of a CSV file: a column is a variable, unless its name begins with __.
func (im *importer) csv(n *input.Node, name string, base test) {
	data, err := im.read(name)
	if err != nil {
		im.Errorf(n, "%v", err)
		return
	}
	file := filepath.Join(im.dir, filepath.FromSlash(name))
	rows := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	rows.FieldsPerRecord = -1
	head, err := rows.Read()
	if err != nil {
		im.Errorf(n, "%s: expected a line with the names of the columns: %v", name, err)
		return
	}
	for i, column := range head {
		if head[i] = strings.TrimSpace(column); strings.HasPrefix(head[i], "__") && !expectedColumn.MatchString(head[i]) &&
			head[i] != "__description" && head[i] != "__threshold" && !strings.HasPrefix(head[i], "__metadata:") {
			im.miss(&input.Node{File: file, Line: 1, Column: 1, Path: head[i]}, "the column %s has no counterpart", head[i])
		}
	}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		var wrong *csv.ParseError
		if errors.As(err, &wrong) {
			im.Errorf(&input.Node{File: file, Line: wrong.Line, Column: wrong.Column}, "expected CSV: %v", wrong.Err)
			return
		}
		if err != nil {
			im.Errorf(n, "%s: %v", name, err)
			return
		}
		line, _ := rows.FieldPos(0)
		where := &input.Node{File: file, Line: line, Column: 1}
		if len(row) > len(head) {
			im.Errorf(where, "expected %d cells, as in the first line", len(head))
			return
		}
		im.expand(im.row(where, head, row, base))
	}
}

func (im *importer) row(where *input.Node, head, row []string, base test) test {
	t := base
	t.node = where
	t.vars, t.asserts = append([]variable{}, base.vars...), append([]*input.Node{}, base.asserts...)
	for i, cell := range row {
		at := *where
		at.Path, at.Kind, at.Text = head[i], input.String, cell
		switch column := head[i]; {
		case expectedColumn.MatchString(column):
			if strings.TrimSpace(cell) != "" {
				t.asserts = append(t.asserts, shortAssert(&at))
			}
		case column == "__description":
			t.description = cell
		case column == "__threshold" && cell != "":
			if v, err := strconv.ParseFloat(cell, 64); err != nil || !(v >= 0 && v <= 1) {
				im.Errorf(where, "__threshold: expected a number from 0 to 1, got %q", cell)
				continue
			}
			at.Kind = input.Number
			t.threshold = &at
		case strings.HasPrefix(column, "__metadata:") && cell != "":
			// promptfoo's metadata of a row is for its own filters; ours is for people.
			name := strings.TrimPrefix(column, "__metadata:")
			if t.metadata == nil || t.metadata == base.metadata {
				t.metadata = &input.Node{Kind: input.Object}
			}
			t.metadata.Members = append(t.metadata.Members, input.Member{Key: name, Value: &at})
		case strings.HasPrefix(column, "__"):
		default:
			t.setVar(column, []json.RawMessage{jsonOf(cell)})
		}
	}
	return t
}

// shortForm matches an assertion in a cell, such as similar(0.8):text.
var shortForm = regexp.MustCompile(`(?s)^\s*([a-z][a-z-]*)(?:\(([0-9.]+)\))?:(.*)$`)

// shortAssert reads the assertion of a cell; a text alone must be equal.
func shortAssert(n *input.Node) *input.Node {
	member := func(key string, kind input.Kind, text string) input.Member {
		value := *n
		value.Kind, value.Text = kind, text
		return input.Member{Key: key, Line: n.Line, Column: n.Column, Value: &value}
	}
	out := *n
	out.Kind, out.Text = input.Object, ""
	m := shortForm.FindStringSubmatch(n.Text)
	words := strings.TrimSpace(n.Text)
	switch {
	case words == "is-json" || words == "contains-json":
		out.Members = []input.Member{member("type", input.String, words)}
	case m == nil || !known(m[1]):
		out.Members = []input.Member{member("type", input.String, "equals"), member("value", input.String, n.Text)}
	default:
		out.Members = []input.Member{member("type", input.String, m[1]), member("value", input.String, strings.TrimSpace(m[3]))}
		if m[2] != "" {
			out.Members = append(out.Members, member("threshold", input.Number, m[2]))
		}
	}
	return &out
}
