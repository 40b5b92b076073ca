package rules

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// Backlog implements Reader.
func (s reader) Backlog(ctx context.Context, runID string) (b store.Backlog, err error) {
	err = s.db.again(ctx, func() error {
		b, err = s.backlog(ctx, runID)
		return err
	})
	return b, s.db.describe(err, "count what is left to do")
}

func (s reader) backlog(ctx context.Context, runID string) (b store.Backlog, err error) {
	tx, err := s.db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return b, err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	dead, err := s.deadOwners(ctx, tx)
	if err != nil {
		return b, err
	}
	var next, due, batch, lease, expires, heldBack sql.NullInt64
	err = tx.QueryRowContext(ctx, backlogQuery,
		s.db.now().UnixMicro(), runID, s.db.holder, dead, s.db.machine.Name, s.db.machine.BootID, s.db.working.list(), s.db.tags).
		Scan(&b.Runnable, &b.Limited, &b.Unfit, &b.Delayed, &b.Held, &b.Due, &next, &due, &batch, &lease, &expires, &heldBack)
	b.NextDue = earliest(next, due, batch, lease, expires, heldBack)
	return b, err
}

// NextDue implements Reader.
func (s reader) NextDue(ctx context.Context, runID string) (time.Time, error) {
	var next, due, batch, expires, heldBack sql.NullInt64
	machine := s.db.machine
	err := s.db.again(ctx, func() error {
		return s.db.read.QueryRowContext(ctx, nextDueQuery,
			s.db.now().UnixMicro(), runID, s.db.holder, "", machine.Name, machine.BootID, s.db.working.list()).
			Scan(&next, &due, &batch, &expires, &heldBack)
	})
	return earliest(next, due, batch, expires, heldBack), s.db.describe(err, "find what is due next")
}

