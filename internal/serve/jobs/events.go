package jobs

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

// Limits on the number of events in one answer, and on the time that a request may wait for them.
const (
	defaultEvents = 100
	maxEvents     = 500
	maxWait       = 60
)

// maxEvent is the largest size in bytes of an event that is posted, as JSON.
const maxEvent = 256 << 10

// event is an entry of a job's log in the registry's form.
type event struct {
	CreatedAt    int64           `json:"created_at"`
	JobID        string          `json:"job_id"`
	Payload      json.RawMessage `json:"payload"`
	PostedBy     *string         `json:"posted_by"`
	Seq          int64           `json:"seq"`
	TraceContext json.RawMessage `json:"trace_context"`
	Type         string          `json:"type"`
}

func newEvent(e store.JobEvent) event {
	return event{e.CreatedAt.Unix(), e.JobID, e.Payload, text(e.PostedBy), e.Seq, e.TraceContext, e.Type}
}

// post appends an event to the log of a job. An event of type answer also answers a question.
func (h *handler) post(r *http.Request) (response, error) {
	var q struct {
		Type         string          `json:"type"`
		Payload      json.RawMessage `json:"payload"`
		TraceContext map[string]any  `json:"trace_context"`
	}
	body, err := readBody(r, &q, false)
	if err != nil {
		return response{}, err
	}
	if len(body) > maxEvent {
		return response{}, &requestError{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("an event has at most %d bytes", maxEvent)}
	}
	if q.Type = strings.TrimSpace(q.Type); q.Type == "" {
		return response{}, badRequest("type is required")
	}
	by := access.From(r.Context())
	e := store.JobEvent{JobID: r.PathValue("id"), Type: q.Type, Payload: notNull(q.Payload),
		PostedBy: cmp.Or(by.Name, tokenOf(by))}
	if q.TraceContext != nil {
		var raw struct {
			Trace json.RawMessage `json:"trace_context"`
		}
		if err := json.Unmarshal(body, &raw); err != nil {
			return response{}, err
		}
		e.TraceContext = raw.Trace
	}
	h.o.About(r, e.JobID)
	switch {
	case e.Type == service.AnswerEvent && !by.May(access.Deliver):
		return response{}, &requestError{http.StatusForbidden, "the token lacks the scope deliver"}
	case e.Type != service.AnswerEvent && !by.May(access.Run):
		return response{}, &requestError{http.StatusForbidden, "the token lacks the scope run"}
	}
	var answer *store.Delivery
	if e.Type == service.AnswerEvent {
		if answer, err = h.o.Service.Answer(r.Context(), e.JobID, e.Payload, tokenOf(by)); err != nil {
			return response{}, h.readOnly(r, e.JobID, err)
		}
	}
	posted, err := h.st.PostJobEvent(r.Context(), e, answer)
	if errors.Is(err, store.ErrNotAsked) {
		return response{}, &requestError{http.StatusConflict, err.Error()}
	}
	if err != nil {
		return response{}, h.readOnly(r, e.JobID, err)
	}
	if answer != nil {
		h.o.Changed(r.Context(), "deliver", answer.TriggerID)
		h.o.Service.Runner().Wake(e.JobID)
	}
	return response{http.StatusOK, struct {
		CreatedAt int64  `json:"created_at"`
		JobID     string `json:"job_id"`
		Seq       int64  `json:"seq"`
	}{posted.CreatedAt.Unix(), posted.JobID, posted.Seq}}, nil
}

// tokenOf names the token of a caller; empty if there is none.
func tokenOf(caller access.Identity) string {
	if caller.ID == "" {
		return ""
	}
	return "token " + caller.ID
}

func notNull(data json.RawMessage) json.RawMessage {
	if string(data) == "null" {
		return nil
	}
	return data
}

// logQuery asks for a part of a job's log.
type logQuery struct {
	after int64
	types []string
	wait  time.Duration
	limit int
}

// events returns the log of a job after a number. With wait it waits for an event of the types, or
// for the end of the job.
func (h *handler) events(r *http.Request) (response, error) {
	q, err := readLogQuery(r)
	if err != nil {
		return response{}, err
	}
	id := r.PathValue("id")
	log, err := h.st.JobEvents(r.Context(), id, q.after, q.types, q.limit)
	if err == nil && len(log.Events) == 0 && !log.Ended && q.wait > 0 {
		log, err = h.waitEvents(r.Context(), id, q, log)
	}
	if err != nil {
		return response{}, h.readOnly(r, id, err)
	}
	red, err := h.o.Service.Redactor(r.Context(), id)
	if err != nil {
		return response{}, err
	}
	events := make([]event, 0, len(log.Events))
	for _, e := range log.Events {
		e.Payload, e.TraceContext = red.JSON(e.Payload), red.JSON(e.TraceContext)
		events = append(events, newEvent(e))
	}
	return response{http.StatusOK, struct {
		Events []event `json:"events"`
		Next   int64   `json:"next_after"`
	}{events, log.Read}}, nil
}

func readLogQuery(r *http.Request) (q logQuery, err error) {
	values := r.URL.Query()
	q.limit = defaultEvents
	if values.Has("after") {
		if q.after, err = number(values, "after"); err != nil {
			return q, err
		}
		q.after = max(q.after, 0)
	}
	if values.Has("limit") {
		n, err := number(values, "limit")
		if err != nil {
			return q, err
		}
		if n > 0 {
			q.limit = int(min(n, maxEvents))
		}
	}
	for one := range strings.SplitSeq(values.Get("types"), ",") {
		if one = strings.TrimSpace(one); one != "" && len(q.types) < maxEvents {
			q.types = append(q.types, one)
		}
	}
	if q.wait, err = waitSeconds(r); err != nil {
		return q, err
	}
	return q, checkExecutor(values)
}

// checkExecutor refuses reads that only an executor makes. Nobody can claim a job here, so that
// every claim is a stale one.
func checkExecutor(values url.Values) error {
	switch instance, epoch := values.Get("instance_id") != "", values.Has("claim_epoch"); {
	case instance != epoch:
		return badRequest("instance_id and claim_epoch must be supplied together (both for an executor read, or neither for an observer read)")
	case !instance:
		return nil
	}
	if _, err := number(values, "claim_epoch"); err != nil {
		return err
	}
	return &requestError{http.StatusConflict, "claim_superseded"}
}

// waitSeconds reads the parameter wait.
func waitSeconds(r *http.Request) (time.Duration, error) {
	values := r.URL.Query()
	if !values.Has("wait") {
		return 0, nil
	}
	n, err := number(values, "wait")
	return time.Duration(min(max(n, 0), maxWait)) * time.Second, err
}
