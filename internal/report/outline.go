package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/schemas"
)

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
