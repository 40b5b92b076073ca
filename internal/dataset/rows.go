package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
)

// maxProblems is the number of problems after which a data set is read no further.
const maxProblems = 20

// Each calls f with the evaluation of each row, one after the other; it keeps only a hash of each
// row's id. It records problems of rows in r and does not give these rows to f; after some problems
// it does not read the rest. At the end it sets digest and number of rows in the set's Dataset. An
// error of f that is an [input.Problem] is one of the row; any other is the error.
func (d *Dataset) Each(r *input.Reader, f func(eval.Evaluation) error) error {
	if d == nil || !known(d.file) { // which Parse has recorded
		return nil
	}
	path := d.In(filepath.Dir(d.set.Path))
	file, err := open(path)
	if err != nil {
		d.unreadable(r, err)
		return nil
	}
	defer file.close()
	rows := rows{Dataset: d, ids: map[uint64]int{}, seed: maphash.MakeSeed()}
	for _, e := range d.set.Evaluations {
		rows.ids[maphash.String(rows.seed, e.ID)] = 0
	}
	if columns := file.columns; columns != nil && !d.hasColumns(r, columns) {
		return nil
	}
	file.uses = d.uses
	found, n := 0, 0
	for {
		row, err := file.next()
		if errors.Is(err, io.EOF) {
			break
		}
		var e eval.Evaluation
		if err == nil {
			e, err = rows.evaluation(row)
		}
		var p input.Problem
		if err == nil {
			n++
			if err = f(e); err == nil {
				continue
			}
			if !errors.As(err, &p) {
				return err
			}
			p.File, p.Line, p.Column = row.File, row.Line, row.Column
			err = p
		}
		if !errors.As(err, &p) {
			d.unreadable(r, fmt.Errorf("%s: %w", path, err))
			return nil
		}
		if found++; found > maxProblems {
			r.Errorf(d.node.Member("file"), "%s has more problems than these; the rest of it was not read", d.file)
			return nil
		}
		r.Problems = append(r.Problems, p)
	}
	if n == 0 && found == 0 {
		r.Errorf(d.node.Member("file"), "%s has no rows; expected at least one", d.file)
	}
	d.set.Dataset = &eval.Dataset{File: d.file, Digest: file.sum(), Rows: n}
	return nil
}

// unreadable records why the file cannot be read, at its place in the set unless it has one itself.
func (d *Dataset) unreadable(r *input.Reader, err error) {
	var p input.Problem
	if errors.As(err, &p) {
		r.Problems = append(r.Problems, p)
	} else {
		r.Errorf(d.node.Member("file"), "%v", err)
	}
}

// hasColumns makes sure that the table has every column that is named.
func (d *Dataset) hasColumns(r *input.Reader, columns []string) bool {
	before := len(r.Problems)
	for _, key := range keys {
		if t := d.templates[key]; t != nil {
			t.check(r, d.file, columns)
		}
	}
	return len(r.Problems) == before
}

// uses reports whether a column is named anywhere.
func (d *Dataset) uses(column string) bool {
	for _, t := range d.templates {
		if slices.ContainsFunc(t.places, func(p place) bool {
			return p.name == column || strings.HasPrefix(p.name, column+".")
		}) {
			return true
		}
	}
	return false
}

// rows makes evaluations of rows.
type rows struct {
	*Dataset
	// ids maps hashes of the ids that were there to their lines, 0 for the set's own evaluations. Of a
	// million rows two have the same hash by chance in one of thirty million files.
	ids  map[uint64]int
	seed maphash.Seed
}

