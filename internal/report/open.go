package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/jsonobj"
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

// outline reads the members of a rollout that an outline has.
func outline(rollout []byte) (*schemas.Rollout, error) {
	r := new(schemas.Rollout)
	var wrong error
	size := jsonobj.Members(rollout, func(key, value []byte) {
		var err error
		switch string(key) {
		case "evaluationId":
			r.EvaluationID, err = unquote(value)
		case "evaluationName":
			r.EvaluationName, err = unquote(value)
		case "rolloutId":
			r.RolloutID, err = unquote(value)
		case "agent":
			r.Agent, err = unquote(value)
		case "cluster":
			r.Cluster, err = unquote(value)
		case "environment":
			r.Environment, err = unquote(value)
		case "image":
			r.Image, err = unquote(value)
		case "taskDigest":
			r.TaskDigest, err = unquote(value)
		case "faultOwner":
			r.FaultOwner, err = unquote(value)
		case "status":
			var status string
			status, err = unquote(value)
			r.Status = schemas.State(status)
		case "epoch":
			err = json.Unmarshal(value, &r.Epoch)
		case "score":
			err = json.Unmarshal(value, &r.Score)
		case "outdated":
			err = json.Unmarshal(value, &r.Outdated)
		case "error":
			err = json.Unmarshal(value, &r.Error)
		case "usage":
			err = json.Unmarshal(value, &r.Usage)
		case "evaluationRunResults":
			err = json.Unmarshal(value, &r.EvaluationRunResults)
		case "inputs":
			r.Inputs = bytes.Clone(value)
		case "expectedOutput":
			r.ExpectedOutput = bytes.Clone(value)
		case "criteria":
			r.Criteria = map[string]json.RawMessage{}
			jsonobj.Members(value, func(id, criteria []byte) { r.Criteria[string(id)] = bytes.Clone(criteria) })
		}
		wrong = cmp.Or(wrong, err)
	})
	if size < 0 {
		return nil, errors.New("a rollout is no object")
	}
	return r, wrong
}

func unquote(value []byte) (string, error) {
	text, ok := jsonobj.Unquote(value)
	if !ok && !jsonobj.IsNull(value) {
		return "", fmt.Errorf("expected a string, got %s", value)
	}
	return text, nil
}
