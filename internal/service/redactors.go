package service

import (
	"context"
	"sync"

	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// maxRedactors is the number of runs whose redactors are kept.
const maxRedactors = 256

// redactors caches the redactors of runs. The plan of a run never changes, so that its redactor is
// made once.
type redactors struct {
	st        store.Reader
	variables runner.Variables

	mu   sync.Mutex
	runs map[string]planned
}

// planned is the cached part of a run's plan.
type planned struct {
	red *redact.Redactor
	// pass is the least score that passes.
	pass float64
}

func (q *redactors) of(ctx context.Context, runID string) (*redact.Redactor, error) {
	p, err := q.planned(ctx, runID)
	return p.red, err
}

func (q *redactors) planned(ctx context.Context, runID string) (planned, error) {
	q.mu.Lock()
	p, ok := q.runs[runID]
	q.mu.Unlock()
	if ok {
		return p, nil
	}
	stored, err := q.st.Plan(ctx, runID)
	if err != nil {
		return p, err
	}
	plan, err := plans.Read(stored)
	if err != nil {
		return p, err
	}
	p = planned{q.variables.Redactor(plan), plan.Set.Thresholds.Pass}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.runs) >= maxRedactors {
		clear(q.runs)
	}
	q.runs[runID] = p
	return p, nil
}

// Redactor returns the redactor for output about a run.
func (s *Service) Redactor(ctx context.Context, runID string) (*redact.Redactor, error) {
	return s.redactors.of(ctx, runID)
}

// Tally counts the rollouts of a run at one moment. It counts completed ones by whether they have
// passed.
func (s *Service) Tally(ctx context.Context, runID string) (store.Tally, error) {
	p, err := s.redactors.planned(ctx, runID)
	if err != nil {
		return store.Tally{}, err
	}
	return s.st.Tally(ctx, runID, p.pass-schemas.Tolerance)
}
