package service

import (
	"context"
	"sync"

	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// maxRedactors is of how many runs the redactors are kept.
const maxRedactors = 256

// redactors take secrets out of what is shown of runs. The plan of a run never changes, so that its
// redactor is made once.
type redactors struct {
	st        store.Reader
	variables runner.Variables

	mu   sync.Mutex
	runs map[string]*redact.Redactor
}

func (q *redactors) of(ctx context.Context, runID string) (*redact.Redactor, error) {
	q.mu.Lock()
	red, ok := q.runs[runID]
	q.mu.Unlock()
	if ok {
		return red, nil
	}
	stored, err := q.st.Plan(ctx, runID)
	if err != nil {
		return nil, err
	}
	plan, err := plans.Read(stored)
	if err != nil {
		return nil, err
	}
	red = q.variables.Redactor(plan)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.runs) >= maxRedactors {
		clear(q.runs)
	}
	q.runs[runID] = red
	return red, nil
}

// Redactor takes secrets out of what is shown of a run.
func (s *Service) Redactor(ctx context.Context, runID string) (*redact.Redactor, error) {
	return s.redactors.of(ctx, runID)
}
