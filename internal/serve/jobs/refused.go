package jobs

import (
	"net/http"

	"github.com/evalrun/evalrun/internal/access"
)

// claimSide returns the registry's endpoints for the executors of jobs.
func claimSide() (out []Endpoint) {
	for _, pattern := range []string{
		"POST /jobs/claim", "POST /jobs/batch", "POST /jobs/{id}/release", "POST /jobs/{id}/reclaim",
		"POST /heartbeat", "HEAD /heartbeat/{agent}", "GET /admin/drain", "POST /admin/drain", "DELETE /admin/drain",
	} {
		out = append(out, Endpoint{Pattern: pattern, Scope: access.Read, serve: refuse})
	}
	return out
}

// refuse answers requests to them.
func refuse(*handler, *http.Request) (response, error) {
	return response{}, &requestError{http.StatusNotImplemented,
		"evalrun executes its jobs itself: they cannot be claimed, and no agent registers here; POST /jobs submits one, GET /jobs/{id} says how it is"}
}
