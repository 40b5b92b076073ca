package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// tx is the open transaction: its time, its statements, and the events that it appends. It is made
// once and used for one group of operations after the other.
type tx struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	db    *db
	// now is the time of the transaction in microseconds; every row it writes has the same.
	now int64
	// wake is set by an operation if other processes may want to know of it.
	wake bool
	// changed are the runs that the operation has changed.
	changed map[string]bool
	// synchronous is the mode of the connection.
	synchronous string
}

// setSynchronous changes the mode if it is another one.
func (t *tx) setSynchronous(mode string) error {
	if t.synchronous == mode {
		return nil
	}
	t.synchronous = ""
	if err := t.exec("PRAGMA synchronous = " + mode); err != nil {
		return err
	}
	t.synchronous = mode
	return nil
}

// close releases the connection and its statements.
func (t *tx) close() {
	for _, stmt := range t.stmts {
		_ = stmt.Close() // the connection goes with it
	}
	if t.conn != nil {
		_ = t.conn.Close()
	}
}

func (t *tx) prepare(query string) (*sql.Stmt, error) {
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

func (t *tx) exec(query string, args ...any) error {
	_, err := t.change(query, args...)
	return err
}

// change runs a statement and returns how many rows it changed.
func (t *tx) change(query string, args ...any) (int64, error) {
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

// row queries one row; ErrNotFound if there is none.
func (t *tx) row(dest []any, query string, args ...any) error {
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
func (t *tx) rows(scan func(scanner) error, query string, args ...any) error {
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

func (t *tx) after(d time.Duration) int64 { return t.now + d.Microseconds() }

// due is the value of a column for a time from now, null for never.
func (t *tx) due(after time.Duration) any {
	if after == store.Never {
		return nil
	}
	return t.after(after)
}

// event appends to a run's log. Every transaction that changes a run makes at least one event or
// calls touch.
func (t *tx) event(runID, rolloutID string, typ store.EventType, data any) error {
	var seq int64
	if err := t.row([]any{&seq},
		"UPDATE runs SET seq = seq + 1, revision = revision + 1 WHERE run_id = ? RETURNING seq", runID); err != nil {
		return err
	}
	return t.addEvent(runID, seq, rolloutID, typ, data)
}

func (t *tx) addEvent(runID string, seq int64, rolloutID string, typ store.EventType, data any) error {
	t.changed[runID] = true
	if err := t.notify(runID, seq, typ); err != nil {
		return err
	}
	return t.exec("INSERT INTO events (run_id, seq, time, type, rollout_id, data) VALUES (?, ?, ?, ?, ?, ?)",
		runID, seq, t.now, string(typ), rolloutID, marshal(data))
}

// touch says that a run has changed without an event.
func (t *tx) touch(runID string) error {
	t.changed[runID] = true
	return t.exec("UPDATE runs SET revision = revision + 1 WHERE run_id = ?", runID)
}
