package rules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store"
)

// batches implements store.Batches.
type batches struct{ db *db }

// batchRows are the rows of batches and of the requests in them.
type batchRows struct {
	tx      *Tx
	holders holderRows
}

// The states of a batch.
const (
	batchOpen     = "open"
	batchStarting = "starting"
	batchStarted  = "started"
	batchEnded    = "ended"
)

// nothingToAdd selects the open batches b of runs in which no rollout is left that could add a
// request: none works or is about to, and no answers of another batch are being delivered, with which
// an agent goes on to its next request.
const nothingToAdd = `b.state = 'open' AND NOT EXISTS (SELECT 1 FROM rollouts o WHERE o.run_id = b.run_id AND (o.state IN ('pending', 'running', 'evaluating') OR o.state = 'suspended' AND o.runnable_at IS NOT NULL))
	AND NOT EXISTS (SELECT 1 FROM judge_batches x WHERE x.run_id = b.run_id AND x.state = 'started' AND x.owner IS NOT NULL)`

// insert adds a request to a batch. merged says that the batch already has its custom id.
func (rows batchRows) insert(triggerID, batchID string, r store.BatchRequest, merged bool) error {
	return rows.tx.Exec(
		"INSERT INTO judge_requests (trigger_id, batch_id, body, custom_id, merged) VALUES (?, ?, ?, ?, ?)",
		triggerID, batchID, document(r.Body), r.CustomID, merged)
}

// selectMergeable finds the batch that an equal request is in. Nobody may hold it, because a holder
// has already read which triggers its answers are for.
const selectMergeable = `SELECT b.batch_id FROM judge_requests q JOIN judge_batches b ON b.batch_id = q.batch_id
	WHERE q.custom_id = ? AND b.run_id = ? AND b.provider = ? AND b.model = ? AND b.state <> 'ended' AND b.owner IS NULL LIMIT 1`

// add adds a request to the batch that has an equal one, else to the open batch for it, or to a new
// one.
func (rows batchRows) add(runID, triggerID string, r store.BatchRequest) error {
	var id string
	err := rows.tx.Row([]any{&id}, selectMergeable, r.CustomID, runID, r.Provider, r.Model)
	if err == nil {
		return rows.insert(triggerID, id, r, true)
	} else if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	var requests, bytes int
	err = rows.tx.Row([]any{&id, &requests, &bytes},
		"SELECT batch_id, requests, bytes FROM judge_batches WHERE run_id = ? AND provider = ? AND model = ? AND state = 'open' AND requests < ?",
		runID, r.Provider, r.Model, store.MaxBatchRequests)
	full := err == nil && bytes+len(r.Body) > store.MaxBatchBytes
	if full {
		err = rows.tx.Exec("UPDATE judge_batches SET state = 'starting', due_at = ? WHERE batch_id = ?", rows.tx.now, id)
	}
	if errors.Is(err, store.ErrNotFound) || full && err == nil {
		id = uuid.NewString()
		err = rows.tx.Exec(
			"INSERT INTO judge_batches (batch_id, run_id, provider, model, state, requests, bytes, created_at, due_at) VALUES (?, ?, ?, ?, 'open', 0, 0, ?, ?)",
			id, runID, r.Provider, r.Model, rows.tx.now, rows.tx.after(r.Wait))
	}
	if err != nil {
		return err
	}
	if err := rows.insert(triggerID, id, r, false); err != nil {
		return err
	}
	return rows.tx.Exec(
		"UPDATE judge_batches SET requests = requests + 1, bytes = bytes + ?1, due_at = CASE WHEN requests + 1 >= ?2 THEN min(due_at, ?3) ELSE due_at END WHERE batch_id = ?4",
		len(r.Body), store.MaxBatchRequests, rows.tx.now, id)
}

const selectBatch = "SELECT b.batch_id, b.run_id, b.provider, b.model, b.state, b.requests, b.external_id, b.started_at, b.attempts, b.checks, b.failures, b.last_error, b.fence FROM judge_batches b "

// dueBatch is a batch to claim, with its state.
type dueBatch struct {
	store.BatchClaim
	state string
}

