package service

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// JobPayload is the payload of a job that runs an eval set.
type JobPayload struct {
	// EvalSet is the name of the set, if that is not the job's capability.
	EvalSet string          `json:"evalSet"`
	Agent   string          `json:"agent"`
	Epochs  *int            `json:"epochs"`
	EvalIDs *[]string       `json:"evalIds"`
	Inputs  json.RawMessage `json:"inputs"`
	// Token belongs to an evalrun that submits the job and finds it by the token. It is only shown.
	Token json.RawMessage `json:"_evalrun"`
}

// ReadJobPayload reads the payload of a job. With a name the job runs the eval set of that name,
// and otherwise the one that the payload names. The error is for the submitter of the job.
func ReadJobPayload(data json.RawMessage, name string) (q StartRequest, err error) {
	var p JobPayload
	expected := "agent, epochs, evalIds and inputs, or some of them"
	if name == "" {
		expected = "evalSet, and " + expected
	}
	if err := jsonobj.Decode(data, &p); err != nil {
		return q, fmt.Errorf("submitted_payload: %w; expected %s", err, expected)
	}
	switch {
	case name != "" && p.EvalSet != "":
		return q, fmt.Errorf(`submitted_payload: unknown field "evalSet": the job runs the eval set %s; expected %s`, name,
			expected)
	case name == "" && p.EvalSet == "":
		return q, fmt.Errorf("submitted_payload: expected %s", expected)
	case p.Epochs != nil && *p.Epochs < 1:
		return q, errors.New("submitted_payload: epochs must be at least 1")
	case p.EvalIDs != nil && len(*p.EvalIDs) == 0:
		return q, errors.New("submitted_payload: evalIds names no evaluation; leave it out to run all")
	}
	if q.EvalSet = name; name == "" {
		q.EvalSet = p.EvalSet
	}
	if p.Agent != "" {
		q.Agents = []string{p.Agent}
	}
	if p.Epochs != nil {
		q.Epochs = *p.Epochs
	}
	if p.EvalIDs != nil {
		q.EvalIDs = *p.EvalIDs
	}
	if !jsonobj.IsNull(p.Inputs) {
		q.Inputs = p.Inputs
	}
	return q, nil
}
