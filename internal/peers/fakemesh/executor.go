package fakemesh

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultLease is the lease of a job without max_duration.
const defaultLease = 5 * time.Minute

func (j *Job) ownedBy(instance string) bool {
	return j.OwnerInstanceID != nil && *j.OwnerInstanceID == instance
}

// renew gives the owner of a job another lease.
func (r *Registry) renew(j *Job) {
	lease := defaultLease
	if j.MaxDuration != nil {
		lease = time.Duration(*j.MaxDuration) * time.Second
	}
	until := r.now().Add(lease).Unix()
	j.LeaseExpiresAt = &until
}

// Agents returns the ids of the agents that are there.
func (r *Registry) Agents() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.agents {
		ids = append(ids, id)
	}
	return ids
}

// Sweep takes jobs from their owners if their leases have lapsed by a time. Those that may not be
// tried again fail.
func (r *Registry) Sweep(by time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, j := range r.jobs {
		if !j.ended() && j.OwnerInstanceID != nil && j.LeaseExpiresAt != nil && *j.LeaseExpiresAt < by.Unix() {
			j.giveBack("lease expired: no completion within lease window")
		}
	}
}

// giveBack takes a job from its owner, for another attempt if it may have one.
func (j *Job) giveBack(reason string) {
	j.OwnerInstanceID, j.LeaseExpiresAt = nil, nil
	if j.Status = "working"; j.AttemptCount > j.MaxRetries {
		j.Status, j.Error = "failed", &reason
	}
}

// agent answers heartbeats.
func (r *Registry) agent(w http.ResponseWriter, q *http.Request, path []string) {
	switch {
	case q.Method == http.MethodPost && len(path) == 1:
		var in struct {
			AgentID string `json:"agent_id"`
			Tools   []struct{ Capability string }
		}
		if err := json.NewDecoder(q.Body).Decode(&in); err != nil || in.AgentID == "" || len(in.Tools) == 0 {
			r.fail(w, http.StatusBadRequest, "agent_id and tools are required")
			return
		}
		if r.agents == nil {
			r.agents = map[string][]string{}
		}
		r.agents[in.AgentID] = nil
		for _, t := range in.Tools {
			r.agents[in.AgentID] = append(r.agents[in.AgentID], t.Capability)
		}
		answer(w, http.StatusOK, map[string]any{
			"agent_id": in.AgentID, "message": "Agent registered via heartbeat", "status": "success",
		})
	case len(path) != 2 || r.agents[path[1]] == nil:
		w.WriteHeader(http.StatusGone)
	case q.Method == http.MethodDelete:
		delete(r.agents, path[1])
		w.WriteHeader(http.StatusNoContent)
	default:
		pending := 0
		for _, j := range r.jobs {
			if !j.ended() && j.OwnerInstanceID == nil && slices.Contains(r.agents[path[1]], j.Capability) {
				pending++
			}
		}
		if pending > 0 {
			w.Header().Set("X-Mesh-Pending-Jobs", strconv.Itoa(pending))
		}
		w.WriteHeader(http.StatusOK)
	}
}

// claim gives an agent the oldest job of a capability.
func (r *Registry) claim(w http.ResponseWriter, q *http.Request) {
	var in struct {
		Capability string
		InstanceID string `json:"instance_id"`
	}
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil || in.Capability == "" || in.InstanceID == "" {
		r.fail(w, http.StatusBadRequest, "capability and instance_id are required")
		return
	}
	claimed := []map[string]any{}
	for _, j := range r.jobs {
		if j.Capability != in.Capability || j.Status != "working" || j.OwnerInstanceID != nil {
			continue
		}
		j.OwnerInstanceID = &in.InstanceID
		j.AttemptCount++
		j.ClaimEpoch++
		r.renew(j)
		claimed = append(claimed, map[string]any{"id": j.ID,
			"submitted_payload": j.SubmittedPayload, "attempt_count": j.AttemptCount,
			"claim_epoch": j.ClaimEpoch, "lease_expires_at": j.LeaseExpiresAt,
			"max_duration": j.MaxDuration, "recv_cursor": j.RecvCursor})
		break
	}
	answer(w, http.StatusOK, map[string]any{"claimed": claimed})
}

// change is a delta of a batch.
type change struct {
	ID              string          `json:"id"`
	ClaimEpoch      *int            `json:"claim_epoch"`
	Status          string          `json:"status"`
	Progress        *float64        `json:"progress"`
	ProgressMessage *string         `json:"progress_message"`
	Result          json.RawMessage `json:"result"`
	Error           *string         `json:"error"`
	RecvCursor      json.RawMessage `json:"recv_cursor"`
}

// batch applies what an agent reports of its jobs.
func (r *Registry) batch(w http.ResponseWriter, q *http.Request) {
	var in struct {
		InstanceID string `json:"instance_id"`
		Deltas     []change
	}
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil || in.InstanceID == "" || len(in.Deltas) == 0 {
		r.fail(w, http.StatusBadRequest, "instance_id and deltas are required")
		return
	}
	accepted, rejected := 0, []map[string]string{}
	for _, c := range in.Deltas {
		if reason := r.apply(in.InstanceID, c); reason != "" {
			rejected = append(rejected, map[string]string{"id": c.ID, "reason": reason})
		} else {
			accepted++
		}
	}
	answer(w, http.StatusOK, map[string]any{"accepted": accepted, "rejected": rejected})
}

// apply changes a job, or returns the reason why not.
func (r *Registry) apply(instance string, c change) (reason string) {
	j := r.find(c.ID)
	switch {
	case j == nil:
		return "not_found"
	case j.ended():
		return "already_terminal"
	case c.ClaimEpoch == nil && !j.ownedBy(instance):
		return "not_owner"
	case c.ClaimEpoch != nil && (!j.ownedBy(instance) || *c.ClaimEpoch != j.ClaimEpoch):
		return "claim_superseded"
	case c.Status != "" && !slices.Contains(
		[]string{"working", "input_required", "completed", "failed", "cancelled"}, c.Status):
		return "invalid_status"
	}
	if c.Status != "" {
		j.Status = c.Status
	}
	if c.Progress != nil {
		j.Progress = c.Progress
	}
	if c.ProgressMessage != nil {
		j.ProgressMessage = c.ProgressMessage
	}
	if c.RecvCursor != nil {
		j.RecvCursor = c.RecvCursor
	}
	switch j.Status {
	case "completed":
		j.Result = c.Result
	case "failed":
		j.Error = c.Error
	}
	r.renew(j)
	return ""
}

// release gives a job back.
func (r *Registry) release(w http.ResponseWriter, q *http.Request, j *Job) {
	var in struct {
		InstanceID string `json:"instance_id"`
		Reason     string
	}
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil || !j.ownedBy(in.InstanceID) {
		r.fail(w, http.StatusForbidden, "caller is not the current owner of this job")
		return
	}
	j.giveBack("exhausted (release): " + strings.TrimSpace(in.Reason))
	answer(w, http.StatusOK, map[string]any{"status": j.Status, "attempt_count": j.AttemptCount})
}