func (rows batchRows) list(where string, args ...any) (out []dueBatch, err error) {
	err = rows.tx.rows(func(r scanner) error {
		var b dueBatch
		var started sql.NullInt64
		err := r.Scan(&b.ID, &b.RunID, &b.Provider, &b.Model, &b.state, &b.Requests, &b.ExternalID,
			&started, &b.Attempts, &b.Checks, &b.Failures, &b.LastError, &b.Fence)
		b.FirstStart, b.BatchID = fromMicros(started), b.ID
		out = append(out, b)
		return err
	}, selectBatch+where, args...)
	return out, err
}

// due finds batches to claim: those that a dead process has left, those that are due, and those to
// which nobody will add anything.
func (rows batchRows) due(runID string, limit int) (out []dueBatch, err error) {
	dead, err := rows.holders.dead("judge_batches")
	if err != nil {
		return nil, err
	}
	for _, where := range []string{
		"WHERE b.owner IN (SELECT value FROM json_each(?1)) AND b.due_at > ?2 AND (?3 = '' OR b.run_id = ?3) AND b.owner <> ?4 LIMIT ?5",
		"WHERE b.due_at <= ?2 AND (b.owner IS NULL OR b.owner <> ?4 OR " + forgotten("b.batch_id", "?4", "?6") + ") AND (?3 = '' OR b.run_id = ?3) AND ?1 <> '' ORDER BY b.due_at LIMIT ?5",
		"WHERE " + nothingToAdd + " AND b.due_at > ?2 AND (?3 = '' OR b.run_id = ?3) AND ?1 <> '' AND ?4 <> '' LIMIT ?5",
	} {
		found, err := rows.list(where, dead, rows.tx.now, runID, rows.tx.db.holder, limit-len(out), rows.tx.db.working.list())
		if out = append(out, found...); err != nil || len(out) >= limit {
			return out, err
		}
	}
	return out, nil
}

// claim gives a batch to this process, and says what to do with it. ok is false if there is nothing
// to do.
func (rows batchRows) claim(b dueBatch) (c store.BatchClaim, ok bool, err error) {
	c = b.BatchClaim
	var waited bool
	if err := rows.tx.Row([]any{&waited},
		`SELECT EXISTS (SELECT 1 FROM judge_requests q JOIN triggers t ON t.trigger_id = q.trigger_id
		WHERE q.batch_id = ? AND t.state = 'waiting')`, b.ID); err != nil {
		return c, false, err
	}
	if !waited { // if this process dies now, that was the one attempt to cancel it
		c.Action = store.ActionCancel
		return c, b.Attempts > 0, rows.end(b.ID)
	}
	starting, started := 0, b.FirstStart
	switch {
	case b.state == batchStarted:
		c.Action = store.ActionCheck
	case b.Attempts > 0:
		c.Action, starting = store.ActionResolve, 1
	default:
		c.Action, starting, started = store.ActionStart, 1, time.UnixMicro(rows.tx.now).UTC()
	}
	if starting == 1 {
		b.state = batchStarting
	}
	c.Attempts, c.Checks, c.FirstStart = b.Attempts+starting, b.Checks+1-starting, started
	return c, true, rows.tx.Row([]any{&c.Fence},
		"UPDATE judge_batches SET state = ?, owner = ?, due_at = ?, fence = fence + 1, attempts = ?, checks = ?, started_at = ? WHERE batch_id = ? RETURNING fence",
		b.state, rows.tx.db.holder, rows.tx.after(rows.tx.db.lease), c.Attempts, c.Checks, micros(started), b.ID)
}

func (rows batchRows) end(id string) error {
	if err := rows.tx.Exec("DELETE FROM judge_requests WHERE batch_id = ?", id); err != nil {
		return err
	}
	return rows.tx.Exec(
		"UPDATE judge_batches SET state = ?, owner = NULL, due_at = NULL, fence = fence + 1 WHERE batch_id = ?",
		batchEnded, id)
}

// held makes sure that the bearer of a token still holds the batch.
func (rows batchRows) held(t store.BatchToken) error {
	var held bool
	if err := rows.tx.Row([]any{&held}, "SELECT coalesce(owner = ? AND fence = ?, FALSE) FROM judge_batches WHERE batch_id = ?",
		rows.tx.db.holder, t.Fence, t.BatchID); err != nil || held {
		return err
	}
	return fmt.Errorf("batch %s was taken over: %w", t.BatchID, store.ErrFenced)
}

