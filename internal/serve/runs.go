package serve

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// runsAPI serves /v1/runs.
type runsAPI struct{ service *service.Service }

// runDocument is a run.
type runDocument struct {
	RunID             string         `json:"runId"`
	EvaluationSetID   string         `json:"evaluationSetId"`
	EvaluationSetName string         `json:"evaluationSetName"`
	Status            schemas.Status `json:"status"`
	Final             bool           `json:"final"`
	Revision          int64          `json:"revision"`
	// Seq is the number of the last event.
	Seq        int64      `json:"seq"`
	CreatedAt  time.Time  `json:"createdAt"`
	FinishedAt *time.Time `json:"finishedAt"`
	Counts     counts     `json:"counts"`
	RetryOf    string     `json:"retryOf,omitempty"`
	// Warnings are problems of an uploaded eval set that are not errors, in the answer to its
	// uploader.
	Warnings []string `json:"warnings,omitempty"`
}

// counts are the rollouts of a run by state.
type counts struct {
	Total      int `json:"total"`
	Pending    int `json:"pending"`
	Running    int `json:"running"`
	Suspended  int `json:"suspended"`
	Evaluating int `json:"evaluating"`
	Scoring    int `json:"scoring"`
	Completed  int `json:"completed"`
	Faulted    int `json:"faulted"`
	Cancelled  int `json:"cancelled"`
}

func newRunDocument(r service.Run) runDocument {
	d := runDocument{RunID: r.ID, EvaluationSetID: r.EvaluationSetID, EvaluationSetName: r.EvaluationSetName,
		Status: r.Status, Final: r.Final(),
		Revision: r.Revision, Seq: r.Seq, CreatedAt: r.CreatedAt, Counts: counts(r.Counts), RetryOf: r.RetryOf}
	if r.Final() {
		d.FinishedAt = &r.FinishedAt
	}
	return d
}

// createRequest is the body of POST /v1/runs.
type createRequest struct {
	// EvalSet is the name of an eval set, or an eval set itself.
	EvalSet       json.RawMessage `json:"evalSet"`
	Agents        []string        `json:"agents"`
	Epochs        *int            `json:"epochs"`
	EvalIDs       []string        `json:"evalIds"`
	Inputs        json.RawMessage `json:"inputs"`
	MaxRetries    *int            `json:"maxRetries"`
	RetryOn       []string        `json:"retryOn"`
	MaxDurationMs int64           `json:"maxDurationMs"`
}

// maxDurationMs is the longest working time that a request may ask for: ten years.
const maxDurationMs = 10 * 365 * 24 * 3600 * 1000

func (q createRequest) start() (service.StartRequest, error) {
	out := service.StartRequest{Agents: q.Agents, EvalIDs: q.EvalIDs, Inputs: null(q.Inputs), MaxRetries: q.MaxRetries,
		RetryOn: q.RetryOn}
	if q.MaxDurationMs < 0 || q.MaxDurationMs > maxDurationMs {
		return out, problem(http.StatusUnprocessableEntity, "invalid-request",
			"maxDurationMs: expected milliseconds, at most those of ten years")
	}
	out.MaxDuration = time.Duration(q.MaxDurationMs) * time.Millisecond
	if q.Epochs != nil {
		if out.Epochs = *q.Epochs; out.Epochs < 1 {
			return out, problem(http.StatusUnprocessableEntity, "invalid-request",
				"epochs: expected a whole number of at least 1; leave it out to run as often as the set says")
		}
	}
	switch text := bytes.TrimSpace(q.EvalSet); {
	case len(text) > 0 && text[0] == '{':
		out.Upload = q.EvalSet
	case json.Unmarshal(q.EvalSet, &out.EvalSet) != nil || out.EvalSet == "":
		return out, problem(http.StatusUnprocessableEntity, "invalid-request",
			"evalSet: expected the name of an eval set, or an eval set itself")
	}
	return out, nil
}

// null is nil for a JSON null.
func null(raw json.RawMessage) json.RawMessage {
	if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		return nil
	}
	return raw
}

// create starts a run: 201, or 200 if a request with the same Idempotency-Key has started it
// before.
func (a *runsAPI) create(w http.ResponseWriter, r *http.Request) error {
	var body createRequest
	if err := decodeBody(r, &body); err != nil {
		return err
	}
	q, err := body.start()
	if err != nil {
		return err
	}
	q.IdempotencyKey, q.By = r.Header.Get("Idempotency-Key"), access.From(r.Context()).ID
	started, err := a.service.Start(r.Context(), q)
	if err != nil {
		return err
	}
	about(r, started.RunID)
	run, err := a.service.Run(r.Context(), started.RunID)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if started.New {
		status = http.StatusCreated
	}
	w.Header().Set("Location", "/v1/runs/"+started.RunID)
	d := newRunDocument(run)
	d.Warnings = started.Warnings
	writeJSON(w, status, d)
	return nil
}

func (a *runsAPI) get(w http.ResponseWriter, r *http.Request) error {
	run, err := a.service.Run(r.Context(), r.PathValue("runId"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, newRunDocument(run))
	return nil
}

// runList is a page of runs.
type runList struct {
	Runs       []runDocument `json:"runs"`
	NextCursor *string       `json:"nextCursor"`
}

// The sizes of pages.
const (
	pageSize = 100
	maxPage  = 1000
)

func (a *runsAPI) list(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "cursor", "limit", "final")
	want := store.RunQuery{Limit: int(q.number("limit", pageSize, 1, maxPage)), Final: q.flag("final")}
	if parts := q.cursor(2); parts != nil {
		at, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || parts[1] == "" {
			q.badCursor()
		}
		want.Before = store.RunPlace{CreatedAt: time.UnixMicro(at), ID: parts[1]}
	}
	if q.err != nil {
		return q.err
	}
	runs, err := a.service.ListRuns(r.Context(), want)
	if err != nil {
		return err
	}
	page := runList{Runs: make([]runDocument, 0, len(runs))}
	for _, one := range runs {
		page.Runs = append(page.Runs, newRunDocument(one))
	}
	if len(runs) == want.Limit {
		last := runs[len(runs)-1]
		page.NextCursor = cursorOf(strconv.FormatInt(last.CreatedAt.UnixMicro(), 10), last.ID)
	}
	writeJSON(w, http.StatusOK, page)
	return nil
}

// cancelled is the outcome of a cancellation.
type cancelled struct {
	// Cancelled is the number of rollouts that are cancelled, or will be when their agents have been
	// ended.
	Cancelled int         `json:"cancelled"`
	Run       runDocument `json:"run"`
}

// cancel cancels the rest of a run. It is no error if nothing is left.
func (a *runsAPI) cancel(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("runId")
	about(r, id)
	n, err := a.service.Cancel(r.Context(), id)
	if err != nil {
		return err
	}
	run, err := a.service.Run(r.Context(), id)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, cancelled{n, newRunDocument(run)})
	return nil
}

// results serves the present results document of a run.
func (a *runsAPI) results(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("runId")
	if _, err := a.service.Run(r.Context(), id); err != nil {
		return err
	}
	var document bytes.Buffer
	if err := a.service.Results(r.Context(), id, &document); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(document.Bytes()) // the client may be gone
	return nil
}
