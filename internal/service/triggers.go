package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// Trigger finds a trigger by its whole id, with its deliveries, redacted.
func (s *Service) Trigger(ctx context.Context, id string) (runner.Trigger, error) {
	t, err := s.trigger(ctx, id)
	if err != nil {
		return runner.Trigger{}, err
	}
	delivered, err := s.st.Deliveries(ctx, t.ID)
	if err != nil {
		return runner.Trigger{}, err
	}
	return s.show(ctx, t, delivered)
}

// ListTriggers returns triggers, redacted, and the place of the last one of them.
func (s *Service) ListTriggers(ctx context.Context,
	q store.TriggerQuery) (out []runner.Trigger, last int64, err error) {
	if q.RunID != "" {
		if _, err := s.st.Run(ctx, q.RunID); err != nil {
			return nil, 0, err
		}
	}
	if q.RolloutID != "" {
		if _, err := s.st.RunOf(ctx, q.RolloutID); err != nil {
			return nil, 0, err
		}
	}
	found, last, err := s.st.ListTriggers(ctx, q)
	if err != nil {
		return nil, 0, err
	}
	out = make([]runner.Trigger, 0, len(found))
	for _, t := range found {
		shown, err := s.show(ctx, t, nil)
		if err != nil {
			return nil, 0, err
		}
		out = append(out, shown)
	}
	return out, last, nil
}

// Deliver delivers to a trigger, which is named by its whole id.
func (s *Service) Deliver(ctx context.Context, triggerID string, d runner.Delivery) (runner.Receipt, error) {
	if _, err := s.trigger(ctx, triggerID); err != nil {
		return runner.Receipt{}, err
	}
	return s.runs.Deliver(ctx, triggerID, d)
}

func (s *Service) trigger(ctx context.Context, id string) (store.Trigger, error) {
	t, err := s.st.Trigger(ctx, id)
	if errors.Is(err, ErrNotFound) || err == nil && t.ID != id { // the store accepts a part of an id, too
		err = fmt.Errorf("trigger %s: %w", id, ErrNotFound)
	}
	return t, err
}

func (s *Service) show(ctx context.Context, t store.Trigger, delivered []store.Delivered) (runner.Trigger, error) {
	red, err := s.redactors.of(ctx, t.RunID)
	if err != nil {
		return runner.Trigger{}, err
	}
	return runner.ShowTrigger(t, delivered, red)
}
