package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

const (
	statusDescription = `The job with an id, as the registry of MCP Mesh shows it. Jobs are runs; a rollout can be read as one.`
	resultDescription = `Status, result and error of the job with an id. It does not wait.`
	cancelDescription = `Cancel the job with an id.`

	jobSchema    = `{"type":"object","additionalProperties":false,"required":["job_id"],"properties":{"job_id":{"type":"string"}}}`
	cancelSchema = `{"type":"object","additionalProperties":false,"required":["job_id"],"properties":{"job_id":{"type":"string"},"reason":{"type":"string"}}}`
)

// jobTools are the helper tools that every agent of MCP Mesh has, with the same shapes. A job is a
// run, or for readers a rollout. The tools send requests to the job interface, so that jobs look
// the same everywhere.
type jobTools struct {
	jobs    http.Handler
	changed func(ctx context.Context, action, object string)
}

func (j *jobTools) tools() []tool {
	return []tool{
		{name: "__mesh_job_status", scope: access.Read, description: statusDescription, schema: jobSchema, annotations: reads,
			call: j.status},
		{name: "__mesh_job_result", scope: access.Read, description: resultDescription, schema: jobSchema, annotations: reads,
			call: j.result},
		{name: "__mesh_job_cancel", scope: access.Run, description: cancelDescription, schema: cancelSchema,
			annotations: ends, call: j.cancel},
	}
}

// row requests the row of a job.
func (j *jobTools) row(ctx context.Context, arguments json.RawMessage) (jsonobj.Object, error) {
	var a struct {
		JobID string `json:"job_id"`
	}
	if err := read(arguments, &a); err != nil {
		return nil, err
	}
	body, err := j.ask(ctx, http.MethodGet, a.JobID, "", nil)
	if err != nil {
		return nil, err
	}
	return jsonobj.ParseObject(body)
}

// status is the tool __mesh_job_status. Its row lacks the fields that the registry's helper leaves
// out.
func (j *jobTools) status(ctx context.Context, _ *request, arguments json.RawMessage) (any, error) {
	row, err := j.row(ctx, arguments)
	if err != nil {
		return nil, err
	}
	return row.Delete("claim_epoch", "recv_cursor").JSON(), nil
}

// result is the tool __mesh_job_result.
func (j *jobTools) result(ctx context.Context, _ *request, arguments json.RawMessage) (any, error) {
	row, err := j.row(ctx, arguments)
	if err != nil {
		return nil, err
	}
	var out jsonobj.Object
	for _, key := range []string{"status", "result", "error"} {
		out = out.Set(key, row.Get(key))
	}
	return out.JSON(), nil
}

// cancel is the tool __mesh_job_cancel.
func (j *jobTools) cancel(ctx context.Context, _ *request, arguments json.RawMessage) (any, error) {
	var a struct {
		JobID  string `json:"job_id"`
		Reason string `json:"reason"`
	}
	if err := read(arguments, &a); err != nil {
		return nil, err
	}
	reason, err := json.Marshal(map[string]string{"reason": a.Reason})
	if err != nil {
		return nil, err
	}
	if _, err := j.ask(ctx, http.MethodPost, a.JobID, "/cancel", reason); err != nil {
		return nil, err
	}
	j.changed(ctx, "cancel", a.JobID)
	return jsonobj.Object{{Key: "ok", Value: json.RawMessage("true")},
		{Key: "job_id", Value: jsonobj.Quote(a.JobID)}}.JSON(), nil
}

// ask sends the job interface a request about a job. The model gets the reason of a refusal.
func (j *jobTools) ask(ctx context.Context, method, id, action string, body []byte) (json.RawMessage, error) {
	if id == "" {
		return nil, &argumentError{"job_id: expected the id of a job"}
	}
	r, err := http.NewRequestWithContext(ctx, method, "/jobs/"+url.PathEscape(id)+action, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer := &jobAnswer{header: http.Header{}, status: http.StatusOK}
	j.jobs.ServeHTTP(answer, r)
	if answer.status == http.StatusOK {
		return answer.body.Bytes(), nil
	}
	o, _ := jsonobj.ParseObject(answer.body.Bytes()) // a body that is not an object has no text
	text := o.Text("error")
	switch {
	case answer.status == http.StatusConflict:
		text = "conflict: " + text
	case text == "":
		text = "job not found: " + id
	}
	return nil, &argumentError{text}
}

// jobAnswer keeps the answer to such a request.
type jobAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *jobAnswer) Header() http.Header         { return a.header }
func (a *jobAnswer) WriteHeader(status int)      { a.status = status }
func (a *jobAnswer) Write(p []byte) (int, error) { return a.body.Write(p) }
