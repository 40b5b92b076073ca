package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// BeginCall implements Store.
func (s *SQLite) BeginCall(ctx context.Context, tok store.Token, key store.CallKey) (c store.Call, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, eval.StateRunning)
		if err != nil {
			return err
		}
		equal, err := t.equalCalls(tok.RolloutID, key)
		if err != nil {
			return err
		}
		for _, e := range equal {
			switch {
			case e.segment > 0 && (e.segment < o.Segment || e.attempt == o.Attempt):
				continue // this agent, or the conversation that it goes on with, has its result
			case e.segment > 0 && e.work == nil:
				// An attempt that came to nothing has got an answer that nothing was started: the call can be made again.
				c = store.Call{ID: e.id, New: true}
				return t.exec("UPDATE calls SET segment = NULL, attempt = NULL, begun_at = ? WHERE call_id = ?", t.now, e.id)
			}
			c = store.Call{ID: e.id, Work: e.work}
			return nil
		}
		c = store.Call{ID: store.CallID(tok.RolloutID, key, len(equal)), New: true}
		return t.exec("INSERT INTO calls (call_id, rollout_id, server, tool, arguments, ordinal, begun_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			c.ID, tok.RolloutID, key.Server, key.Tool, key.Arguments, len(equal), t.now)
	})
	if err != nil {
		return store.Call{}, err
	}
	return c, nil
}

// equalCall is one of the equal calls of a rollout. segment is 0 if it has not ended.
type equalCall struct {
	id               string
	work             []byte
	segment, attempt int
}

// equalCalls are the equal calls of a rollout in their order.
func (t *tx) equalCalls(rolloutID string, key store.CallKey) (out []equalCall, err error) {
	err = t.rows(func(r scanner) error {
		var e equalCall
		err := r.Scan(&e.id, &e.work, &e.segment, &e.attempt)
		out = append(out, e)
		return err
	}, `SELECT call_id, work, coalesce(segment, 0), coalesce(attempt, 0) FROM calls
		WHERE rollout_id = ? AND server = ? AND tool = ? AND arguments = ? ORDER BY ordinal`, rolloutID, key.Server, key.Tool, key.Arguments)
	return out, err
}

// CallStarted implements Store.
func (s *SQLite) CallStarted(ctx context.Context, tok store.Token, callID string, work json.RawMessage) error {
	return s.changeCall(ctx, tok, callID, func(t *tx, _ store.Rollout) (int64, error) {
		return t.change("UPDATE calls SET work = ? WHERE call_id = ? AND rollout_id = ?", raw(work), callID, tok.RolloutID)
	})
}

// CallWork implements Store.
func (s *SQLite) CallWork(ctx context.Context, tok store.Token, callID string) (json.RawMessage, error) {
	var work []byte
	err := s.read.QueryRowContext(ctx, "SELECT work FROM calls WHERE call_id = ? AND rollout_id = ?", callID, tok.RolloutID).Scan(&work)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("call %s of rollout %s: %w", callID, tok.RolloutID, store.ErrNotFound)
	}
	return work, s.describe(err)
}

// EndCall implements Store.
func (s *SQLite) EndCall(ctx context.Context, tok store.Token, callID string) error {
	return s.changeCall(ctx, tok, callID, func(t *tx, o store.Rollout) (int64, error) {
		return t.change("UPDATE calls SET segment = ?, attempt = ?, ended_at = ? WHERE call_id = ? AND rollout_id = ?", o.Segment, o.Attempt, t.now, callID, tok.RolloutID)
	})
}

// changeCall changes a call of a rollout that is held.
func (s *SQLite) changeCall(ctx context.Context, tok store.Token, callID string, change func(*tx, store.Rollout) (int64, error)) error {
	return s.writeOp(ctx, func(t *tx) error {
		o, err := t.held(tok, eval.StateRunning)
		if err != nil {
			return err
		}
		n, err := change(t, o.Rollout)
		if err == nil && n == 0 {
			err = fmt.Errorf("call %s of rollout %s: %w", callID, tok.RolloutID, store.ErrNotFound)
		}
		return err
	})
}
