package rules

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// Tx is the open transaction: its time, its statements, and the events that it appends. It is made
// once and used for one group of operations after the other.
type Tx struct {
	conn  *sql.Conn
	stmts map[string]*statement
	db    *db
	// now is the time of the transaction in microseconds; every row it writes has the same.
	now int64
	// wake is set by an operation if other processes may want to know of it.
	wake bool
	// changed are the runs that the operation has changed.
	changed map[string]bool
	// wrote says that the operation has changed anything, wroteRollouts that these may be rows of
	// rollouts, and failed that a statement of it has failed.
	wrote, wroteRollouts, failed bool
	// last is the result of the last statement that changes something, which may not have run yet.
	last sql.Result
	// runs are rows of runs as they will be when the transaction ends, and events those that are to
	// be appended with that.
	runs   map[string]*runRow
	events []any
	// ahead are rows of rollouts that were read for operations to come.
	ahead map[string]*heldRollout
	// lost says that the connection cannot be used any more.
	lost bool
	// careful says that each operation has a savepoint, and each statement is waited for.
	careful bool
	// Mode is for the database: what it has set the connection to. It is empty for a new one.
	Mode string
}

// Conn is the connection of the transaction.
func (t *Tx) Conn() *sql.Conn { return t.conn }

// SetTime sets the time of the transaction, in microseconds.
func (t *Tx) SetTime(micros int64) { t.now = micros }

// Lose says that the connection cannot be used any more: the next transaction gets a new one.
func (t *Tx) Lose() { t.lost = true }

// Prepared are the statements that were prepared on the connection so far.
func (t *Tx) Prepared() []string { return slices.Collect(maps.Keys(t.stmts)) }

// connect makes sure that there is a connection.
func (t *Tx) connect() (err error) {
	if t.lost {
		t.close()
	}
	if t.conn == nil {
		t.conn, err = t.db.Connect(context.Background())
	}
	return err
}

// close releases the connection and its statements.
func (t *Tx) close() {
	for _, stmt := range t.stmts {
		_ = stmt.Close() // the connection goes with it
	}
	clear(t.stmts)
	if t.conn != nil {
		_ = t.conn.Close()
	}
	t.conn, t.lost, t.Mode = nil, false, ""
}

// rollBack ends a transaction that has failed. If there is none to roll back the next one has a
// connection of its own.
func (t *Tx) rollBack() {
	if t.conn != nil && !t.lost {
		_, err := t.change("ROLLBACK")
		t.lost = err != nil
	}
}

// statement is a prepared statement, and what it does.
type statement struct {
	*sql.Stmt
	writes, writesRollouts bool
	// seesRuns says that it reads or writes what a transaction keeps until its end.
	seesRuns bool
}

var ofRunRows = regexp.MustCompile(`\b(runs|events)\b`)

func (t *Tx) prepare(query string) (*sql.Stmt, error) {
	stmt, ok := t.stmts[query]
	if !ok {
		prepared, err := t.conn.PrepareContext(context.Background(), query)
		if err != nil {
			t.failed = true
			return nil, err
		}
		writes := !strings.HasPrefix(query, "SELECT")
		stmt = &statement{prepared, writes, writes && strings.Contains(query, "rollouts"),
			ofRunRows.MatchString(query) && !slices.Contains(ownOfRuns, query)}
		t.stmts[query] = stmt
	}
	t.wrote = t.wrote || stmt.writes
	t.wroteRollouts = t.wroteRollouts || stmt.writesRollouts
	if stmt.seesRuns {
		if err := t.writeRuns(); err != nil {
			return nil, err
		}
		clear(t.runs) // it may change them
	}
	return stmt.Stmt, nil
}

// Exec runs a statement. A database that sends several statements at once may tell only with the next one that
// is asked for something, or with flush, that it has failed.
func (t *Tx) Exec(query string, args ...any) (err error) {
	stmt, err := t.prepare(query)
	if err == nil {
		t.last, err = stmt.ExecContext(context.Background(), args...)
	}
	if err == nil && t.careful {
		err = t.flush()
	}
	t.failed = t.failed || err != nil
	return err
}

// flush waits until all statements have run.
func (t *Tx) flush() (err error) {
	if t.last != nil {
		_, err = t.last.RowsAffected()
		t.last, t.failed = nil, t.failed || err != nil
	}
	return err
}