// earliest returns the earliest of the times that are valid, and zero if none is.
func earliest(times ...sql.NullInt64) (first time.Time) {
	for _, at := range times {
		if t := fromMicros(at); at.Valid && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	return first
}

// Activity implements Reader.
func (s reader) Activity(ctx context.Context) (out map[string]store.Activity, err error) {
	defer func() { err = s.db.describe(err, "read what goes on") }()
	dead, err := s.deadOwners(ctx, s.db.read)
	if err != nil {
		return nil, err
	}
	rows, err := s.db.read.QueryContext(ctx, activityQuery, s.db.now().UnixMicro(), dead)
	if err != nil {
		return nil, err
	}
	out = map[string]store.Activity{}
	err = each(rows, func(r scanner) error {
		var id string
		var a store.Activity
		err := r.Scan(&id, &a.Held, &a.Delayed)
		out[id] = a
		return err
	})
	return out, err
}

// activityQuery reads only rollouts that are held or delayed. ?1 is now, ?2 the dead processes.
const activityQuery = `SELECT run_id, sum(held), sum(delayed) FROM (
	SELECT run_id, 1 AS held, 0 AS delayed FROM rollouts WHERE owner IS NOT NULL AND lease_until > ?1 AND owner NOT IN (SELECT value FROM json_each(?2))
	UNION ALL SELECT run_id, 0, 1 FROM rollouts WHERE runnable_at > ?1) going_on GROUP BY run_id`

// backlogQuery counts with the conditions of Claim, ClaimTriggers and ClaimBatches. ?1 is now, ?2 a
// run or empty, ?3 this process, ?4 the dead ones, ?5 and ?6 the name and the boot of this machine,
// ?7 what this process works on, ?8 its tags. What this process has begun to work on since the rows
// were as they are read counts as held, so that nothing is missing in between.
var backlogQuery = func() string {
	var (
		ofRun  = " AND (?2 = '' OR run_id = ?2)"
		void   = "(owner <> ?3 AND (" + lapsed("?1") + " OR owner IN (SELECT value FROM json_each(?4))) OR " + forgotten("rollout_id", "?3", "?7") + ")"
		orphan = "owner IN (SELECT value FROM json_each(?4))"
	)
	return fmt.Sprintf(`SELECT
		(SELECT count(*) FROM rollouts WHERE runnable_at <= ?1%[1]s AND %[9]s AND %[10]s AND %[11]s) + (SELECT count(*) FROM rollouts WHERE owner IS NOT NULL AND %[2]s%[1]s AND %[10]s),
		(SELECT count(*) FROM rollouts WHERE runnable_at <= ?1%[1]s AND %[9]s AND %[10]s AND NOT %[11]s),
		(SELECT count(*) FROM rollouts WHERE runnable_at <= ?1%[1]s AND NOT %[10]s) + (SELECT count(*) FROM rollouts WHERE owner IS NOT NULL AND %[2]s%[1]s AND NOT %[10]s),
		(SELECT count(*) FROM rollouts WHERE runnable_at > ?1%[1]s),
		(SELECT count(*) FROM rollouts WHERE owner IS NOT NULL AND NOT %[2]s%[1]s) + (SELECT count(*) FROM rollouts WHERE runnable_at <= ?1%[1]s AND NOT %[9]s),
		(SELECT count(*) FROM triggers WHERE due_at <= ?1 AND %[3]s%[1]s AND NOT %[6]s AND NOT %[12]s) + (SELECT count(*) FROM triggers WHERE owner IS NOT NULL AND due_at > ?1 AND %[4]s%[1]s AND NOT %[6]s)
			+ (SELECT count(*) FROM judge_batches WHERE due_at <= ?1 AND %[8]s%[1]s) + (SELECT count(*) FROM judge_batches WHERE owner IS NOT NULL AND due_at > ?1 AND %[4]s%[1]s)
			+ (SELECT count(*) FROM judge_batches b WHERE %[5]s AND due_at > ?1%[1]s),
		(SELECT runnable_at FROM rollouts WHERE runnable_at > ?1%[1]s ORDER BY runnable_at LIMIT 1),
		(SELECT due_at FROM triggers WHERE due_at > ?1 AND %[3]s AND (owner IS NULL OR NOT %[4]s)%[1]s ORDER BY due_at LIMIT 1),
		(SELECT due_at FROM judge_batches WHERE due_at > ?1 AND %[8]s AND (owner IS NULL OR NOT %[4]s)%[1]s ORDER BY due_at LIMIT 1),
		(SELECT min(lease_until) FROM rollouts WHERE owner IS NOT NULL AND owner <> ?3 AND NOT %[2]s%[1]s),
		%[7]s, %[13]s`, ofRun, void, notMine("trigger_id"), orphan, nothingToAdd, elsewhere("", "?5", "?6"), nextExpiry, notMine("batch_id"), notBegun("?7"),
		fits("?8"), room, heldBack(""), nextHeldBackExpiry)
}()

// notMine is the condition that a row is due when its claim ends. A trigger of a living process is; one
// that this process works on never is.
func notMine(column string) string {
	return "(owner IS NULL OR owner <> ?3 OR " + forgotten(column, "?3", "?7") + ")"
}

// nextExpiry is the next deadline of a trigger whose job belongs to another machine: it expires
// here, too.
var nextExpiry = "(SELECT min(deadline) FROM triggers WHERE machine <> '' AND deadline > ?1 AND state IN ('intended', 'starting', 'waiting') AND " +
	foreign("", "?5", "?6") +
	" AND (?2 = '' OR run_id = ?2))"

// nextDueQuery has the parameters of backlogQuery.
var nextDueQuery = `SELECT
	(SELECT runnable_at FROM rollouts WHERE runnable_at > ?1 AND (?2 = '' OR run_id = ?2) ORDER BY runnable_at LIMIT 1),
	(SELECT due_at FROM triggers WHERE due_at > ?1 AND ` + notMine("trigger_id") + ` AND (?2 = '' OR run_id = ?2) ORDER BY due_at LIMIT 1),
	(SELECT due_at FROM judge_batches WHERE due_at > ?1 AND ` + notMine("batch_id") + ` AND (?2 = '' OR run_id = ?2) ORDER BY due_at LIMIT 1),
	` + nextExpiry + ", " + nextHeldBackExpiry

// deadOwners returns, as a JSON array, the holders of something whose process is certainly gone.
func (s reader) deadOwners(ctx context.Context, q querier) (string, error) {
	dead := []string{}
	rows, err := q.QueryContext(ctx,
		SelectHolders+` FROM holders h WHERE h.holder_id <> ? AND (h.holder_id IN (SELECT owner FROM rollouts WHERE owner IS NOT NULL)
		OR h.holder_id IN (SELECT owner FROM triggers WHERE owner IS NOT NULL) OR h.holder_id IN (SELECT owner FROM judge_batches WHERE owner IS NOT NULL))`,
		s.db.holder)
	if err != nil {
		return "", err
	}
	if err := each(rows, func(r scanner) error { return appendDead(&dead, r) }); err != nil {
		return "", err
	}
	list, err := json.Marshal(dead)
	return string(list), err
}
