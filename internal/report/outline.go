package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/schemas"
)

// Outlines calls f for every rollout in the order of the plan, with what it is, what came of it and
// what it has used, and without what its agent did. Of a document that is read much faster than all.
func (r *Report) Outlines(f func(*schemas.Rollout) error) error {
	return r.each(parts{outline: true}, f)
}

// readOutlines reads a document for its outlines. What is wrong with one that cannot be read so is
// said by the usual way to read it.
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

// outlines reads the array of rollouts, whose bracket was read. d.dec is another one then, which
// goes on behind the array.
func (d *documentReader) outlines() error {
	rest := io.MultiReader(d.dec.Buffered(), d.file)
	// As lenient as encoding/json.
	dec := jsontext.NewDecoder(io.MultiReader(strings.NewReader("["), rest), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		one, err := outline(value)
		if err != nil {
			return err
		}
		if err := d.outline(one); err != nil {
			return err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	d.dec = json.NewDecoder(io.MultiReader(strings.NewReader(`{"":0`), bytes.NewReader(dec.UnreadBuffer()), rest))
	for range 3 { // what stands for the members before
		if _, err := d.dec.Token(); err != nil {
			return err
		}
	}
	return nil
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