// change runs a statement and returns how many rows it changed.
func (t *Tx) change(query string, args ...any) (n int64, err error) {
	stmt, err := t.prepare(query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(context.Background(), args...)
	if err == nil {
		n, err = res.RowsAffected()
	}
	t.failed = t.failed || err != nil
	return n, err
}

// Row queries one row; ErrNotFound if there is none.
func (t *Tx) Row(dest []any, query string, args ...any) error {
	stmt, err := t.prepare(query)
	if err != nil {
		return err
	}
	err = read{stmt.QueryRowContext(context.Background(), args...)}.Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	t.failed = t.failed || err != nil
	return err
}

// rows calls scan for each row. scan must not use the transaction: the rows are still being read.
func (t *Tx) rows(scan func(scanner) error, query string, args ...any) error {
	stmt, err := t.prepare(query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background(), args...)
	if err == nil {
		err = each(rows, scan)
	}
	t.failed = t.failed || err != nil
	return err
}

// rowOfEach queries one row for each of n arguments, and calls scan with those that are there. scan must not use
// the transaction. A database that sends several statements at once sends all of them before the first row is read.
func (t *Tx) rowOfEach(n int, query string, args func(i int) []any, scan func(i int, r scanner) error) error {
	stmt, err := t.prepare(query)
	if err != nil {
		return err
	}
	var read []func() error
	for i := 0; i < n && err == nil; i++ {
		rows, failed := stmt.QueryContext(context.Background(), args(i)...) //nolint:rowserrcheck // each does
		if err = failed; err != nil {
			break
		}
		read = append(read, func() error { return each(rows, func(r scanner) error { return scan(i, r) }) })
		if !t.db.Pipelines() {
			err, read = read[0](), nil
		}
	}
	for _, one := range read { // also after an error: they must be closed
		err = cmp.Or(err, one())
	}
	t.failed = t.failed || err != nil
	return err
}

// scanner is a row, of a *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

// read is a row whose errors say that it cannot be read.
type read struct{ row scanner }

func (r read) Scan(dest ...any) error {
	err := r.row.Scan(dest...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		err = unreadableError{err}
	}
	return err
}

func each(rows *sql.Rows, scan func(scanner) error) error {
	defer rows.Close()
	var r scanner = read{rows} // once, and not for each row
	for rows.Next() {
		if err := scan(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *Tx) after(d time.Duration) int64 { return t.now + d.Microseconds() }

// due is the value of a column for a time from now, null for never.
func (t *Tx) due(after time.Duration) sql.NullInt64 {
	if after == store.Never {
		return sql.NullInt64{}
	}
	return sql.NullInt64{Int64: t.after(after), Valid: true}
}

// runRow is the row of a run as it will be. changed says that it is not written yet.
type runRow struct {
	seq, open int64
	changed   bool
}

const (
	selectRunRow = "SELECT seq, open FROM runs WHERE run_id = ?"
	updateRunRow = "UPDATE runs SET seq = ?, revision = revision + 1, open = ? WHERE run_id = ?"
)

// ownOfRuns are the statements by which a transaction keeps the rows of runs and their events.
var ownOfRuns = []string{selectRunRow, updateRunRow, insertEvent, insertEvents}

// run is the row of a run that this transaction changes.
func (t *Tx) run(runID string) (*runRow, error) {
	t.changed[runID] = true
	r, ok := t.runs[runID]
	if !ok {
		r = &runRow{}
		if err := t.Row([]any{&r.seq, &r.open}, selectRunRow, runID); err != nil {
			return nil, err
		}
		t.runs[runID] = r
	}
	r.changed, t.wrote = true, true
	return r, nil
}

// event appends to a run's log. Every transaction that changes a run makes at least one event or
// calls touch.
func (t *Tx) event(runID, rolloutID string, typ store.EventType, data any) error {
	r, err := t.run(runID)
	if err != nil {
		return err
	}
	r.seq++
	t.events = append(t.events, runID, r.seq, t.now, string(typ), rolloutID, marshal(data))
	return t.notify(runID, r.seq, typ)
}

// touch says that a run has changed without an event.
func (t *Tx) touch(runID string) error {
	_, err := t.run(runID)
	return err
}

// endRollout counts a rollout of a run that has ended with an event, and returns how many are left.
func (t *Tx) endRollout(runID, rolloutID string, data any) (open int64, err error) {
	r, err := t.run(runID)
	if err != nil {
		return 0, err
	}
	r.open--
	return r.open, t.event(runID, rolloutID, store.RolloutFinished, data)
}

// insertEvents inserts 16 events or one.
const (
	insertEvent  = "INSERT INTO events (run_id, seq, time, type, rollout_id, data) VALUES " + eventValues
	insertEvents = insertEvent + ", " + events3 + ", " + events3 + ", " + events3 + ", " + events3 + ", " + events3
	eventValues  = "(?, ?, ?, ?, ?, ?)"
	events3      = eventValues + ", " + eventValues + ", " + eventValues
	eventsAtOnce = 16
)

// writeRuns writes the rows of runs that were changed, and the events. It is called when the group, or an operation that
// may be taken back alone, has ended, and before a statement that sees these tables.
func (t *Tx) writeRuns() error {
	const one = 6
	events := t.events
	t.events = nil // the statements are of these tables
	changed := maps.Clone(t.runs)
	maps.DeleteFunc(changed, func(_ string, r *runRow) bool { return !r.changed })
	for len(events) > 0 {
		n, query := one, insertEvent
		if len(events) >= eventsAtOnce*one {
			n, query = eventsAtOnce*one, insertEvents
		}
		if err := t.Exec(query, events[:n]...); err != nil {
			return err
		}
		events = events[n:]
	}
	for _, id := range slices.Sorted(maps.Keys(changed)) {
		r := changed[id]
		if err := t.Exec(updateRunRow, r.seq, r.open, id); err != nil {
			return err
		}
		r.changed = false
	}
	return nil
}

// forgetRuns drops what was not written: it was taken back.
func (t *Tx) forgetRuns() {
	clear(t.runs)
	t.events = nil
}
