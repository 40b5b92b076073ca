package jobs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

// row is a job in the registry's form, in which every key is always present.
type row struct {
	AttemptCount     int             `json:"attempt_count"`
	Capability       string          `json:"capability"`
	ClaimEpoch       int64           `json:"claim_epoch"`
	Error            *string         `json:"error"`
	ID               string          `json:"id"`
	LastHeartbeatAt  *int64          `json:"last_heartbeat_at"`
	LeaseExpiresAt   *int64          `json:"lease_expires_at"`
	MaxDuration      *int64          `json:"max_duration"`
	MaxRetries       int             `json:"max_retries"`
	OwnerInstanceID  *string         `json:"owner_instance_id"`
	Progress         *float64        `json:"progress"`
	ProgressMessage  *string         `json:"progress_message"`
	RecvCursor       any             `json:"recv_cursor"` // only executors have one
	Result           json.RawMessage `json:"result"`
	Status           store.JobStatus `json:"status"`
	SubmittedAt      int64           `json:"submitted_at"`
	SubmittedBy      string          `json:"submitted_by"`
	SubmittedPayload json.RawMessage `json:"submitted_payload"`
	TotalDeadline    *int64          `json:"total_deadline"`
}

// newRow makes the row of a job. The row of a completed job has its result.
func newRow(j store.Job, result json.RawMessage) row {
	out := row{AttemptCount: j.Attempts, Capability: j.Capability, ClaimEpoch: j.Fence, Error: text(j.Error), ID: j.ID,
		LeaseExpiresAt: seconds(j.LeaseUntil), OwnerInstanceID: text(j.Owner), Result: result, Status: j.Status,
		SubmittedAt: j.SubmittedAt.Unix(), SubmittedBy: j.SubmittedBy, SubmittedPayload: j.Payload,
		TotalDeadline: seconds(j.Deadline)}
	out.LastHeartbeatAt = seconds(j.RenewedAt)
	if j.Status.IsTerminal() {
		out.LastHeartbeatAt = seconds(j.EndedAt) // like the registry, which has no field of its own for it
	}
	if j.MaxDuration > 0 {
		s := max(int64(j.MaxDuration.Seconds()), 1)
		out.MaxDuration = &s
	}
	if j.MaxRetries != nil {
		out.MaxRetries = *j.MaxRetries
	}
	if j.Ended > 0 {
		share := float64(j.Ended) / float64(j.Total)
		out.Progress = &share
	}
	out.ProgressMessage = text(service.ProgressMessage(j))
	return out
}

// row makes the row of a job without the secrets of its run.
func (h *handler) row(ctx context.Context, j store.Job, result json.RawMessage) (row, error) {
	red, err := h.o.Service.Redactor(ctx, cmp.Or(j.RolloutOf, j.ID))
	if err != nil {
		return row{}, err
	}
	out := newRow(j, red.JSON(result))
	out.SubmittedPayload = red.JSON(out.SubmittedPayload)
	for _, said := range []*string{out.Error, out.ProgressMessage} {
		if said != nil {
			*said = red.String(*said)
		}
	}
	return out, nil
}

// find reads a job, or the rollout with the id.
func (h *handler) find(ctx context.Context, id string) (store.Job, error) {
	job, err := h.st.Job(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return h.st.RolloutJob(ctx, id)
	}
	return job, err
}

// get returns a job. With wait it first waits at most so many seconds until the status changes, if
// the job has not ended.
func (h *handler) get(r *http.Request) (response, error) {
	id := r.PathValue("id")
	limit, err := waitSeconds(r)
	if err != nil {
		return response{}, err
	}
	job, err := h.find(r.Context(), id)
	if err != nil {
		return response{}, err
	}
	if limit > 0 && !job.Status.IsTerminal() {
		if job, err = h.waitStatus(r.Context(), job, limit); err != nil {
			return response{}, err
		}
	}
	result, err := h.results.of(r.Context(), job)
	if err != nil {
		return response{}, err
	}
	shown, err := h.row(r.Context(), job, result)
	return response{http.StatusOK, shown}, err
}