// evaluation makes the evaluation of a row. The error is an input.Problem.
func (w *rows) evaluation(row *input.Node) (e eval.Evaluation, err error) {
	v := values{templates: w.templates, row: row}
	id := v.text("id")
	e = eval.Evaluation{ID: eval.CanonicalID(id), Name: v.text("name"),
		Inputs: v.object("inputs").JSON(), ExpectedAgentBehavior: v.text("expectedAgentBehavior"),
		Criteria: v.criteria(), Cluster: v.text("cluster"), Tags: v.tags()}
	if n := v.get("expectedOutput"); n != nil {
		if n.Kind != input.Object && n.Kind != input.String {
			v.wrong(n, "an object or a string")
		}
		e.ExpectedOutput = n.JSON()
	}
	if v.get("metadata") != nil {
		e.Metadata = v.object("metadata").JSON()
	}
	if strings.TrimSpace(e.ID) == "" {
		v.problem("id", "the id is empty; every row needs one of its own")
	}
	if v.err != nil {
		return e, v.err
	}
	hash := maphash.String(w.seed, e.ID)
	if line, ok := w.ids[hash]; ok {
		first := "among the set's own evaluations"
		if line > 0 {
			first = fmt.Sprintf("in line %d", line)
		}
		v.problem("id", fmt.Sprintf("duplicate id %q, first %s", e.ID, first))
		return e, v.err
	}
	w.ids[hash] = max(row.Line, 1)
	if e.Name == "" {
		e.Name = id
	}
	w.set.AddDefaults(&e)
	return e, nil
}

// values are the values of a row, by the keys of the dataset. err is the first problem.
type values struct {
	templates map[string]*template
	row       *input.Node
	err       error
}

func (v *values) problem(key, message string) {
	if v.err == nil {
		v.err = input.Problem{File: v.row.File, Line: v.row.Line, Column: v.row.Column,
			Key: "dataset." + key, Message: message}
	}
}

func (v *values) wrong(n *input.Node, expected string) {
	if v.err == nil {
		v.err = input.Problem{File: n.File, Line: n.Line, Column: n.Column, Key: n.Path,
			Message: "expected " + expected + ", got " + n.Kind.String()}
	}
}

// get returns a value, nil if there is none or it is null.
func (v *values) get(key string) *input.Node {
	t := v.templates[key]
	if t == nil || v.err != nil {
		return nil
	}
	n, err := t.fill(v.row)
	if err != nil {
		v.err = err
		return nil
	}
	if n.Kind == input.Null {
		return nil
	}
	return n
}

// text returns a text; a number or a boolean is written as one.
func (v *values) text(key string) string {
	n := v.get(key)
	if n == nil {
		return ""
	}
	if n.Kind == input.Array || n.Kind == input.Object {
		v.wrong(n, "a text")
	}
	return n.Text
}

func (v *values) object(key string) *input.Node {
	n := v.get(key)
	switch {
	case n == nil:
		v.problem(key, "expected an object, got null")
	case n.Kind != input.Object:
		v.wrong(n, "an object")
	default:
		return n
	}
	return nil
}

func (v *values) criteria() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if v.templates["criteria"] == nil {
		return out
	}
	n := v.object("criteria")
	if n == nil {
		return out
	}
	for _, m := range n.Members {
		if m.Value.Kind != input.Object && m.Value.Kind != input.Null {
			v.wrong(m.Value, "the criteria of an evaluator, an object or null")
		}
		out[m.Key] = m.Value.JSON()
	}
	return out
}

// tags returns the tags of an array, or of a text that separates them by commas. Empty tags are
// dropped, and each counts once.
func (v *values) tags() (out []string) {
	n := v.get("tags")
	if n == nil {
		return nil
	}
	items := n.Items
	if n.Kind == input.String {
		for one := range strings.SplitSeq(n.Text, ",") {
			items = append(items, &input.Node{Kind: input.String, Text: strings.TrimSpace(one)})
		}
	} else if n.Kind != input.Array {
		v.wrong(n, "an array of texts, or a text with commas")
	}
	for _, item := range items {
		switch {
		case item.Kind == input.Array, item.Kind == input.Object:
			v.wrong(item, "a text")
		case strings.TrimSpace(item.Text) != "" && !slices.Contains(out, item.Text):
			out = append(out, item.Text)
		}
	}
	return out
}
