package service

import (
	"context"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// Jobs is what there is to do with jobs, and how one learns of changes of them.
type Jobs interface {
	store.Jobs
	store.Changes
}

// Jobs are the runs that were submitted as jobs.
func (s *Service) Jobs() Jobs { return s.st }

// Tokens are the access tokens of the store.
func (s *Service) Tokens() store.AccessTokens { return s.st }

// InPlace says why the store's folder is not where it was; nil if it is.
func (s *Service) InPlace() error { return s.st.InPlace() }

// Changed returns a channel that is closed at the next change of a run, or of any if runID is empty.
// Take it before you read the run.
func (s *Service) Changed(runID string) <-chan struct{} { return s.st.Changed(runID) }

// Standing is what is worked on and waited for in a run.
func (s *Service) Standing(ctx context.Context, runID string) (store.Standing, error) {
	return s.st.Standing(ctx, runID)
}

// Parked are deliveries that nothing waits for yet, at most so many.
func (s *Service) Parked(ctx context.Context, most int) ([]store.Delivered, error) {
	return s.st.Parked(ctx, most)
}

// OpenQuestions counts the rollouts that wait for an answer of a person.
func (s *Service) OpenQuestions(ctx context.Context) (int, error) {
	return s.st.CountOpen(ctx, string(wait.TypeTask), wait.SourceExternal)
}

// ListRollouts returns up to limit rollouts of a run in the order of the plan, from the one with this
// number on.
func (s *Service) ListRollouts(ctx context.Context, runID string, from, limit int) ([]store.Rollout, error) {
	return s.st.ListRollouts(ctx, runID, from, limit)
}

// FindRollout finds a rollout by its id, with its faults as they are; ErrNotFound if there is none.
func (s *Service) FindRollout(ctx context.Context, id string) (store.Rollout, error) {
	return s.st.Rollout(ctx, id)
}

// HasTrigger says with ErrNotFound that there is no such trigger.
func (s *Service) HasTrigger(ctx context.Context, id string) error {
	_, err := s.st.Trigger(ctx, id)
	return err
}
