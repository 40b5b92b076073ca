package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// holderKept is how long a holder is kept that holds nothing and of which it cannot be said whether it is dead.
const holderKept = 7 * 24 * time.Hour

// register makes this process known with its claim; the first time it also forgets holders that are gone.
func (t *tx) register() error {
	p := t.store.process
	added, err := t.change("INSERT OR IGNORE INTO holders (holder_id, pid, start_time, boot_id, pid_ns, opened_at) VALUES (?, ?, ?, ?, ?, ?)",
		t.store.holder, p.PID, p.StartTime, p.BootID, p.PIDNamespace, t.now)
	if err != nil || added == 0 {
		return err
	}
	idle := ` FROM holders h WHERE h.holder_id <> ? AND h.holder_id NOT IN (SELECT owner FROM rollouts WHERE owner IS NOT NULL)
		AND h.holder_id NOT IN (SELECT owner FROM triggers WHERE owner IS NOT NULL)`
	if err := t.exec("DELETE FROM holders WHERE opened_at < ? AND holder_id IN (SELECT h.holder_id"+idle+")", t.after(-holderKept), t.store.holder); err != nil {
		return err
	}
	var dead []string
	if err := t.rows(func(r scanner) error { return appendDead(&dead, r) }, selectHolders+idle, t.store.holder); err != nil {
		return err
	}
	for _, id := range dead {
		if err := t.exec("DELETE FROM holders WHERE holder_id = ?", id); err != nil {
			return err
		}
	}
	return nil
}

// deadHolders returns, as a JSON array, those holders of something in a table whose process is certainly gone.
func (t *tx) deadHolders(table string) (string, error) {
	dead := []string{}
	if err := t.rows(func(r scanner) error { return appendDead(&dead, r) }, selectOwners(table), t.store.holder); err != nil {
		return "", err
	}
	return string(marshal(dead).([]byte)), nil
}

const selectHolders = "SELECT h.holder_id, h.pid, h.start_time, h.boot_id, h.pid_ns"

// selectOwners selects the other holders of something in a table.
func selectOwners(table string) string {
	return selectHolders + " FROM holders h WHERE h.holder_id IN (SELECT owner FROM " + table + " WHERE owner IS NOT NULL) AND h.holder_id <> ?"
}

func appendDead(dead *[]string, r scanner) error {
	var id string
	var p store.Process
	err := r.Scan(&id, &p.PID, &p.StartTime, &p.BootID, &p.PIDNamespace)
	if err == nil && p.IsDead() {
		*dead = append(*dead, id)
	}
	return err
}

// Renew implements Store.
func (s *SQLite) Renew(ctx context.Context) (held, cancelled []string, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		held, cancelled = nil, nil
		if err := t.exec("UPDATE triggers SET due_at = ? WHERE owner = ?", t.after(s.lease), s.holder); err != nil {
			return err
		}
		if err := t.exec("UPDATE rollouts SET renewed_at = ?, lease_until = ? WHERE owner = ?", t.now, t.after(s.lease), s.holder); err != nil {
			return err
		}
		return t.rows(func(r scanner) error {
			var id string
			var cancel bool
			err := r.Scan(&id, &cancel)
			held = append(held, id)
			if cancel {
				cancelled = append(cancelled, id)
			}
			return err
		}, "SELECT rollout_id, cancel FROM rollouts WHERE owner = ?", s.holder)
	})
	return held, cancelled, err
}

// Release implements Store.
func (s *SQLite) Release(ctx context.Context, tok store.Token, pause time.Duration) error {
	return s.writeRelaxed(ctx, func(t *tx) error {
		o, err := t.held(tok, eval.StateRunning)
		attempts, state := 1, eval.StatePending
		if o.State == eval.StateEvaluating {
			o, err = t.held(tok, eval.StateEvaluating)
			attempts, state = 0, eval.StateEvaluating
		}
		if err != nil {
			return err
		}
		t.wake = true
		if o.cancelled {
			return t.cancel(o.RunID, o.ID)
		}
		if state == eval.StatePending {
			if _, err := t.countAs("queued", o.Rollout, t.now-o.StateSince.UnixMicro()); err != nil {
				return err
			}
		}
		if err := t.become(o.ID, state, ", owner = NULL, lease_until = NULL, runnable_at = ?5, attempt = attempt - ?4", attempts, t.after(pause)); err != nil {
			return err
		}
		return t.touch(o.RunID)
	})
}

// CountFailure implements Store.
func (s *SQLite) CountFailure(ctx context.Context, tok store.Token) (count int, err error) {
	err = s.writeOp(ctx, func(t *tx) error {
		_, err := t.held(tok, eval.StateRunning)
		if err != nil {
			if _, err = t.held(tok, eval.StateEvaluating); err != nil {
				return err
			}
		}
		return t.row([]any{&count}, "UPDATE rollouts SET internal_failures = internal_failures + 1 WHERE rollout_id = ? RETURNING internal_failures", tok.RolloutID)
	})
	return count, err
}

// heldRollout is a rollout that the bearer of a token holds.
type heldRollout struct {
	store.Rollout
	// cancelled says that its holder was to end it.
	cancelled bool
}

// held checks that the bearer of a token still holds the rollout, and that it is in a state.
func (t *tx) held(tok store.Token, state eval.State) (o heldRollout, err error) {
	stmt, err := t.prepare("SELECT " + rolloutColumns + ", o.cancel, o.owner, o.fence FROM rollouts o WHERE o.rollout_id = ?")
	if err != nil {
		return o, err
	}
	var owner sql.NullString
	var fence int64
	o.Rollout, err = scanRollout(stmt.QueryRowContext(context.Background(), tok.RolloutID), &o.cancelled, &owner, &fence)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return o, fmt.Errorf("rollout %s: %w", tok.RolloutID, store.ErrNotFound)
	case err != nil:
		return o, err
	case !checkFence:
		return o, nil
	case o.State.IsTerminal():
		return o, fmt.Errorf("rollout %s is %s already: %w", tok.RolloutID, o.State, store.ErrFenced)
	case owner.String != t.store.holder || fence != tok.Fence:
		return o, fmt.Errorf("rollout %s was taken over: %w", tok.RolloutID, store.ErrFenced)
	case o.State != state:
		return o, fmt.Errorf("rollout %s is %s, not %s", tok.RolloutID, o.State, state)
	}
	return o, nil
}
