package rules

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// outbox implements store.Outbox.
type outbox struct{ db *db }

// outboxRows are the rows of notifications and of their targets.
type outboxRows struct {
	tx      *Tx
	holders holderRows
}

// addTargets records who is told of the events of a run or, if runID is empty, of those of every
// run until a time.
func (rows outboxRows) addTargets(runID string, targets []store.NotifyTarget, until any) error {
	for _, t := range targets {
		if err := rows.tx.Exec(`INSERT INTO notify_targets (run_id, target, types, until) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT (run_id, target) DO UPDATE SET types = ?3, until = ?4`, runID, t.ID, list(t.Types), until); err != nil {
			return err
		}
	}
	return nil
}

// notify records which targets an event is to be told to.
func (t *Tx) notify(runID string, seq int64, typ store.EventType) error {
	if !slices.Contains(store.NotifiedEvents, typ) {
		return nil
	}
	return t.Exec(`INSERT INTO notifications (run_id, seq, target, of_run, created_at, due_at)
		SELECT ?1, ?2, target, run_id <> '', ?3, ?3 FROM notify_targets
		WHERE run_id IN ('', ?1) AND (until IS NULL OR until > ?3) AND EXISTS (SELECT 1 FROM json_each(CAST(types AS TEXT)) WHERE value = ?4)`,
		runID, seq, t.now, string(typ))
}

const (
	notificationColumns = "id, target, of_run, run_id, seq, attempts, parts, created_at, due_at, last_error"
	// ours is the condition that a notification can be sent by a process that knows the targets ?1.
	ours = "(of_run OR target IN (SELECT value FROM json_each(?1)))"
	// selectNextNotification finds when one of ours is due next.
	selectNextNotification = "SELECT min(due_at) FROM notifications WHERE due_at IS NOT NULL AND " + ours
	selectUndelivered      = "SELECT " + notificationColumns + " FROM notifications WHERE run_id = ? ORDER BY id"
)

func scanNotification(r scanner) (n store.Notification, err error) {
	var created, due sql.NullInt64
	err = r.Scan(&n.ID, &n.Target, &n.OfRun, &n.RunID, &n.Seq, &n.Attempts, &n.Parts, &created, &due, &n.LastError)
	n.CreatedAt, n.DueAt = fromMicros(created), fromMicros(due)
	return n, err
}

// AddTargets implements Outbox.
func (s outbox) AddTargets(ctx context.Context, targets []store.NotifyTarget, keep time.Duration) error {
	return s.db.writeOp(ctx, "add targets of notifications", func(w *write) error {
		if err := w.tx.Exec("DELETE FROM notify_targets WHERE run_id = '' AND until <= ?", w.tx.now); err != nil {
			return err
		}
		if err := w.tx.Exec(
			`UPDATE notifications SET due_at = NULL, last_error = 'no process that knows the target has run for a long time'
			WHERE due_at < ? AND NOT of_run AND owner IS NULL`, w.tx.after(-keep)); err != nil {
			return err
		}
		return w.outbox.addTargets("", targets, w.tx.after(keep))
	})
}

// NextNotification implements Outbox.
func (s outbox) NextNotification(ctx context.Context, known []string) (next time.Time, err error) {
	defer func() { err = s.db.describe(err, "find the notification that is due next") }()
	var due sql.NullInt64
	if err := s.db.read.QueryRowContext(ctx, selectNextNotification, list(known)).Scan(&due); err != nil {
		return time.Time{}, err
	}
	if next = fromMicros(due); !next.After(s.db.now()) {
		return next, nil
	}
	var dead []string
	rows, err := s.db.read.QueryContext(ctx, selectOwners("notifications"), s.db.holder)
	if err != nil {
		return next, err
	}
	if err := each(rows, func(r scanner) error { return appendDead(&dead, r) }); err != nil || len(dead) == 0 {
		return next, err
	}
	return s.db.now(), nil
}

// ClaimNotifications implements Outbox.
func (s outbox) ClaimNotifications(
	ctx context.Context, known, busy []string, limit int, hold time.Duration,
) (claimed []store.Notification, err error) {
	err = s.db.writeOp(ctx, "claim notifications", func(w *write) error {
		claimed = nil
		if err := w.holders.register(); err != nil {
			return err
		}
		dead, err := w.holders.dead("notifications")
		if err != nil {
			return err
		}
		if dead != "[]" {
			if err := w.tx.Exec(
				"UPDATE notifications SET owner = NULL, due_at = ? WHERE owner IN (SELECT value FROM json_each(?))",
				w.tx.now, dead); err != nil {
				return err
			}
		}
		if err := w.tx.rows(func(r scanner) error {
			n, err := scanNotification(r)
			claimed = append(claimed, n)
			return err
		}, "SELECT "+notificationColumns+
			` FROM notifications WHERE due_at <= ?3 AND target = (SELECT target FROM notifications
				WHERE due_at <= ?3 AND `+ours+` AND target NOT IN (SELECT value FROM json_each(?2)) ORDER BY due_at, id LIMIT 1)
			AND `+ours+` ORDER BY id LIMIT ?4`, list(known), list(busy), w.tx.now, limit); err != nil {
			return err
		}
		for i := range claimed {
			claimed[i].Attempts++
			if err := w.tx.Exec("UPDATE notifications SET attempts = attempts + 1, owner = ?, due_at = ? WHERE id = ?",
				w.tx.db.holder, w.tx.after(hold), claimed[i].ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return claimed, nil
}

// ofClaim selects a notification as it was claimed.
const ofClaim = " WHERE id = ?1 AND owner = ?2 AND attempts = ?3"

// NotificationSent implements Outbox.
func (s outbox) NotificationSent(ctx context.Context, n store.Notification) error {
	return s.end(ctx, n, func(t *Tx) (int64, error) {
		return t.change("DELETE FROM notifications"+ofClaim, n.ID, t.db.holder, n.Attempts)
	})
}

// NotificationFailed implements Outbox.
func (s outbox) NotificationFailed(ctx context.Context, n store.Notification, f store.NotificationFailure) error {
	return s.end(ctx, n, func(t *Tx) (int64, error) {
		return t.change(`UPDATE notifications SET owner = NULL, parts = max(parts, ?4), due_at = ?5,
			last_error = CASE WHEN ?6 = '' THEN last_error ELSE ?6 END, attempts = attempts - CASE WHEN ?7 THEN 1 ELSE 0 END`+ofClaim,
			n.ID, t.db.holder, n.Attempts, f.Parts, t.due(f.After), f.Error, f.NotTried)
	})
}

// end ends the claim of a notification, if it is still this process's.
func (s outbox) end(ctx context.Context, n store.Notification, change func(*Tx) (int64, error)) error {
	return s.db.writeOp(ctx, "end the claim of a notification of run "+n.RunID, func(w *write) error {
		done, err := change(w.tx)
		if err == nil && done == 0 {
			err = fmt.Errorf("notification %d: %w", n.ID, store.ErrNotClaimed)
		}
		return err
	})
}

// Undelivered implements Outbox.
func (s outbox) Undelivered(ctx context.Context, runID string) (out []store.Notification, err error) {
	defer func() { err = s.db.describe(err, "read the notifications of run", runID) }()
	rows, err := s.db.read.QueryContext(ctx, selectUndelivered, runID)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(r scanner) error {
		n, err := scanNotification(r)
		out = append(out, n)
		return err
	})
	return out, err
}

// list is a JSON array for json_each.
func list[T any](values []T) string {
	if values == nil {
		return "[]"
	}
	return string(marshal(values).([]byte))
}
