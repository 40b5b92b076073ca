package serve

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

// rolloutsAPI serves /v1/rollouts and the rollouts of a run.
type rolloutsAPI struct{ service *service.Service }

// rolloutDocument is a rollout. The results document of the run has its agent's output and the
// details of its scores.
type rolloutDocument struct {
	RolloutID      string     `json:"rolloutId"`
	RunID          string     `json:"runId"`
	EvaluationID   string     `json:"evaluationId"`
	EvaluationName string     `json:"evaluationName"`
	Agent          string     `json:"agent"`
	Epoch          int        `json:"epoch"`
	State          eval.State `json:"state"`
	Score          *float64   `json:"score"`
	Error          *fault     `json:"error"`
	Segments       int        `json:"segments"`
	Attempt        int        `json:"attempt"`
	Suspensions    int        `json:"suspensions"`
	CreatedAt      time.Time  `json:"createdAt"`
	StateSince     time.Time  `json:"stateSince"`
	FinishedAt     *time.Time `json:"finishedAt"`
	Clocks         clocks     `json:"clocks"`
}

// fault is why a rollout faulted.
type fault struct {
	Category string `json:"category"`
	Message  string `json:"message"`
}

// clocks divide the time of a rollout, until it entered its state.
type clocks struct {
	WorkingMs    int64 `json:"workingMs"`
	WaitingMs    int64 `json:"waitingMs"`
	ScoringMs    int64 `json:"scoringMs"`
	QueuedMs     int64 `json:"queuedMs"`
	EvaluatingMs int64 `json:"evaluatingMs"`
}

func newRolloutDocument(o store.Rollout) rolloutDocument {
	d := rolloutDocument{RolloutID: o.ID, RunID: o.RunID, EvaluationID: o.EvaluationID, EvaluationName: o.EvaluationName,
		Agent: o.Agent, Epoch: o.Epoch, State: o.State, Score: o.Score, Segments: o.Segment, Attempt: o.Attempt,
		Suspensions: o.Suspensions, CreatedAt: o.CreatedAt, StateSince: o.StateSince,
		Clocks: clocks{o.Clocks.Working.Milliseconds(), o.Clocks.Waiting.Milliseconds(), o.Clocks.Scoring.Milliseconds(),
			o.Clocks.Queued.Milliseconds(), o.Clocks.Evaluating.Milliseconds()}}
	if o.Fault != nil {
		d.Error = &fault{string(o.Fault.Category), o.Fault.Message}
	}
	if !o.FinishedAt.IsZero() {
		d.FinishedAt = &o.FinishedAt
	}
	return d
}

// rolloutList is a page of rollouts.
type rolloutList struct {
	Rollouts   []rolloutDocument `json:"rollouts"`
	NextCursor *string           `json:"nextCursor"`
}

// list returns the rollouts of a run in the order of its plan.
func (a *rolloutsAPI) list(w http.ResponseWriter, r *http.Request) error {
	q := newQuery(r, "cursor", "limit")
	limit, from := int(q.number("limit", pageSize, 1, maxPage)), 0
	if parts := q.cursor(1); parts != nil {
		var err error
		if from, err = strconv.Atoi(parts[0]); err != nil || from < 0 {
			q.badCursor()
		}
	}
	if q.err != nil {
		return q.err
	}
	runID := r.PathValue("runId")
	if _, err := a.service.Run(r.Context(), runID); err != nil {
		return err
	}
	found, err := a.service.ListRollouts(r.Context(), runID, from, limit)
	if err != nil {
		return err
	}
	page := rolloutList{Rollouts: make([]rolloutDocument, 0, len(found))}
	for _, o := range found {
		page.Rollouts = append(page.Rollouts, newRolloutDocument(o))
	}
	if len(found) == limit {
		page.NextCursor = cursorOf(strconv.Itoa(from + limit))
	}
	return a.answer(w, r, runID, page)
}

func (a *rolloutsAPI) get(w http.ResponseWriter, r *http.Request) error {
	o, err := a.service.FindRollout(r.Context(), r.PathValue("rolloutId"))
	if err != nil {
		return err
	}
	return a.answer(w, r, o.RunID, newRolloutDocument(o))
}

// answer writes a document of a run, redacted: a fault may quote an agent's output.
func (a *rolloutsAPI) answer(w http.ResponseWriter, r *http.Request, runID string, document any) error {
	red, err := a.service.Redactor(r.Context(), runID)
	if err != nil {
		return err
	}
	data, err := json.Marshal(document)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, red.JSON(data))
	return nil
}
