package serve

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// triggersAPI serves /v1/triggers.
type triggersAPI struct{ service *service.Service }

// triggerList is a page of triggers.
type triggerList struct {
	Triggers   []runner.Trigger `json:"triggers"`
	NextCursor *string          `json:"nextCursor"`
}

func (a *triggersAPI) list(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "cursor", "limit", "runId", "rolloutId", "all")
	want := store.TriggerQuery{RunID: q.text("runId"), RolloutID: q.text("rolloutId"),
		Limit: int(q.number("limit", pageSize, 1, maxPage))}
	if all := q.flag("all"); all != nil {
		want.All = *all
	}
	if parts := q.cursor(1); parts != nil {
		var err error
		if want.After, err = strconv.ParseInt(parts[0], 10, 64); err != nil || want.After < 0 {
			q.badCursor()
		}
	}
	if q.err != nil {
		return q.err
	}
	found, last, err := a.service.ListTriggers(r.Context(), want)
	if err != nil {
		return err
	}
	page := triggerList{Triggers: found}
	if len(found) == want.Limit {
		page.NextCursor = cursorOf(strconv.FormatInt(last, 10))
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

func (a *triggersAPI) get(w http.ResponseWriter, r *http.Request) error {
	t, err := a.service.Trigger(r.Context(), r.PathValue("triggerId"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, t)
	return nil
}

// deliverRequest is the body of POST …/deliver.
type deliverRequest struct {
	// Payload is the JSON that the agent gets.
	Payload json.RawMessage `json:"payload"`
	// Force also answers for a job whose source evalrun asks for the result.
	Force bool `json:"force"`
}

// failRequest is the body of POST …/fail.
type failRequest struct {
	Message string `json:"message"`
	Force   bool   `json:"force"`
}

// cancelRequest is the body of POST …/cancel, which may be empty.
type cancelRequest struct {
	Force bool `json:"force"`
}

// receipt is the outcome of a delivery.
type receipt struct {
	Disposition runner.Disposition `json:"disposition"`
	TriggerID   string             `json:"triggerId"`
	RunID       string             `json:"runId"`
	RolloutID   string             `json:"rolloutId"`
}

func (a *triggersAPI) deliver(w http.ResponseWriter, r *http.Request) error {
	var body deliverRequest
	if err := decodeBody(r, &body); err != nil {
		return err
	}
	if body.Payload == nil {
		return problem(http.StatusUnprocessableEntity, "invalid-request",
			"payload: expected what the agent is to get, as JSON")
	}
	return a.handIn(w, r, runner.Delivery{Payload: body.Payload, Force: body.Force})
}

func (a *triggersAPI) fail(w http.ResponseWriter, r *http.Request) error {
	var body failRequest
	if err := decodeBody(r, &body); err != nil {
		return err
	}
	if body.Message == "" {
		return problem(http.StatusUnprocessableEntity, "invalid-request", "message: expected why the job has failed")
	}
	return a.handIn(w, r, runner.Delivery{Failed: true, Message: body.Message, Force: body.Force})
}

func (a *triggersAPI) cancel(w http.ResponseWriter, r *http.Request) error {
	var body cancelRequest
	if r.ContentLength != 0 {
		if err := decodeBody(r, &body); err != nil {
			return err
		}
	}
	return a.handIn(w, r, runner.Delivery{Cancelled: true, Force: body.Force})
}

// handIn delivers: 202 if it counts, 200 if there was one before, 410 if nobody waits any more.
func (a *triggersAPI) handIn(w http.ResponseWriter, r *http.Request, d runner.Delivery) error {
	id := r.PathValue("triggerId")
	about(r, id)
	caller := access.From(r.Context())
	d.By, d.Person = "token "+caller.ID, caller.Name
	got, err := a.service.Deliver(r.Context(), id, d)
	if polled := new(runner.PolledError); errors.As(err, &polled) {
		return problem(http.StatusConflict, "source-is-asked",
			"evalrun asks the source "+polled.Source+" itself for the result; force answers in its place")
	}
	if err != nil && got.Disposition != "" { // it was accepted; only a document is out of date
		failed(r, err)
		err = nil
	}
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	switch got.Disposition {
	case runner.Accepted:
	case runner.Late:
		detail := "the trigger waits no more; what was delivered is kept with it"
		if !got.Overdue.IsZero() {
			detail = "the deadline of the trigger has passed; what was delivered is kept with it"
		}
		return problem(http.StatusGone, "too-late", detail)
	default:
		status = http.StatusOK
	}
	writeJSON(w, status, receipt{got.Disposition, got.Trigger.TriggerID, got.Trigger.RunID, got.Trigger.RolloutID})
	return nil
}
