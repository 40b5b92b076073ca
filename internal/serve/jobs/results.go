package jobs

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
)

// maxResults is how many results are cached. The result of a job does not change, and clients ask
// for it again and again.
const maxResults = 1000

// results caches the results of completed jobs.
type results struct {
	service *service.Service

	mu   sync.Mutex
	made map[string]json.RawMessage
}

func newResults(s *service.Service) *results {
	return &results{service: s, made: map[string]json.RawMessage{}}
}

// of returns the result of a completed job, and nil for any other.
func (r *results) of(ctx context.Context, j store.Job) (json.RawMessage, error) {
	if j.Status != store.JobCompleted || j.RolloutOf != "" {
		return j.Result, nil
	}
	r.mu.Lock()
	made, ok := r.made[j.ID]
	r.mu.Unlock()
	if ok {
		return made, nil
	}
	made, err := r.make(ctx, j)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.made) >= maxResults {
		for id := range r.made { // any one
			delete(r.made, id)
			break
		}
	}
	r.made[j.ID] = made
	return made, nil
}

func (r *results) make(ctx context.Context, j store.Job) (json.RawMessage, error) {
	summary, err := r.service.Summary(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	return json.Marshal(summary)
}
