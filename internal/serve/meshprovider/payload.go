package meshprovider

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

const payloadProperties = `"agent":{"description":"run this agent in place of the set's own","type":"string"},` +
	`"epochs":{"description":"how often each evaluation runs","type":"integer","minimum":1},` +
	`"evalIds":{"description":"run these evaluations only","type":"array","items":{"type":"string"},"minItems":1},` +
	`"inputs":{"description":"members that replace those of the same names in the inputs of every evaluation","type":"object"}`

// schemaOf is the JSON Schema of the payloads of a capability.
func schemaOf(c service.MeshCapability) json.RawMessage {
	if c.EvalSet != "" {
		return json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{` + payloadProperties + `}}`)
	}
	return json.RawMessage(`{"type":"object","additionalProperties":false,"required":["evalSet"],"properties":{` +
		`"evalSet":{"description":"the name of the eval set","type":"string"},` + payloadProperties + `}}`)
}

func describe(c service.MeshCapability) string {
	if c.EvalSet != "" {
		return "runs the eval set " + c.EvalSet + ", and gives its verdict and scores"
	}
	return "runs an eval set, and gives its verdict and scores"
}

// submitter begins the submitter of a run's job. The id of the mesh's job follows, and then the
// submitter of that.
const submitter = "mesh:"

// meshJob returns the id of the mesh's job of a run; empty if there is none.
func meshJob(j store.Job) string {
	rest, ok := strings.CutPrefix(j.SubmittedBy, submitter)
	id, _, _ := strings.Cut(rest, ":")
	if !ok {
		return ""
	}
	return id
}

// request returns the run that a job asks for. The error is for the submitter of the job.
func request(c service.MeshCapability, r row) (service.StartRequest, error) {
	q, err := service.ReadJobPayload(r.Payload, c.EvalSet)
	if err != nil {
		return q, err
	}
	q.By = submitter
	q.Job = &store.NewJob{Capability: r.Capability, SubmittedBy: submitter + r.ID + ":" + r.SubmittedBy,
		Payload: r.Payload}
	if r.MaxDuration != nil && *r.MaxDuration > 0 {
		q.MaxDuration = time.Duration(min(*r.MaxDuration, maxSeconds)) * time.Second
		q.Job.MaxDuration = q.MaxDuration
	}
	if r.Deadline != nil {
		q.Job.Deadline = time.Unix(*r.Deadline, 0).UTC()
	}
	return q, nil
}

// maxSeconds bounds durations: ten years.
const maxSeconds = 10 * 365 * 24 * 3600
