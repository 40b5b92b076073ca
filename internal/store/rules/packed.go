package rules

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/store"
)

// chosenRuns selects the ids of the runs that are copied; ?1 is a JSON array of them.
const chosenRuns = "(SELECT value FROM json_each(?1))"

// packedTable is a table with rows of runs, and the condition on the rows that belong to the chosen runs.
type packedTable struct{ name, where string }

// packedTables are all of them but blocks, which a store may have elsewhere than in its database. A parked
// delivery belongs to no run: it goes along if all runs do.
var packedTables = []packedTable{
	{"runs", ofRuns}, {"plans", ofRuns}, {"evaluations", ofRuns}, {"rollouts", ofRuns}, {"events", ofRuns}, {"triggers", ofRuns},
	{"jobs", ofRuns}, {"job_events", ofRuns}, {"notify_targets", ofRuns}, {"notifications", ofRuns}, {"rescorings", ofRuns},
	{"rescored_evaluations", ofRuns}, {"judge_batches", ofRuns},
	{"segments", ofRollouts}, {"calls", ofRollouts}, {"results", ofRollouts}, {"rescored", ofRollouts},
	{"kept", ofOpen}, {"kept_blocks", ofOpen + " OR rollout_id IN " + chosenRuns}, {"judge_requests", ofTriggers},
	{"deliveries", ofTriggers +
		" OR disposition = 'parked' AND NOT EXISTS (SELECT 1 FROM runs WHERE run_id NOT IN " + chosenRuns + ")"},
}

const (
	ofRuns     = "run_id IN " + chosenRuns
	ofRollouts = "rollout_id IN (SELECT rollout_id FROM rollouts WHERE run_id IN " + chosenRuns + ")"
	ofOpen     = "rollout_id IN (SELECT rollout_id FROM rollouts WHERE run_id IN " + chosenRuns + " AND state NOT IN ('completed', 'faulted', 'cancelled'))"
	ofTriggers = "trigger_id IN (SELECT trigger_id FROM triggers WHERE run_id IN " + chosenRuns + ")"
)

// IsPacked reports whether the rows of a table belong to runs.
func IsPacked(table string) bool {
	return table == "blocks" || slices.ContainsFunc(packedTables, func(t packedTable) bool { return t.name == table })
}

// flags are the columns that are booleans in PostgreSQL, and numbers in SQLite.
var flags = []string{"accepts_faults", "cancel", "checked", "local", "merged", "of_run", "resume_all"}

// Row is a row that is copied: the values of the columns of a table.
type Row struct {
	Table   string
	columns []string
	values  []any
}

// Value is that of a column.
func (r *Row) Value(column string) any {
	if i := slices.Index(r.columns, column); i >= 0 {
		return r.values[i]
	}
	return nil
}

// Change calls f with each value that may have a text in it, and puts what it returns in its place.
func (r *Row) Change(f func(column string, value []byte) []byte) {
	for i, v := range r.values {
		switch v := v.(type) {
		case []byte:
			r.values[i] = f(r.columns[i], v)
		case string:
			r.values[i] = string(f(r.columns[i], []byte(v)))
		}
	}
}

// Export copies some runs, as they are at one moment, into a store that has none yet, and which gets the id
// of this one. The error is store.ErrHeld if a process works on one of them. See sees each row and may
// change it.
func (s *Store) Export(ctx context.Context, runIDs []string, to *Store, see func(*Row) error) error {
	var needed []string
	err := s.copyRuns(ctx, runIDs, to, func(from *sql.Tx, w *Tx) error {
		if err := errors.Join(s.heldBy(ctx, from, runIDs), s.elsewhere(ctx, from, runIDs)); err != nil {
			return err
		}
		for _, t := range packedTables {
			if err := copyRows(ctx, from, w, t, list(runIDs), func(r *Row) error {
				if sum, ok := r.Value("sum").(string); ok {
					needed = append(needed, sum)
				}
				return see(r)
			}); err != nil {
				return err
			}
		}
		if err := (keptRows{w}).moveHere(runIDs); err != nil {
			return err
		}
		return w.Exec("UPDATE meta SET value = ? WHERE key = 'storeId'", s.ID())
	})
	if err != nil {
		return err
	}
	slices.Sort(needed)
	return copyBlocks(ctx, s, to, slices.Compact(needed))
}

