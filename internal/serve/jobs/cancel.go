package jobs

import (
	"errors"
	"net/http"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// cancel ends a job as cancelled. Followers of its events see that before the agents of its run are
// ended, which happens after the grace if any is running.
func (h *handler) cancel(r *http.Request) (response, error) {
	var q struct {
		Reason string `json:"reason"`
	}
	if _, err := readBody(r, &q, true); err != nil {
		return response{}, err
	}
	id := r.PathValue("id")
	h.o.About(r, id)
	before, err := h.st.CancelJob(r.Context(), id, q.Reason, h.o.Grace, wait.LocalSources()...) // they go on, as with evalrun cancel
	if err != nil {
		return response{}, h.readOnly(r, id, err)
	}
	h.o.Service.Runner().Wake(id)
	return response{http.StatusOK, struct {
		Forwarded *string         `json:"forwarded_to_instance_id"`
		Status    store.JobStatus `json:"status"`
	}{text(before.Owner), store.JobCancelled}}, nil
}

// readOnly refuses to change a rollout as a job.
func (h *handler) readOnly(r *http.Request, id string, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	rollout, findErr := h.st.RolloutJob(r.Context(), id)
	if findErr != nil {
		return err
	}
	return &requestError{http.StatusConflict,
		"job " + id + " is a rollout, which can only be read here; its run is " + rollout.RolloutOf}
}
