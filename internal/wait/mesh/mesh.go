// Package mesh is the source of jobs of MCP Mesh, over the HTTP API of its registry. Another
// evalrun that serves /jobs is a registry as well. Package httpcall sends and repeats the requests.
//
// A registry's long poll returns for events, and not for the end of a job. So jobs are polled at
// intervals, and no connection is held open.
package mesh

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// source implements wait.Asker.
type source struct {
	httpcall.Caller
	config Config
}

// New returns the source for one entry of the eval set's jobs.
func New(c httpcall.Caller, config Config) wait.Source {
	config.URL = strings.TrimSuffix(config.URL, "/")
	return &source{c, config}
}

// StartKind implements wait.Source. A registry does not deduplicate jobs, but it lists them with
// who has submitted what.
func (s *source) StartKind() wait.Start { return wait.Searchable }

// Start submits a job, unless there is one of the trigger.
func (s *source) Start(ctx context.Context, j wait.Job) (string, error) {
	if key, found, err := s.Find(ctx, j); found || err != nil {
		return key, wait.NotStarted(err)
	}
	failpoint.Hit("trigger.starting")
	if err := j.MayStart(s.Now()); err != nil {
		return "", err
	}
	body, err := s.submission(j)
	if err != nil {
		return "", err
	}
	q := s.call(j, http.MethodPost, "/jobs", jsonvalue.Marshal(body))
	q.Starts, q.Once = true, true
	q.KeyHeader = "Idempotency-Key" // of no use to a registry of MCP Mesh, but to evalrun's
	a, err := s.Do(ctx, q)
	switch {
	case err != nil && !a.Sent:
		return "", wait.NotStarted(s.Retry(j, a, err))
	case err != nil:
		return "", s.Retry(j, a, err)
	case !a.OK():
		return "", s.refused(j, a)
	}
	var created struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(a.Body, &created) != nil || created.ID == "" {
		return "", fault.New(fault.StartUnknown,
			"the job was submitted, but the registry's answer has no id: "+jsonvalue.Excerpt(a.Body))
	}
	return created.ID, nil
}

// refused is the error of an answer to a submission. A submission that would be refused again is
// not repeated.
func (s *source) refused(j wait.Job, a httpcall.Answer) error {
	// On a conflict there is a job of the key, which is found the next time.
	if a.Status < 400 || retry.Temporary(a.Status) {
		return s.Retry(j, a, a.Err())
	}
	return fault.New(fault.Job, "the job could not be started: "+a.Err().Error())
}

// submission is the body of a request that submits a job.
type submission struct {
	Capability       string          `json:"capability"`
	SubmittedBy      string          `json:"submitted_by"`
	SubmittedPayload json.RawMessage `json:"submitted_payload"`
	MaxRetries       *int            `json:"max_retries,omitempty"`
	// MaxDuration is in seconds, TotalDeadline Unix time.
	MaxDuration   int64 `json:"max_duration,omitempty"`
	TotalDeadline int64 `json:"total_deadline,omitempty"`
}

// submission returns the body that submits a job. The duration that was asked for is bounded by the
// time that is left until the deadline of the wait, which is itself the deadline of the job.
func (s *source) submission(j wait.Job) (submission, error) {
	payload, asked := payloadOf(j.Spec)
	b := submission{Capability: s.capability(j.Spec), SubmittedBy: submittedBy(j), MaxRetries: s.config.MaxRetries}
	if name := s.config.TokenMember(); name != "" {
		payload = append(payload, jsonvalue.Member{Key: name, Value: jsonvalue.Marshal(j.TriggerID)})
	}
	b.SubmittedPayload = payload.JSON()
	if b.MaxRetries == nil && asked.MaxRetries != nil && *asked.MaxRetries >= 0 {
		b.MaxRetries = asked.MaxRetries
	}
	most := time.Duration(s.config.MaxDuration)
	if ask := time.Duration(asked.MaxDuration) * time.Second; ask > 0 && (most == 0 || ask < most) {
		most = ask
	}
	left, err := j.TimeLeft(s.Now(), most)
	if err != nil {
		return b, err
	}
	if most > 0 {
		b.MaxDuration = left
	}
	if !j.Deadline.IsZero() {
		b.TotalDeadline = j.Deadline.Unix()
	}
	return b, nil
}

func submittedBy(j wait.Job) string { return "evalrun:" + j.TriggerID }

// capability is what a job asks for: what is configured, else the name of its process.
func (s *source) capability(spec wait.Spec) string {
	if s.config.Capability != "" {
		return s.config.Capability
	}
	return spec.Process
}

// limits are what an agent may ask for with a job. MaxDuration is in seconds.
type limits struct {
	MaxRetries  *int  `json:"max_retries"`
	MaxDuration int32 `json:"max_duration"`
}

// payloadOf returns what a job is submitted with: submitted_payload of an interrupt that asks for a
// capability, else the input arguments of the process.
func payloadOf(spec wait.Spec) (jsonvalue.Object, limits) {
	raw, asked := spec.InputArguments(), limits{}
	if spec.Type == wait.TypeMeshJob {
		_ = json.Unmarshal(spec.Payload, &asked) // a member of another kind counts as not asked for
		value, _ := jsonvalue.ParseObject(spec.Payload)
		raw, _ = value.Get("submitted_payload")
	}
	payload, _ := jsonvalue.ParseObject(raw)
	return payload, asked
}

// Check implements wait.Source.
func (s *source) Check(ctx context.Context, j wait.Job) (wait.Status, error) {
	r, a, err := s.row(ctx, j)
	var f *fault.Fault
	switch {
	case errors.As(err, &f):
		return wait.Status{Done: true, Fault: f}, nil
	case err != nil:
		return wait.Status{}, err
	}
	switch r.Status {
	case "completed":
		return wait.Status{Done: true, Payload: r.result()}, nil
	case "failed":
		return wait.Status{Done: true, Fault: r.failure(j, s.Now())}, nil
	case "cancelled":
		return wait.Status{Done: true, Fault: fault.New(fault.Job, "the job was cancelled"+r.because("cancelled: "))}, nil
	}
	return wait.Status{After: s.After(j, a), Question: r.question(s.capability(j.Spec))}, nil
}

// Cancel implements wait.Source. A registry says 409 of a job that has ended.
func (s *source) Cancel(ctx context.Context, j wait.Job) error {
	if !j.HasKey() {
		return nil
	}
	return httpcall.CancelErr(s.Do(ctx, s.call(j, http.MethodPost, "/jobs/{itemKey}/cancel",
		json.RawMessage(`{"reason":"nobody waits for it any more"}`))))
}

// call returns a request to a path of the registry, which is a template.
func (s *source) call(j wait.Job, method, path string, body json.RawMessage) httpcall.Call {
	j.Spec.Process = s.capability(j.Spec)
	headers := map[string]string{}
	if s.config.Token != "" {
		headers["Authorization"] = "Bearer " + s.config.Token
	}
	for name, value := range s.config.Headers {
		headers[name] = value
	}
	return httpcall.Call{
		Request: httpcall.Request{Method: method, URL: s.config.URL + path, Headers: headers}, Job: j, LiteralBody: body,
	}
}