// Import takes all runs of another store into this one: the blocks of their files first, which harm
// nobody, and all else in one transaction. The error is store.ErrRunExists if one of them is there. See sees
// each row and may change it.
func (s *Store) Import(ctx context.Context, from *Store, see func(*Row) error) error {
	runs, err := from.Runs(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, run := range runs {
		ids = append(ids, run.ID)
	}
	all, err := from.sums(ctx)
	if err == nil {
		err = copyBlocks(ctx, from, s, all)
	}
	if err != nil {
		return err
	}
	return from.copyRuns(ctx, ids, s, func(tx *sql.Tx, w *Tx) error {
		var there sql.NullString
		if err := w.Row([]any{&there}, "SELECT min(run_id) FROM runs WHERE run_id IN "+chosenRuns, list(ids)); err != nil {
			return err
		}
		if there.Valid {
			return fmt.Errorf("run %s: %w", there.String, store.ErrRunExists)
		}
		for _, t := range packedTables {
			if t.name == "deliveries" {
				t.where = ofTriggers // those that are parked belong to the other store
			}
			err := copyRows(ctx, tx, w, t, list(ids), func(r *Row) error {
				r.drop("id", "parked_id") // numbers of rows mean nothing in another store
				return see(r)
			})
			if err != nil {
				return err
			}
		}
		return errors.Join((keptRows{w}).areWhole(ids), (keptRows{w}).moveHere(ids))
	})
}

// copyRuns runs f with what this store has at one moment, and the transaction of another one.
func (s *Store) copyRuns(ctx context.Context, runIDs []string, to *Store, f func(from *sql.Tx, to *Tx) error) error {
	return to.Write(ctx, "copy runs", func(w *Tx) (err error) {
		from, err := s.db.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
		if err != nil {
			return s.describe(err, "read runs")
		}
		defer func() { err = errors.Join(err, from.Rollback()) }() // it has only read
		if err := f(from, w); err != nil {
			return err
		}
		for _, id := range runIDs {
			w.changed[id], w.wake = true, true
		}
		return nil
	})
}

// copyRows copies rows of a table in the order in which they were made.
func copyRows(ctx context.Context, from *sql.Tx, to *Tx, t packedTable, ids string, see func(*Row) error) (err error) {
	order := ""
	if slices.Contains([]string{"triggers", "deliveries", "notifications"}, t.name) {
		order = " ORDER BY id"
	}
	rows, err := from.QueryContext(ctx, "SELECT * FROM "+t.name+" WHERE "+t.where+order, ids)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	for rows.Next() {
		r := &Row{t.name, slices.Clone(columns), make([]any, len(columns))}
		into := make([]any, len(columns))
		for i := range r.values {
			into[i] = &r.values[i]
		}
		if err := errors.Join(rows.Scan(into...), see(r)); err != nil {
			return err
		}
		if err := r.insert(to); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (r *Row) drop(columns ...string) {
	for i := len(r.columns) - 1; i >= 0; i-- {
		if slices.Contains(columns, r.columns[i]) {
			r.columns, r.values = slices.Delete(r.columns, i, i+1), slices.Delete(r.values, i, i+1)
		}
	}
}

func (r *Row) insert(to *Tx) error {
	for i, v := range r.values {
		if n, ok := v.(int64); ok && slices.Contains(flags, r.columns[i]) {
			r.values[i] = n != 0
		}
	}
	return to.Exec("INSERT INTO "+r.Table+" ("+strings.Join(r.columns, ", ")+") VALUES (?"+
		strings.Repeat(", ?", len(r.columns)-1)+")", r.values...)
}

// EachBlock calls f with all blocks of files.
func (s *Store) EachBlock(ctx context.Context, f func(store.Block) error) error {
	all, err := s.sums(ctx)
	if err != nil {
		return err
	}
	return s.Blocks(ctx, all, f)
}

// Outside counts the blocks of files that are outside of the database.
func (s *Store) Outside(ctx context.Context) (n int, err error) {
	err = s.db.read.QueryRowContext(ctx, "SELECT count(*) FROM blocks WHERE object <> ''").Scan(&n)
	return n, s.describe(err, "look where blocks of files are")
}

// sums are those of all blocks.
func (s *Store) sums(ctx context.Context) (out []string, err error) {
	rows, err := s.db.read.QueryContext(ctx, "SELECT sum FROM blocks ORDER BY sum")
	if err != nil {
		return nil, s.describe(err, "read which blocks files need")
	}
	err = each(rows, func(r scanner) error {
		var sum string
		err := r.Scan(&sum)
		out = append(out, sum)
		return err
	})
	return out, err
}

// copyBlocks copies blocks of files that the other store does not have. A transaction has no more of
// them than a suspension stores at once.
func copyBlocks(ctx context.Context, from, to *Store, sums []string) error {
	missing, err := to.Missing(ctx, sums)
	if err != nil {
		return err
	}
	var some []store.Block
	size, copied := 0, 0
	put := func() error {
		if len(some) == 0 {
			return nil
		}
		err := to.PutBlocks(ctx, some)
		some, size, copied = nil, 0, copied+len(some)
		return err
	}
	err = from.Blocks(ctx, missing, func(b store.Block) error {
		if some, size = append(some, b), size+len(b.Data); size < 4*store.MaxBlock {
			return nil
		}
		return put()
	})
	if err = errors.Join(err, put()); err == nil && copied < len(missing) {
		err = fmt.Errorf("%d of %d blocks of the files of its runs are missing in the store %s", len(missing)-copied,
			len(missing), from.Name())
	}
	return err
}

// areWhole makes sure that the blocks that some runs need, their rollouts or their plans, are there.
func (rows keptRows) areWhole(runIDs []string) error {
	var lacks sql.NullString
	if err := rows.tx.Row([]any{&lacks}, "SELECT min(sum) FROM kept_blocks WHERE ("+ofRollouts+
		" OR rollout_id IN "+chosenRuns+") AND NOT EXISTS (SELECT 1 FROM blocks b WHERE b.sum = kept_blocks.sum)", list(runIDs)); err != nil {
		return err
	}
	if lacks.Valid {
		return fmt.Errorf("the block %s of the files of a run is missing", lacks.String)
	}
	return nil
}

// moveHere says of the files of some runs, which have come with them, that they are here.
func (rows keptRows) moveHere(runIDs []string) error {
	ids, place, machine := list(runIDs), rows.tx.db.Files(), rows.tx.db.machine.Name
	if place == "" {
		machine = ""
		if err := rows.tx.Exec("DELETE FROM kept WHERE files IS NULL AND "+ofRollouts, ids); err != nil {
			return err
		}
	} else if err := rows.tx.Exec(`INSERT INTO kept (rollout_id, segment, place, machine)
		SELECT rollout_id, segment, ?2, ?3 FROM rollouts WHERE segment > 0 AND run_id IN `+chosenRuns+`
		ON CONFLICT (rollout_id) DO NOTHING`, ids, place, machine); err != nil {
		return err
	}
	return rows.tx.Exec("UPDATE kept SET place = ?2, machine = ?3 WHERE "+ofRollouts, ids, place, machine)
}

// elsewhere returns an error if a rollout goes on with files that are on another machine.
func (s *Store) elsewhere(ctx context.Context, from *sql.Tx, runIDs []string) error {
	rows, err := from.QueryContext(ctx, `SELECT k.machine, count(*) FROM kept k JOIN rollouts r ON r.rollout_id = k.rollout_id
		WHERE k.place <> ?2 AND k.machine <> '' AND r.state NOT IN ('completed', 'faulted', 'cancelled') AND k.files IS NULL
		AND r.run_id IN `+chosenRuns+" GROUP BY k.machine ORDER BY k.machine", list(runIDs), s.Files())
	if err != nil {
		return err
	}
	return each(rows, func(r scanner) error {
		var machine string
		var n int
		if err := r.Scan(&machine, &n); err != nil {
			return err
		}
		return fmt.Errorf("%w: %d rollouts go on with files that are on the machine %s", store.ErrElsewhere, n, machine)
	})
}

// heldBy returns an error if a living process works on one of the runs.
func (s *Store) heldBy(ctx context.Context, from *sql.Tx, runIDs []string) error {
	rows, err := from.QueryContext(ctx, SelectHolders+`, w.run_id FROM holders h JOIN (
			SELECT owner, run_id FROM rollouts WHERE owner IS NOT NULL AND lease_until > ?2
			UNION SELECT owner, run_id FROM triggers WHERE owner IS NOT NULL AND due_at > ?2
			UNION SELECT owner, run_id FROM judge_batches WHERE owner IS NOT NULL AND due_at > ?2) w ON w.owner = h.holder_id
		WHERE w.run_id IN `+chosenRuns, list(runIDs), s.db.now().UnixMicro())
	if err != nil {
		return err
	}
	return each(rows, func(r scanner) error {
		var holder, run string
		var p store.Process
		if err := r.Scan(&holder, &p.PID, &p.StartTime, &p.BootID, &p.PIDNamespace, &run); err != nil {
			return err
		}
		if !p.IsDead() {
			return fmt.Errorf("run %s: %w (process %d)", run, store.ErrHeld, p.PID)
		}
		return nil
	})
}
