package rules

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// ledger implements store.Ledger.
type ledger struct{ db *db }

// BeginCall implements Ledger.
func (s ledger) BeginCall(ctx context.Context, tok store.Token, key store.CallKey) (c store.Call, err error) {
	err = s.db.writeOp(ctx, "begin a call of a tool of rollout "+tok.RolloutID, func(w *write) error {
		o, err := w.rollouts.held(tok, eval.StateRunning)
		if err != nil {
			return err
		}
		equal, err := w.calls.equal(tok.RolloutID, key)
		if err != nil {
			return err
		}
		for _, e := range equal {
			switch {
			case e.segment > 0 && (e.segment < o.Segment || e.attempt == o.Attempt):
				continue // this agent, or the conversation that it goes on with, has its result
			case e.segment > 0 && e.work == nil:
				// An attempt that came to nothing has got an answer that nothing was started: the
				// call can be made again.
				c = store.Call{ID: e.id, New: true}
				return w.tx.Exec("UPDATE calls SET segment = NULL, attempt = NULL, begun_at = ? WHERE call_id = ?", w.tx.now, e.id)
			}
			c = store.Call{ID: e.id, Work: e.work}
			return nil
		}
		c = store.Call{ID: store.CallID(tok.RolloutID, key, len(equal)), New: true}
		return w.tx.Exec(
			"INSERT INTO calls (call_id, rollout_id, server, tool, arguments, ordinal, begun_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			c.ID, tok.RolloutID, key.Server, key.Tool, key.Arguments, len(equal), w.tx.now)
	})
	if err != nil {
		return store.Call{}, err
	}
	return c, nil
}

// CallStarted implements Ledger.
func (s ledger) CallStarted(ctx context.Context, tok store.Token, callID string, work json.RawMessage) error {
	return s.changeCall(ctx, tok, callID, func(w *write, _ store.Rollout) (int64, error) {
		return w.tx.change("UPDATE calls SET work = ? WHERE call_id = ? AND rollout_id = ?", raw(work), callID, tok.RolloutID)
	})
}

// CallWork implements Ledger.
func (s ledger) CallWork(ctx context.Context, rolloutID, callID string) (json.RawMessage, error) {
	var work []byte
	err := s.db.read.QueryRowContext(ctx,
		"SELECT work FROM calls WHERE call_id = ? AND rollout_id = ?", callID, rolloutID).
		Scan(&work)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("call %s of rollout %s: %w", callID, rolloutID, store.ErrNotFound)
	}
	return work, s.db.describe(err, "read call", callID)
}

// EndCall implements Ledger.
func (s ledger) EndCall(ctx context.Context, tok store.Token, callID string) error {
	return s.changeCall(ctx, tok, callID, func(w *write, o store.Rollout) (int64, error) {
		return w.tx.change("UPDATE calls SET segment = ?, attempt = ?, ended_at = ? WHERE call_id = ? AND rollout_id = ?",
			o.Segment, o.Attempt, w.tx.now, callID, tok.RolloutID)
	})
}

// changeCall changes a call of a rollout that is held.
func (s ledger) changeCall(
	ctx context.Context, tok store.Token, callID string, change func(*write, store.Rollout) (int64, error),
) error {
	return s.db.writeOp(ctx, "change call "+callID, func(w *write) error {
		o, err := w.rollouts.held(tok, eval.StateRunning)
		if err != nil {
			return err
		}
		n, err := change(w, o.Rollout)
		if err == nil && n == 0 {
			err = fmt.Errorf("call %s of rollout %s: %w", callID, tok.RolloutID, store.ErrNotFound)
		}
		return err
	})
}

// callRows are the rows of the calls of tools.
type callRows struct{ tx *Tx }

// equalCall is one of the equal calls of a rollout. segment is 0 if it has not ended.
type equalCall struct {
	id               string
	work             []byte
	segment, attempt int
}

// equal returns the equal calls of a rollout in their order.
func (rows callRows) equal(rolloutID string, key store.CallKey) (out []equalCall, err error) {
	err = rows.tx.rows(func(r scanner) error {
		var e equalCall
		err := r.Scan(&e.id, &e.work, &e.segment, &e.attempt)
		out = append(out, e)
		return err
	}, `SELECT call_id, work, coalesce(segment, 0), coalesce(attempt, 0) FROM calls
		WHERE rollout_id = ? AND server = ? AND tool = ? AND arguments = ? ORDER BY ordinal`,
		rolloutID, key.Server, key.Tool, key.Arguments)
	return out, err
}
