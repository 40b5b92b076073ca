package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

// The prepared statements of a connection that writes are sent together: each waits until the answer of one of
// them is asked for, or the transaction ends. So what a group of operations writes takes few round trips, while
// all other processes wait for its lock.

// pipeline are statements that wait to be sent, in their order, and the size of their arguments.
type pipeline struct {
	all   []*answer
	bytes int
}

// How much waits at most.
const (
	mostWaiting      = 500
	mostBytesWaiting = 1 << 20
)

// answer is a statement with its answer, which is both what it has changed and its rows.
type answer struct {
	c    *conn
	text string
	args []any
	// sent says that the answer is there.
	sent     bool
	err      error
	affected int64
	columns  []string
	rows     [][]driver.Value
}

// later runs a statement when the next answer is asked for.
func (c *conn) later(text string, args []driver.NamedValue) (*answer, error) {
	s := translate(text, args)
	a := &answer{c: c, text: s.text}
	for _, v := range s.values(args) {
		a.args = append(a.args, v.Value)
		switch v := v.Value.(type) {
		case []byte:
			c.waiting.bytes += len(v)
		case string:
			c.waiting.bytes += len(v)
		}
	}
	if text == "ROLLBACK" { // nothing of what waits is to be done
		c.waiting = pipeline{}
	}
	c.waiting.all = append(c.waiting.all, a)
	if text == "ROLLBACK" || text == "COMMIT" || len(c.waiting.all) >= mostWaiting || c.waiting.bytes >= mostBytesWaiting {
		return a, c.send()
	}
	return a, nil
}

// send sends the statements that wait, and reads their answers. Those after one that has failed do not run, and
// have its error.
func (c *conn) send() (err error) {
	all := c.waiting.all
	c.waiting = pipeline{}
	ctx, cancel := context.WithTimeout(context.Background(), c.connector.patience)
	defer cancel()
	batch := &pgx.Batch{}
	for _, a := range all {
		batch.Queue(a.text, a.args...)
	}
	answers := c.Conn.Conn().SendBatch(ctx, batch)
	for _, a := range all {
		if err == nil {
			err = a.read(answers)
		}
		a.sent, a.err = true, err
	}
	if closed := answers.Close(); err == nil && closed != nil {
		err, all[len(all)-1].err = closed, closed
	}
	return err
}

func (a *answer) read(from pgx.BatchResults) error {
	rows, err := from.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for _, f := range rows.FieldDescriptions() {
		a.columns = append(a.columns, f.Name)
	}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return err
		}
		row := make([]driver.Value, len(values))
		for i, v := range values {
			if row[i], err = plain(v); err != nil {
				return fmt.Errorf("column %s: %w", a.columns[i], err)
			}
		}
		a.rows = append(a.rows, row)
	}
	rows.Close()
	a.affected = rows.CommandTag().RowsAffected()
	return rows.Err()
}

// plain is a value as database/sql knows it.
func plain(v any) (driver.Value, error) {
	switch v := v.(type) {
	case int16:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case driver.Valuer:
		return v.Value()
	}
	return v, nil
}

// wait waits for the answer.
func (a *answer) wait() error {
	if !a.sent {
		_ = a.c.send() // each statement has its error
	}
	if !a.sent {
		return errors.New("the transaction has ended before the statement was sent")
	}
	return a.err
}

// LastInsertId implements driver.Result.
func (a *answer) LastInsertId() (int64, error) { return 0, errors.ErrUnsupported }

// RowsAffected implements driver.Result.
func (a *answer) RowsAffected() (int64, error) {
	err := a.wait()
	return a.affected, err
}

// Columns implements driver.Rows.
func (a *answer) Columns() []string {
	_ = a.wait() // Next says what has failed
	return a.columns
}

// Close implements driver.Rows.
func (a *answer) Close() error { return nil }

// Next implements driver.Rows.
func (a *answer) Next(dest []driver.Value) error {
	if err := a.wait(); err != nil {
		return err
	}
	if len(a.rows) == 0 {
		return io.EOF
	}
	copy(dest, a.rows[0])
	a.rows = a.rows[1:]
	return nil
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error {
	c.waiting = pipeline{}
	return c.Conn.ResetSession(ctx)
}
