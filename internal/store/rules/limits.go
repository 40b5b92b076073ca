package rules

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/evalrun/evalrun/internal/store"
)

// limits implements store.Limits.
type limits struct{ db *db }

// selectLimits counts what is under each limit with the conditions of Claim and ClaimTriggers. ?1 is
// now.
const selectLimits = `SELECT kind, name, most,
	CASE kind WHEN 'source' THEN (SELECT count(*) FROM triggers g WHERE ` + started + ` AND g.source = limits.name)
		ELSE (SELECT count(*) FROM rollouts h WHERE ` + runsNow + ` AND (limits.kind = 'all' OR h.agent = limits.name)) END,
	CASE kind WHEN 'source' THEN (SELECT count(*) FROM triggers g WHERE g.due_at <= ?1 AND g.state = 'intended' AND g.source = limits.name)
		ELSE (SELECT count(*) FROM rollouts h WHERE h.runnable_at <= ?1 AND h.state NOT IN ` + evaluatorsOnly + ` AND (limits.kind = 'all' OR h.agent = limits.name)) END
	FROM limits ORDER BY kind <> 'all', kind, name`

// Limits implements Limits.
func (s limits) Limits(ctx context.Context) (out []store.Limit, err error) {
	defer func() { err = s.db.describe(err, "read the limits") }()
	rows, err := s.db.read.QueryContext(ctx, selectLimits, s.db.now().UnixMicro())
	if err != nil {
		return nil, err
	}
	return out, each(rows, func(r scanner) error {
		var l store.Limit
		err := r.Scan(&l.Kind, &l.Name, &l.Most, &l.Used, &l.Waiting)
		out = append(out, l)
		return err
	})
}

// SetLimits implements Limits.
func (s limits) SetLimits(ctx context.Context, limits ...store.Limit) error {
	return s.db.writeOp(ctx, "set limits", func(w *write) error {
		w.tx.wake = true
		for _, l := range limits {
			if !slices.Contains([]store.LimitKind{store.LimitAll, store.LimitAgent, store.LimitSource}, l.Kind) ||
				(l.Kind == store.LimitAll) != (l.Name == "") {
				return fmt.Errorf("there is no limit %q of %q", l.Kind, l.Name)
			}
			if err := w.tx.Exec("DELETE FROM limits WHERE kind = ? AND name = ?", string(l.Kind), l.Name); err != nil {
				return err
			}
			if l.Most < 0 {
				continue
			}
			if err := w.tx.Exec("INSERT INTO limits (kind, name, most) VALUES (?, ?, ?)", string(l.Kind), l.Name, l.Most); err != nil {
				return err
			}
		}
		return nil
	})
}

// selectQueues counts what is queued and held by tags. ?1 is now.
const selectQueues = `SELECT tags, sum(ready), sum(limited), sum(held), min(since) FROM (
	SELECT tags, CASE WHEN ` + room + ` THEN 1 ELSE 0 END AS ready, CASE WHEN ` + room + ` THEN 0 ELSE 1 END AS limited, 0 AS held, runnable_at AS since
		FROM rollouts WHERE runnable_at <= ?1
	UNION ALL SELECT tags, 0, 0, 1, NULL FROM rollouts WHERE owner IS NOT NULL) going_on GROUP BY tags ORDER BY tags`

// Queues implements Limits.
func (s limits) Queues(ctx context.Context) (out []store.Queued, err error) {
	defer func() { err = s.db.describe(err, "count what is queued") }()
	rows, err := s.db.read.QueryContext(ctx, selectQueues, s.db.now().UnixMicro())
	if err != nil {
		return nil, err
	}
	return out, each(rows, func(r scanner) error {
		var q store.Queued
		var tags string
		var oldest sql.NullInt64
		err := r.Scan(&tags, &q.Ready, &q.Limited, &q.Held, &oldest)
		if err == nil && tags != "" {
			err = json.Unmarshal([]byte(tags), &q.Tags)
		}
		q.Oldest = fromMicros(oldest)
		out = append(out, q)
		return err
	})
}

// started is the condition that the job of a trigger counts for the limit of its source.
const started = "state IN ('starting', 'waiting')"

// heldBack is the condition that the limit of its source holds back the start of a trigger that is
// due. One that is overdue expires all the same. ?1 is now; prefix comes before the names of columns.
func heldBack(prefix string) string {
	return fmt.Sprintf(`(%[1]sstate = 'intended' AND NOT coalesce(%[1]sdeadline <= ?1, FALSE) AND %[1]ssource IN (SELECT name FROM limits
		WHERE kind = 'source' AND most <= (SELECT count(*) FROM triggers g WHERE g.state IN ('starting', 'waiting') AND g.source = limits.name)))`, prefix)
}

// nextHeldBackExpiry is the next deadline of such a trigger. ?2 is a run or empty.
var nextHeldBackExpiry = "(SELECT min(deadline) FROM triggers WHERE due_at <= ?1 AND deadline > ?1 AND " + heldBack("") + " AND (?2 = '' OR run_id = ?2))"

// withinLimits leaves out triggers whose jobs would be more than the limits of their sources allow.
func (rows triggerRows) withinLimits(due []store.Trigger) (out []store.Trigger, err error) {
	if len(due) == 0 {
		return nil, nil
	}
	left := map[string]int{}
	if err := rows.tx.rows(func(r scanner) error {
		var source string
		var n int
		err := r.Scan(&source, &n)
		left[source] = n
		return err
	}, `SELECT name, most - (SELECT count(*) FROM triggers g WHERE g.`+started+` AND g.source = limits.name) FROM limits WHERE kind = 'source'`); err != nil {
		return nil, err
	}
	for _, g := range due {
		n, limited := left[g.Source]
		overdue := !g.Deadline.IsZero() && g.Deadline.UnixMicro() <= rows.tx.now
		if limited && g.State == store.TriggerIntended && !overdue {
			if n <= 0 {
				continue
			}
			left[g.Source]--
		}
		out = append(out, g)
	}
	return out, nil
}
