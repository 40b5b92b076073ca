package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
)

// chosenRuns selects the ids of the runs that are copied; ?1 is a JSON array of them.
const chosenRuns = "(SELECT value FROM json_each(?1))"

// packedTables are the tables with rows of runs, each with the condition on the rows that belong to
// the chosen runs. A parked delivery belongs to no run: it goes along if all runs do.
var packedTables = []struct{ name, where string }{
	{"runs", "run_id IN " + chosenRuns}, {"plans", "run_id IN " + chosenRuns}, {"evaluations", "run_id IN " + chosenRuns},
	{"rollouts", "run_id IN " + chosenRuns}, {"events", "run_id IN " + chosenRuns},
	{"triggers", "run_id IN " + chosenRuns},
	{"jobs", "run_id IN " + chosenRuns}, {"job_events", "run_id IN " + chosenRuns},
	{"notify_targets", "run_id IN " + chosenRuns}, {"notifications", "run_id IN " + chosenRuns},
	{"rescorings", "run_id IN " + chosenRuns},
	{"rescored_evaluations", "run_id IN " + chosenRuns},
	{"judge_batches", "run_id IN " + chosenRuns},
	{"segments", ofRollouts}, {"calls", ofRollouts}, {"results", ofRollouts}, {"rescored", ofRollouts},
	{"kept", ofRollouts}, {"kept_blocks", ofRollouts + " OR rollout_id IN " + chosenRuns}, {"judge_requests", ofTriggers},
	{"blocks", "sum IN (SELECT sum FROM main.kept_blocks WHERE " + ofRollouts + " OR rollout_id IN " + chosenRuns + ")"},
	{"deliveries", ofTriggers +
		" OR disposition = 'parked' AND NOT EXISTS (SELECT 1 FROM main.runs WHERE run_id NOT IN " + chosenRuns + ")"},
}

const (
	ofRollouts = "rollout_id IN (SELECT rollout_id FROM main.rollouts WHERE run_id IN " + chosenRuns + ")"
	ofTriggers = "trigger_id IN (SELECT trigger_id FROM main.triggers WHERE run_id IN " + chosenRuns + ")"
)

// Export makes a new store in an empty folder. It has the id of this one and only some of its runs,
// as they are at one moment. The error is store.ErrHeld if a process works on one of them.
func (d *db) Export(ctx context.Context, runIDs []string, dir string) error {
	made, err := Open(dir, store.Options{Now: d.now})
	if err != nil {
		return err
	}
	if err := made.Close(); err != nil {
		return err
	}
	return d.attached(ctx, filepath.Join(dir, "store.db"), "BEGIN", func(c *sql.Conn) error { // others may go on writing
		ids, err := json.Marshal(runIDs)
		if err != nil {
			return err
		}
		if err := d.heldBy(ctx, c, ids); err != nil {
			return err
		}
		for _, t := range packedTables {
			if _, err := c.ExecContext(ctx,
				"INSERT INTO packed."+t.name+" SELECT * FROM main."+t.name+" WHERE "+t.where, ids); err != nil {
				return err
			}
		}
		_, err = c.ExecContext(ctx, "UPDATE packed.meta SET value = ? WHERE key = 'storeId'", d.id)
		return err
	})
}

// Import takes all runs of another store into this one. The error is store.ErrRunExists if one of
// them is there.
func (d *db) Import(ctx context.Context, from string) error {
	return d.attached(ctx, filepath.Join(from, "store.db"), "BEGIN IMMEDIATE", func(c *sql.Conn) error {
		var there sql.NullString
		if err := c.QueryRowContext(ctx,
			"SELECT min(run_id) FROM main.runs WHERE run_id IN (SELECT run_id FROM packed.runs)").
			Scan(&there); err != nil {
			return err
		}
		if there.Valid {
			return fmt.Errorf("run %s: %w", there.String, store.ErrRunExists)
		}
		for _, t := range packedTables {
			columns, err := columnsToCopy(ctx, c, t.name)
			if err != nil {
				return err
			}
			where, list := "", strings.Join(columns, ", ")
			switch t.name {
			case "deliveries":
				where = " WHERE disposition <> 'parked'" // they belong to the other store
			case "blocks":
				where = " WHERE sum NOT IN (SELECT sum FROM main.blocks)"
			}
			if _, err := c.ExecContext(ctx,
				"INSERT INTO main."+t.name+" ("+list+") SELECT "+list+" FROM packed."+t.name+where+orderOf(t.name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// EachBlock calls f with all blocks of files.
func (d *db) EachBlock(ctx context.Context, f func(store.Block) error) (err error) {
	rows, err := d.read.QueryContext(ctx, "SELECT sum, data FROM blocks")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var b store.Block
		if err := errors.Join(rows.Scan(&b.Sum, &b.Data), f(b)); err != nil {
			return err
		}
	}
	return rows.Err()
}

// orderOf keeps the order of rows that get new numbers.
func orderOf(table string) string {
	if slices.Contains([]string{"triggers", "deliveries", "notifications"}, table) {
		return " ORDER BY id"
	}
	return ""
}

// columnsToCopy returns the columns of a table that mean the same in another store. Numbers of rows
// do not.
func columnsToCopy(ctx context.Context, c *sql.Conn, table string) (columns []string, err error) {
	rows, err := c.QueryContext(ctx, "SELECT name FROM pragma_table_info(?)", table)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		columns = append(columns, name)
	}
	return slices.DeleteFunc(columns, func(name string) bool { return name == "id" || name == "parked_id" }), rows.Err()
}

// attached runs f in a transaction on a connection of its own, with another store attached as
// packed. begin is the statement that begins the transaction.
func (d *db) attached(ctx context.Context, file, begin string, f func(*sql.Conn) error) (err error) {
	db, err := sql.Open("sqlite", d.dataSource(defaultBusy)+"&_pragma=trusted_schema(0)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(d.Describe(err, "copy runs"), db.Close()) }()
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.ExecContext(ctx, "ATTACH DATABASE ? AS packed", file); err != nil {
		return err
	}
	if _, err := c.ExecContext(ctx, begin); err != nil {
		return err
	}
	if err := f(c); err != nil {
		_, rollback := c.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(err, rollback)
	}
	_, err = c.ExecContext(ctx, "COMMIT")
	return err
}

// heldBy returns an error if a living process works on one of the runs.
func (d *db) heldBy(ctx context.Context, c *sql.Conn, ids any) (err error) {
	rows, err := c.QueryContext(ctx, rules.SelectHolders+`, w.run_id FROM main.holders h JOIN (
			SELECT owner, run_id FROM main.rollouts WHERE owner IS NOT NULL AND lease_until > ?2
			UNION SELECT owner, run_id FROM main.triggers WHERE owner IS NOT NULL AND due_at > ?2
			UNION SELECT owner, run_id FROM main.judge_batches WHERE owner IS NOT NULL AND due_at > ?2) w ON w.owner = h.holder_id
		WHERE w.run_id IN `+chosenRuns, ids, d.now().UnixMicro())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var holder, run string
		var p store.Process
		if err := rows.Scan(&holder, &p.PID, &p.StartTime, &p.BootID, &p.PIDNamespace, &run); err != nil {
			return err
		}
		if !p.IsDead() {
			return fmt.Errorf("run %s: %w (process %d)", run, store.ErrHeld, p.PID)
		}
	}
	return rows.Err()
}
