package service

import (
	"context"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// Jobs is the part of the store that handles jobs, and reports changes of them.
type Jobs interface {
	store.Jobs
	store.Changes
}

// Jobs are the runs that were submitted as jobs.
func (s *Service) Jobs() Jobs { return s.st }

// Tokens are the access tokens of the store.
func (s *Service) Tokens() store.AccessTokens { return s.st }

// InPlace returns an error if the store's folder is not where it was.
func (s *Service) InPlace() error { return s.st.InPlace() }

// Changed returns a channel that is closed at the next change of a run, or of any run if runID is
// empty. Take it before you read the run.
func (s *Service) Changed(runID string) <-chan struct{} { return s.st.Changed(runID) }

// Standing counts the work and the waits of a run.
func (s *Service) Standing(ctx context.Context, runID string) (store.Standing, error) {
	return s.st.Standing(ctx, runID)
}

// Parked returns deliveries that nothing waits for yet, at most so many.
func (s *Service) Parked(ctx context.Context, most int) ([]store.Delivered, error) {
	return s.st.Parked(ctx, most)
}

// OpenQuestions counts the rollouts that wait for a person's answer.
func (s *Service) OpenQuestions(ctx context.Context) (int, error) {
	return s.st.CountOpen(ctx, string(wait.TypeTask), wait.SourceExternal)
}

// ListRollouts returns up to limit rollouts of a run in the order of the plan, beginning with the
// given number.
func (s *Service) ListRollouts(ctx context.Context, runID string, from, limit int) ([]store.Rollout, error) {
	return s.st.ListRollouts(ctx, runID, from, limit)
}

// FindRollout finds a rollout by its id, with unredacted faults; ErrNotFound if there is none.
func (s *Service) FindRollout(ctx context.Context, id string) (store.Rollout, error) {
	return s.st.Rollout(ctx, id)
}

// HasTrigger returns ErrNotFound if there is no such trigger.
func (s *Service) HasTrigger(ctx context.Context, id string) error {
	_, err := s.st.Trigger(ctx, id)
	return err
}
