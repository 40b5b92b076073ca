// Package dataset reads the data sets of eval sets: CSV, TSV, JSON, JSON Lines and Parquet files
// whose rows are evaluations. It holds one row at a time, however long the file is. It does not
// choose which evaluations a run has.
package dataset

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/input"
)

// Dataset is the description of a data set in its eval set. It is nil if the set has none.
type Dataset struct {
	set       *eval.Set
	node      *input.Node
	file      string
	templates map[string]*template
}

// keys are the keys that are filled in for each row.
var keys = []string{"id", "name", "inputs", "expectedOutput", "expectedAgentBehavior",
	"criteria", "cluster", "tags", "metadata"}

// Parse reads a set's description of its data set, and records problems in r; Each reads the file.
// The path of the set must be known.
func Parse(r *input.Reader, set *eval.Set) *Dataset {
	if set.DatasetNode == nil {
		return nil
	}
	o := r.Object(set.DatasetNode)
	d := &Dataset{set: set, node: set.DatasetNode, file: o.RequiredString("file"), templates: map[string]*template{}}
	if d.file != "" && !known(d.file) {
		r.Errorf(o.Get("file"), "expected a file whose name ends in one of %s, got %q", strings.Join(formats, ", "), d.file)
	}
	for _, key := range keys {
		if v := o.Get(key); v != nil && v.Kind != input.Null {
			d.templates[key] = newTemplate(r, v)
		}
	}
	o.RequiredString("id")
	object(o, "inputs", true)
	object(o, "metadata", false)
	if criteria := object(o, "criteria", len(set.DefaultCriteria) == 0); criteria != nil {
		d.checkCriteria(r, criteria)
	}
	o.Done()
	return d
}

// In returns the path of the file for an eval set in a folder.
func (d *Dataset) In(dir string) string {
	path := filepath.FromSlash(d.file)
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// object returns an object with places, or nil if a column is to give the object.
func object(o *input.Fields, key string, required bool) *input.Node {
	if n := o.Get(key); n != nil && isPlace(n) {
		return nil
	}
	if required {
		return o.Required(key, input.Object)
	}
	return o.Optional(key, input.Object)
}

// isPlace reports whether a column decides the kind of a value.
func isPlace(n *input.Node) bool {
	return n.Kind == input.String && strings.HasPrefix(n.Text, "{row.")
}

func (d *Dataset) checkCriteria(r *input.Reader, criteria *input.Node) {
	var expected *input.Node
	if t := d.templates["expectedOutput"]; t != nil {
		expected = t.root
	}
	for _, m := range criteria.Members {
		if m.Value.Kind != input.Object && m.Value.Kind != input.Null && !isPlace(m.Value) {
			r.Errorf(m.Value, "expected the criteria of an evaluator, an object or null, got %s", m.Value.Kind)
		}
		evalset.CheckCriteria(r, d.set, m.Key, m.Value, expected)
	}
}

// EachRow calls f with each row of a file that is no part of an eval set, and with the line on
// which it begins (for a Parquet file the number of the row). An error of a row, or of f, ends it.
func EachRow(path string, f func(row *input.Node, line int) error) error {
	file, err := open(path)
	if err != nil {
		return err
	}
	defer file.close()
	for {
		row, err := file.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := f(row, file.line); err != nil {
			return fmt.Errorf("%s:%d: %w", path, file.line, err)
		}
	}
}
