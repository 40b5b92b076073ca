// Package fakemesh is a registry of MCP Mesh as its clients see it, in memory. Its answers are
// those that a real registry was seen to give (v3.6). Its user plays the worker, or lets agents
// claim jobs. Leases lapse when it is told to sweep.
package fakemesh

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Job is a job as the registry reports it.
type Job struct {
	ID               string          `json:"id"`
	Capability       string          `json:"capability"`
	Status           string          `json:"status"`
	OwnerInstanceID  *string         `json:"owner_instance_id"`
	ClaimEpoch       int             `json:"claim_epoch"`
	AttemptCount     int             `json:"attempt_count"`
	MaxRetries       int             `json:"max_retries"`
	MaxDuration      *int64          `json:"max_duration"`
	TotalDeadline    *int64          `json:"total_deadline"`
	LeaseExpiresAt   *int64          `json:"lease_expires_at"`
	LastHeartbeatAt  *int64          `json:"last_heartbeat_at"`
	SubmittedAt      int64           `json:"submitted_at"`
	SubmittedBy      string          `json:"submitted_by"`
	SubmittedPayload json.RawMessage `json:"submitted_payload"`
	Progress         *float64        `json:"progress"`
	ProgressMessage  *string         `json:"progress_message"`
	Result           json.RawMessage `json:"result"`
	Error            *string         `json:"error"`
	RecvCursor       json.RawMessage `json:"recv_cursor"`
	// Events are the events of the job. Headers are those of the request that submitted it. Neither is
	// in its row.
	Events  []Event     `json:"-"`
	Headers http.Header `json:"-"`
}

// Event is an event of a job.
type Event struct {
	JobID        string          `json:"job_id"`
	Seq          int64           `json:"seq"`
	Type         string          `json:"type"`
	Payload      json.RawMessage `json:"payload"`
	TraceContext json.RawMessage `json:"trace_context"`
	PostedBy     *string         `json:"posted_by"`
	CreatedAt    int64           `json:"created_at"`
}

// Registry is a registry. Its zero value has no jobs. It is safe for concurrent use.
type Registry struct {
	// Now returns the time; nil means the real one.
	Now func() time.Time

	mu   sync.Mutex
	jobs []*Job
	// agents are the capabilities of the agents that are there.
	agents map[string][]string
	// changed is closed when there is another event; nil if nobody waits.
	changed chan struct{}
}

// Jobs returns copies of all jobs, in the order in which they were submitted.
func (r *Registry) Jobs() (out []Job) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.jobs {
		out = append(out, *j)
	}
	return out
}

// Change lets a worker change a job.
func (r *Registry) Change(id string, f func(j *Job)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if j := r.find(id); j != nil {
		f(j)
	}
}

func (r *Registry) find(id string) *Job {
	if i := slices.IndexFunc(r.jobs, func(j *Job) bool { return j.ID == id }); i >= 0 {
		return r.jobs[i]
	}
	return nil
}

func (r *Registry) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := strings.Split(strings.Trim(q.URL.Path, "/"), "/")
	switch route := q.Method + " " + strings.Repeat("/x", len(path)-1); {
	case path[0] == "heartbeat" || path[0] == "agents":
		r.agent(w, q, path)
		return
	case path[0] != "jobs":
		http.NotFound(w, q)
		return
	case q.Method == http.MethodPost && len(path) == 2 && path[1] == "claim":
		r.claim(w, q)
		return
	case q.Method == http.MethodPost && len(path) == 2 && path[1] == "batch":
		r.batch(w, q)
		return
	case route == "POST ":
		r.submit(w, q)
		return
	case route == "GET ":
		r.list(w, q)
		return
	}
	j := r.find(path[1])
	switch {
	case j == nil:
		r.fail(w, http.StatusNotFound, "job not found: "+path[1])
	case q.Method == http.MethodGet && len(path) == 2:
		answer(w, http.StatusOK, j)
	case q.Method == http.MethodGet && len(path) == 3 && path[2] == "events":
		r.events(w, q, j)
	case q.Method != http.MethodPost || len(path) != 3:
		http.NotFound(w, q)
	case j.ended():
		r.fail(w, http.StatusConflict, "job is already in a terminal state")
	case path[2] == "release":
		r.release(w, q, j)
	case path[2] == "cancel":
		r.cancel(w, q, j)
	case path[2] == "events":
		r.post(w, q, j)
	default:
		http.NotFound(w, q)
	}
}

func (j *Job) ended() bool {
	return slices.Contains([]string{"completed", "failed", "cancelled"}, j.Status)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (r *Registry) fail(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text, "timestamp": r.now().UTC().Format(time.RFC3339Nano)})
}

func (r *Registry) submit(w http.ResponseWriter, q *http.Request) {
	var in struct {
		Capability       string          `json:"capability"`
		SubmittedBy      string          `json:"submitted_by"`
		SubmittedPayload json.RawMessage `json:"submitted_payload"`
		MaxRetries       *int            `json:"max_retries"`
		MaxDuration      *int64          `json:"max_duration"`
		TotalDeadline    *int64          `json:"total_deadline"`
	}
	err := json.NewDecoder(q.Body).Decode(&in)
	switch {
	case err != nil:
		r.fail(w, http.StatusBadRequest, "Invalid JSON payload: "+err.Error())
	case in.Capability == "":
		r.fail(w, http.StatusBadRequest, "capability is required")
	case in.SubmittedBy == "":
		r.fail(w, http.StatusBadRequest, "submitted_by is required")
	case len(in.SubmittedPayload) == 0 || in.SubmittedPayload[0] != '{':
		r.fail(w, http.StatusBadRequest, "submitted_payload is required")
	case in.MaxDuration != nil && *in.MaxDuration < 1:
		r.fail(w, http.StatusBadRequest, "max_duration must be positive")
	default:
		j := &Job{
			ID: uuid.NewString(), Capability: in.Capability, Status: "working",
			SubmittedBy: in.SubmittedBy, SubmittedPayload: in.SubmittedPayload,
			MaxRetries: 1, MaxDuration: in.MaxDuration, TotalDeadline: in.TotalDeadline,
			SubmittedAt: r.now().Unix(), Headers: q.Header.Clone(),
		}
		if in.MaxRetries != nil {
			j.MaxRetries = *in.MaxRetries
		}
		r.jobs = append(r.jobs, j)
		answer(w, http.StatusCreated, map[string]any{"id": j.ID, "owner_instance_id": nil, "status": j.Status})
	}
}