// ClaimBatches implements Batches.
func (s batches) ClaimBatches(ctx context.Context, runID string, limit int) (claims []store.BatchClaim, err error) {
	if limit <= 0 {
		return nil, nil
	}
	forget := func() {
		for _, c := range claims {
			s.db.working.end(c.ID, c.Fence)
		}
		claims = nil
	}
	err = s.db.writeOp(ctx, "claim batches", func(w *write) error {
		forget() // it is tried again
		due, err := w.batches.due(runID, limit)
		if err != nil || len(due) == 0 {
			return err
		}
		if err := w.holders.register(); err != nil {
			return err
		}
		for _, b := range due {
			c, ok, err := w.batches.claim(b)
			if err != nil {
				return fmt.Errorf("claiming batch %s: %w", b.ID, err)
			}
			if ok {
				claims = append(claims, c)
				s.db.working.begin(c.ID, c.Fence)
			}
		}
		return nil
	})
	if err != nil {
		forget()
	}
	return claims, err
}

// WaitingRequests implements Batches.
func (s batches) WaitingRequests(ctx context.Context, batchID string, f func(store.WaitingRequest) error) error {
	rows, err := s.db.read.QueryContext(ctx, selectWaitingRequests, batchID)
	if err != nil {
		return s.db.describe(err, "read the requests of batch", batchID)
	}
	return each(rows, func(r scanner) error {
		var q store.WaitingRequest
		if err := r.Scan(&q.TriggerID, &q.CustomID, (*[]byte)(&q.Body), &q.Merged); err != nil {
			return s.db.describe(err, "read the requests of batch", batchID)
		}
		return f(q)
	})
}

const selectWaitingRequests = `SELECT q.trigger_id, q.custom_id, q.body, q.merged FROM judge_requests q JOIN triggers t ON t.trigger_id = q.trigger_id
	WHERE q.batch_id = ? AND t.state = 'waiting' ORDER BY q.custom_id, q.merged, q.trigger_id`

// BatchStarted implements Batches.
func (s batches) BatchStarted(ctx context.Context, t store.BatchToken, externalID string, next time.Duration) error {
	return s.db.writeOp(ctx, "record the start of batch "+t.BatchID, func(w *write) error {
		if err := w.batches.held(t); err != nil {
			return err
		}
		return w.tx.Exec(
			"UPDATE judge_batches SET state = ?, external_id = ?, owner = NULL, due_at = ?, failures = 0, last_error = '' WHERE batch_id = ?",
			batchStarted, externalID, w.tx.due(next), t.BatchID)
	})
}

// BatchPending implements Batches.
func (s batches) BatchPending(ctx context.Context, t store.BatchToken, next time.Duration, message string) error {
	return s.db.writeOp(ctx, "put back batch "+t.BatchID, func(w *write) error {
		if err := w.batches.held(t); err != nil {
			return err
		}
		return w.tx.Exec(
			"UPDATE judge_batches SET owner = NULL, due_at = ?1, failures = CASE WHEN ?2 = '' THEN 0 ELSE failures + 1 END, last_error = ?2 WHERE batch_id = ?3",
			w.tx.due(next), message, t.BatchID)
	})
}

// BatchEnded implements Batches.
func (s batches) BatchEnded(ctx context.Context, t store.BatchToken) error {
	return s.db.writeOp(ctx, "end batch "+t.BatchID, func(w *write) error {
		if err := w.batches.held(t); err != nil {
			return err
		}
		return w.batches.end(t.BatchID)
	})
}

// StartedBatches implements Batches.
func (s batches) StartedBatches(ctx context.Context) (ids []string, err error) {
	rows, err := s.db.read.QueryContext(ctx, selectStartedBatches)
	if err != nil {
		return nil, s.db.describe(err, "list", "batches")
	}
	err = each(rows, func(r scanner) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, s.db.describe(err, "list", "batches")
}

const selectStartedBatches = "SELECT external_id FROM judge_batches WHERE external_id <> ''"
