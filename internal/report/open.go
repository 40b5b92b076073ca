package report

import (
	"cmp"
	"errors"
	"path/filepath"

	"github.com/evalrun/evalrun/schemas"
)

// Open reads the report of a results document. It reads to the end, so that it fails for a document
// that was cut off.
func Open(path string) (*Report, error) {
	d, err := readDocument(path, nil)
	if err != nil {
		return nil, err
	}
	return d.report(), nil
}

// OpenOnce reads the report of a results document whose rollouts will be read once. It reads the
// head alone. If the document was cut off, reading its rollouts fails.
func OpenOnce(path string) (*Report, error) {
	d, err := openDocument(path)
	if err != nil {
		return nil, err
	}
	defer d.file.Close()
	d.headOnly = true
	if errors.Is(d.read(nil), errEnough) && d.check() == nil && d.readStatistics() == nil && d.Statistics != nil {
		return d.report(), nil
	}
	return Open(path) // Open says what is wrong, or finds the head behind the rollouts
}

// report makes the report of the document.
func (d *documentReader) report() *Report {
	path := d.path
	r := &Report{Head: d.Head, Dataset: d.dataset, Pass: 1}
	if d.Statistics != nil {
		r.Pass = d.Statistics.Thresholds.Pass
	}
	if d.StorePath != "" {
		if dir, err := filepath.Abs(filepath.Dir(path)); err == nil {
			r.storeDir = filepath.Join(dir, filepath.FromSlash(d.StorePath))
		}
	}
	r.each = func(p parts, f func(*schemas.Rollout) error) error {
		if p.outline {
			return readOutlines(path, f)
		}
		_, err := readDocument(path, f)
		return err
	}
	return r
}

// readOutlines reads a document for its outlines. If that fails, the usual reader reads it and says
// what is wrong.
func readOutlines(path string, f func(*schemas.Rollout) error) error {
	d, err := openDocument(path)
	if err != nil {
		return err
	}
	defer d.file.Close()
	var refused error
	d.outline = func(one *schemas.Rollout) error {
		refused = f(one)
		return refused
	}
	if err = d.read(d.outline); err == nil || refused != nil {
		return err
	}
	_, usual := readDocument(path, func(*schemas.Rollout) error { return nil })
	return cmp.Or(usual, err)
}

// Outlines calls f for every rollout in the order of the plan, with its identity, outcome and
// usage, and without what its agent did. For a document this is much faster than Rollouts.
func (r *Report) Outlines(f func(*schemas.Rollout) error) error {
	return r.each(parts{outline: true}, f)
}
