package rules

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// Tx is the open transaction: its time, its statements, and the events that it appends. It is made
// once and used for one group of operations after the other.
type Tx struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	db    *db
	// now is the time of the transaction in microseconds; every row it writes has the same.
	now int64
	// wake is set by an operation if other processes may want to know of it.
	wake bool
	// changed are the runs that the operation has changed.
	changed map[string]bool
	// lost says that the connection cannot be used any more.
	lost bool
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
		t.lost = t.Exec("ROLLBACK") != nil
	}
}

func (t *Tx) prepare(query string) (*sql.Stmt, error) {
	if stmt, ok := t.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := t.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, err
	}
	t.stmts[query] = stmt
	return stmt, nil
}

// Exec runs a statement.
func (t *Tx) Exec(query string, args ...any) error {
	_, err := t.change(query, args...)
	return err
}

// change runs a statement and returns how many rows it changed.
func (t *Tx) change(query string, args ...any) (int64, error) {
	stmt, err := t.prepare(query)
	if err != nil {
		return 0, err
	}
	res, err := stmt.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
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
	return err
}

// rows calls scan for each row. scan must not use the transaction: the rows are still being read.
func (t *Tx) rows(scan func(scanner) error, query string, args ...any) error {
	stmt, err := t.prepare(query)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	return each(rows, scan)
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

// event appends to a run's log. Every transaction that changes a run makes at least one event or
// calls touch.
func (t *Tx) event(runID, rolloutID string, typ store.EventType, data any) error {
	var seq int64
	if err := t.Row([]any{&seq},
		"UPDATE runs SET seq = seq + 1, revision = revision + 1 WHERE run_id = ? RETURNING seq", runID); err != nil {
		return err
	}
	return t.addEvent(runID, seq, rolloutID, typ, data)
}

func (t *Tx) addEvent(runID string, seq int64, rolloutID string, typ store.EventType, data any) error {
	t.changed[runID] = true
	if err := t.notify(runID, seq, typ); err != nil {
		return err
	}
	return t.Exec("INSERT INTO events (run_id, seq, time, type, rollout_id, data) VALUES (?, ?, ?, ?, ?, ?)",
		runID, seq, t.now, string(typ), rolloutID, marshal(data))
}

// touch says that a run has changed without an event.
func (t *Tx) touch(runID string) error {
	t.changed[runID] = true
	return t.Exec("UPDATE runs SET revision = revision + 1 WHERE run_id = ?", runID)
}
