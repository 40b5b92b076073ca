package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// BeginCall implements Store.
func (s *SQLite) BeginCall(ctx context.Context, tok Token, key CallKey) (c Call, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		if _, err := t.held(tok, StateRunning); err != nil {
			return err
		}
		var ordinal int
		var ended bool
		var work []byte
		err := t.row([]any{&c.ID, &ordinal, &work, &ended}, `SELECT call_id, ordinal, work, ended FROM calls
			WHERE rollout_id = ? AND server = ? AND tool = ? AND arguments = ? ORDER BY ordinal DESC LIMIT 1`, tok.RolloutID, key.Server, key.Tool, key.Arguments)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return err
		case !ended:
			c.New, c.Work = false, work
			return nil
		default:
			ordinal++
		}
		c = Call{ID: CallID(tok.RolloutID, key, ordinal), New: true}
		return t.exec("INSERT INTO calls (call_id, rollout_id, server, tool, arguments, ordinal, begun_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			c.ID, tok.RolloutID, key.Server, key.Tool, key.Arguments, ordinal, t.now)
	})
	if err != nil {
		return Call{}, err
	}
	return c, nil
}

// CallStarted implements Store.
func (s *SQLite) CallStarted(ctx context.Context, tok Token, callID string, work json.RawMessage) error {
	return s.changeCall(ctx, tok, callID, "work = ?1", func(*tx) any { return raw(work) })
}

// EndCall implements Store.
func (s *SQLite) EndCall(ctx context.Context, tok Token, callID string) error {
	return s.changeCall(ctx, tok, callID, "ended = 1, ended_at = ?1", func(t *tx) any { return t.now })
}

// changeCall changes a call of a rollout that is held.
func (s *SQLite) changeCall(ctx context.Context, tok Token, callID, set string, value func(*tx) any) error {
	return s.writeOp(ctx, func(t *tx) error {
		if _, err := t.held(tok, StateRunning); err != nil {
			return err
		}
		n, err := t.change("UPDATE calls SET "+set+" WHERE call_id = ?2 AND rollout_id = ?3", value(t), callID, tok.RolloutID)
		if err == nil && n == 0 {
			err = fmt.Errorf("call %s of rollout %s: %w", callID, tok.RolloutID, ErrNotFound)
		}
		return err
	})
}
