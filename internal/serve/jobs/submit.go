package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

// CreateJobRequest is the body of POST /jobs. Other fields that the registry's clients send are
// ignored. It has the registry's name because messages about it contain that.
type CreateJobRequest struct {
	Capability       string         `json:"capability"`
	SubmittedBy      string         `json:"submitted_by"`
	SubmittedPayload map[string]any `json:"submitted_payload"`
	MaxRetries       *int           `json:"max_retries"`
	MaxDuration      *int64         `json:"max_duration"`
	TotalDeadline    *int64         `json:"total_deadline"`
	// RetryOn are the categories of faults that are retried. The registry leaves them to its
	// executors.
	RetryOn []string `json:"retry_on"`
}

// maxPayload is how many bytes submitted_payload may have.
const maxPayload = 1 << 20

// maxSeconds bounds durations and times, so that none overflows: it is in the year 9999.
const maxSeconds = 253_402_300_799

// mcpOwner begins the submitter of an MCP client's tasks, which identifies their owner.
const mcpOwner = "mcp:"

func (q *CreateJobRequest) check() error {
	switch {
	case strings.TrimSpace(q.Capability) == "":
		return badRequest("capability is required")
	case strings.TrimSpace(q.SubmittedBy) == "":
		return badRequest("submitted_by is required")
	case strings.HasPrefix(strings.TrimSpace(q.SubmittedBy), mcpOwner):
		return badRequest("submitted_by must not begin with " + mcpOwner + ", which is for the tasks of MCP clients")
	case q.SubmittedPayload == nil:
		return badRequest("submitted_payload is required")
	case q.MaxRetries != nil && *q.MaxRetries < 0:
		return badRequest("max_retries must be non-negative")
	case q.MaxDuration != nil && *q.MaxDuration < 1:
		return badRequest("max_duration must be positive")
	case q.MaxDuration != nil && *q.MaxDuration > maxSeconds/1000:
		return badRequest("max_duration is too large")
	case q.TotalDeadline != nil && (*q.TotalDeadline < 0 || *q.TotalDeadline > maxSeconds):
		return badRequest("total_deadline must be a time in seconds since 1970")
	}
	return nil
}

// submit starts a run as a job.
func (h *handler) submit(r *http.Request) (response, error) {
	var q CreateJobRequest
	body, err := readBody(r, &q, false)
	if err != nil {
		return response{}, err
	}
	if err := q.check(); err != nil {
		return response{}, err
	}
	var raw struct {
		Payload json.RawMessage `json:"submitted_payload"` // numbers stay as they are
	}
	if err := json.Unmarshal(body, &raw); err != nil {
		return response{}, err
	}
	if len(raw.Payload) > maxPayload {
		return response{}, &requestError{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("submitted_payload has at most %d bytes", maxPayload)}
	}
	start, err := service.ReadJobPayload(raw.Payload, q.Capability)
	if err != nil {
		return response{}, badRequest(err.Error())
	}
	left, err := timeLeft(r)
	if err != nil {
		return response{}, err
	}
	q.complete(&start, raw.Payload)
	start.IdempotencyKey, start.By, start.Left = r.Header.Get("Idempotency-Key"), access.From(r.Context()).ID, left
	started, err := h.o.Service.Start(r.Context(), start)
	if err != nil {
		return response{}, err
	}
	h.o.About(r, started.RunID)
	job, err := h.st.Job(r.Context(), started.RunID)
	if errors.Is(err, store.ErrNotFound) {
		return response{}, &requestError{http.StatusConflict,
			"the job of this idempotency key has ended and was forgotten; its run is " + started.RunID}
	}
	if err != nil {
		return response{}, err
	}
	return response{http.StatusCreated, struct {
		ID     string          `json:"id"`
		Owner  *string         `json:"owner_instance_id"`
		Status store.JobStatus `json:"status"`
	}{job.ID, text(job.Owner), job.Status}}, nil
}

// complete adds the fields of the request beside the payload to the run that is the job.
func (q *CreateJobRequest) complete(start *service.StartRequest, payload json.RawMessage) {
	start.Job = &store.NewJob{Capability: q.Capability, SubmittedBy: q.SubmittedBy, Payload: payload,
		MaxRetries: q.MaxRetries}
	if q.MaxDuration != nil {
		start.Job.MaxDuration = time.Duration(*q.MaxDuration) * time.Second
	}
	if q.TotalDeadline != nil {
		start.Job.Deadline = time.Unix(*q.TotalDeadline, 0).UTC()
	}
	start.MaxRetries, start.RetryOn, start.MaxDuration = q.MaxRetries, q.RetryOn, start.Job.MaxDuration
}

// timeLeft is the time that the caller has left, in whole seconds; nil if it does not say.
func timeLeft(r *http.Request) (*time.Duration, error) {
	value := r.Header.Get("X-Mesh-Timeout")
	if value == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil || n > maxSeconds/1000 {
		return nil, badRequest("X-Mesh-Timeout must be a whole number of seconds")
	}
	left := time.Duration(max(n, 0)) * time.Second
	return &left, nil
}