// list returns jobs, the last one first. The cursor is the place in that order where the page
// before has ended.
func (r *Registry) list(w http.ResponseWriter, q *http.Request) {
	query := q.URL.Query()
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "50"))
	if err != nil || limit < 1 || limit > 200 {
		r.fail(w, http.StatusBadRequest, fmt.Sprintf("limit must be in [1, 200], got %s", query.Get("limit")))
		return
	}
	since, _ := strconv.ParseInt(query.Get("submitted_since"), 10, 64)
	cursor, err := base64.RawURLEncoding.DecodeString(query.Get("cursor"))
	if err != nil {
		r.fail(w, http.StatusBadRequest, "ListJobs: invalid cursor: malformed cursor payload")
		return
	}
	skip, _ := strconv.Atoi(string(cursor))
	page, next := []*Job{}, any(nil)
	for i, j := range slices.Backward(r.jobs) {
		at := len(r.jobs) - i
		if at <= skip || query.Has("capability") && j.Capability != query.Get("capability") || j.SubmittedAt < since ||
			query.Has("owner_instance_id") && !j.ownedBy(query.Get("owner_instance_id")) ||
			query.Has("status") && !slices.Contains(strings.Split(query.Get("status"), ","), j.Status) {
			continue
		}
		if len(page) == limit {
			next = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(at - 1)))
			break
		}
		page = append(page, j)
	}
	answer(w, http.StatusOK, map[string]any{"jobs": page, "next_cursor": next})
}

func (r *Registry) cancel(w http.ResponseWriter, q *http.Request, j *Job) {
	var in struct {
		Reason *string `json:"reason"`
	}
	_ = json.NewDecoder(q.Body).Decode(&in) // a body is optional
	j.Status = "cancelled"
	payload, _ := json.Marshal(in)
	if in.Reason != nil {
		text := "cancelled: " + *in.Reason
		j.Error = &text
	}
	r.add(j, Event{Type: "cancelled", Payload: payload})
	answer(w, http.StatusOK, map[string]any{"forwarded_to_instance_id": j.OwnerInstanceID, "status": j.Status})
}

func (r *Registry) add(j *Job, e Event) Event {
	e.JobID, e.Seq, e.CreatedAt = j.ID, int64(len(j.Events)+1), r.now().Unix()
	j.Events = append(j.Events, e)
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
	return e
}

func (r *Registry) post(w http.ResponseWriter, q *http.Request, j *Job) {
	var in struct {
		Type         string          `json:"type"`
		Payload      json.RawMessage `json:"payload"`
		TraceContext json.RawMessage `json:"trace_context"`
	}
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil || strings.TrimSpace(in.Type) == "" {
		r.fail(w, http.StatusBadRequest, "type is required")
		return
	}
	e := r.add(j, Event{Type: strings.TrimSpace(in.Type), Payload: in.Payload, TraceContext: in.TraceContext})
	answer(w, http.StatusOK, map[string]any{"job_id": j.ID, "seq": e.Seq, "created_at": e.CreatedAt})
}

// events returns the events after a sequence number. With a filter next_after may not advance, as
// with the real registry.
func (r *Registry) events(w http.ResponseWriter, q *http.Request, j *Job) {
	query := q.URL.Query()
	after, err := strconv.ParseInt(cmp.Or(query.Get("after"), "0"), 10, 64)
	if err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"msg": "Invalid format for parameter after: " + err.Error()})
		return
	}
	if instance := query.Get("instance_id"); instance != "" && !j.ended() {
		epoch, _ := strconv.Atoi(query.Get("claim_epoch"))
		if !j.ownedBy(instance) || epoch != j.ClaimEpoch {
			r.fail(w, http.StatusConflict, "claim_superseded")
			return
		}
		r.renew(j)
	}
	limit, _ := strconv.Atoi(cmp.Or(query.Get("limit"), "100"))
	wait, _ := strconv.Atoi(query.Get("wait"))
	timer := time.NewTimer(time.Duration(min(wait, 60)) * time.Second)
	defer timer.Stop()
	for {
		page, next := []Event{}, after
		for _, e := range j.Events {
			if e.Seq <= after || query.Get("types") != "" &&
				!slices.Contains(strings.Split(query.Get("types"), ","), e.Type) || len(page) == min(limit, 500) {
				continue
			}
			page, next = append(page, e), e.Seq
		}
		if len(page) > 0 || wait == 0 || !r.await(q.Context(), timer.C) {
			answer(w, http.StatusOK, map[string]any{"events": page, "next_after": next})
			return
		}
	}
}

// await lets others use the registry until there is another event. It reports whether there is.
func (r *Registry) await(ctx context.Context, timeout <-chan time.Time) bool {
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	changed := r.changed
	r.mu.Unlock()
	defer r.mu.Lock()
	select {
	case <-changed:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}
