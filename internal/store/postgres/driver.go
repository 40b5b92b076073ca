package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sys/unix"
)

// connector makes connections that take the statements of the rules.
type connector struct {
	driver.Connector
	// reads says that the connections only read: what was interrupted can be done again.
	reads bool
	// patience is how long one statement may take, or the server may be away.
	patience time.Duration
	// closed ends the waiting for the server.
	closed <-chan struct{}
}

// Connect implements driver.Connector. It waits for a server that is away, for a connection that
// reads.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	var since time.Time
	for failures := 1; ; failures++ {
		made, err := c.Connector.Connect(ctx)
		if err == nil {
			return &conn{Conn: made.(*stdlib.Conn), connector: c}, nil
		}
		if failures == 1 {
			since = time.Now()
		}
		if !c.reads || ctx.Err() != nil || !passes(err) || !wait(failures, since, c.patience, c.closed) {
			return nil, err
		}
	}
}

// conn is a connection.
type conn struct {
	*stdlib.Conn
	connector *connector
	// snapshot says that a transaction is open that sees one moment, and cursors counts its queries.
	snapshot bool
	cursors  int
	// waiting are statements that were run and not yet sent; see pipeline.go.
	waiting pipeline
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *conn) CheckNamedValue(v *driver.NamedValue) (err error) {
	v.Value, err = convert(v.Value)
	return err
}

// PrepareContext implements driver.ConnPrepareContext. The server prepares a statement when it runs
// for the first time, because the types of its parameters are known then.
func (c *conn) PrepareContext(_ context.Context, text string) (driver.Stmt, error) {
	return &stmt{c, text}, nil
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o.ReadOnly {
		o.Isolation = driver.IsolationLevel(sql.LevelRepeatableRead)
	}
	tx, err := c.Conn.BeginTx(ctx, o)
	if err != nil {
		return nil, c.retried(ctx, err)
	}
	c.snapshot, c.cursors = o.ReadOnly, 0
	return &snapshotTx{tx, c}, nil
}

type snapshotTx struct {
	driver.Tx
	c *conn
}

// Commit implements driver.Tx.
func (t *snapshotTx) Commit() error {
	t.c.snapshot = false
	return t.Tx.Commit()
}

// Rollback implements driver.Tx.
func (t *snapshotTx) Rollback() error {
	t.c.snapshot = false
	return t.Tx.Rollback()
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, c.connector.patience)
	defer cancel()
	s := translate(text, args)
	return c.Conn.ExecContext(ctx, s.text, s.values(args))
}

// QueryContext implements driver.QueryerContext. The queries of a snapshot are read side by side. Of
// others the first rows are read at once, so that a query can be run again on another connection
// until somebody has seen a row of it.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s := translate(text, args)
	if c.snapshot {
		return c.openCursor(ctx, s, args)
	}
	rows, err := c.Conn.QueryContext(ctx, s.text, s.values(args))
	if err != nil {
		return nil, c.retried(ctx, err)
	}
	out := &readRows{columns: rows.Columns(), from: rows}
	out.next = func() (more bool, err error) { return out.read(rows, fetched) }
	if err := out.begin(); err != nil {
		return nil, c.retried(ctx, err)
	}
	return out, nil
}

// retried makes database/sql run a statement that only reads on another connection, if this one is
// lost. The end of ctx says nothing of the server.
func (c *conn) retried(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && c.connector.reads && !c.snapshot && passes(err) && c.Conn.Conn().IsClosed() {
		return driver.ErrBadConn
	}
	return err
}

// stmt is a statement that runs again and again.
type stmt struct {
	c    *conn
	text string
}

// Close implements driver.Stmt.
func (s *stmt) Close() error { return nil }

// NumInput implements driver.Stmt.
func (s *stmt) NumInput() int { return -1 }

// Exec implements driver.Stmt.
func (s *stmt) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }

// Query implements driver.Stmt.
func (s *stmt) Query([]driver.Value) (driver.Rows, error) { return nil, errors.ErrUnsupported }

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.c.connector.reads {
		return s.c.ExecContext(ctx, s.text, args)
	}
	return s.c.later(s.text, args)
}

// QueryContext implements driver.StmtQueryContext. All rows are read at once, so that another
// statement may run before the last of them was looked at.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if !s.c.connector.reads {
		return s.c.later(s.text, args)
	}
	within, cancel := context.WithTimeout(ctx, s.c.connector.patience)
	defer cancel()
	t := translate(s.text, args)
	rows, err := s.c.Conn.QueryContext(within, t.text, t.values(args))
	if err != nil {
		return nil, s.c.retried(ctx, err)
	}
	out := &readRows{columns: rows.Columns()}
	err = out.readAll(rows)
	return out, s.c.retried(ctx, err)
}

// readRows are rows that have been read. next, if it is not nil, reads more. from, if it is not nil,
// is where it reads them.
type readRows struct {
	columns []string
	rows    [][]driver.Value
	next    func() (more bool, err error)
	from    driver.Rows
}

// begin reads the first rows.
func (r *readRows) begin() error {
	more, err := r.next()
	if !more {
		r.next = nil
	}
	return err
}

func (r *readRows) readAll(rows driver.Rows) error {
	_, err := r.read(rows, math.MaxInt)
	return err
}

// read reads rows until there are so many. more says that there may be others.
func (r *readRows) read(rows driver.Rows, most int) (more bool, err error) {
	for len(r.rows) < most {
		row := make([]driver.Value, len(r.columns))
		if err := rows.Next(row); errors.Is(err, io.EOF) {
			return false, rows.Close()
		} else if err != nil {
			return false, errors.Join(err, rows.Close())
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = slices.Clone(b) // it is the connection's
			}
		}
		r.rows = append(r.rows, row)
	}
	return true, nil
}

// Columns implements driver.Rows.
func (r *readRows) Columns() []string { return r.columns }

// Close implements driver.Rows.
func (r *readRows) Close() error {
	if r.from == nil {
		return nil
	}
	return r.from.Close()
}

// Next implements driver.Rows.
func (r *readRows) Next(dest []driver.Value) error {
	if len(r.rows) == 0 {
		if r.next == nil {
			return io.EOF
		}
		more, err := r.next()
		if err != nil {
			return err
		}
		if !more {
			r.next = nil
		}
		if len(r.rows) == 0 {
			return io.EOF
		}
	}
	copy(dest, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// fetched is how many rows of a cursor are read at once.
const fetched = 200

// openCursor runs a query whose rows are read while those of others are. A connection has one
// result at a time, so each query has a cursor, which ends with the transaction.
func (c *conn) openCursor(ctx context.Context, s *statement, args []driver.NamedValue) (driver.Rows, error) {
	c.cursors++
	name := fmt.Sprintf("c%d", c.cursors)
	declare := "DECLARE " + name + " NO SCROLL CURSOR FOR " + s.text
	if _, err := c.Conn.ExecContext(ctx, declare, s.values(args)); err != nil {
		return nil, c.retried(ctx, err)
	}
	out := &readRows{}
	out.next = func() (bool, error) {
		// The columns of a cursor are those of its query, so this statement must not be kept.
		rows, err := c.Conn.QueryContext(ctx, fmt.Sprintf("FETCH %d FROM %s", fetched, name),
			[]driver.NamedValue{{Ordinal: 1, Value: pgx.QueryExecModeExec}})
		if err != nil {
			return false, c.retried(ctx, err)
		}
		out.columns, out.rows = rows.Columns(), nil
		err = out.readAll(rows)
		return len(out.rows) == fetched, c.retried(ctx, err)
	}
	return out, out.begin()
}

// silence is how long a server may not answer a packet before its connection is lost.
const silence = 20 * time.Second

// tcpUserTimeout is unix.TCP_USER_TIMEOUT, which only Linux has.
const tcpUserTimeout = 18

// newDialer makes a dialer whose connections end when the server can no longer be reached. While
// something was sent and is not acknowledged there are no keepalives, and Linux would go on sending
// it for a quarter of an hour.
func newDialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silence / 4, Interval: silence / 4, Count: 3},
		Control: func(network, _ string, c syscall.RawConn) error {
			if runtime.GOOS != "linux" || network == "unix" {
				return nil
			}
			return c.Control(func(fd uintptr) {
				ms := int(silence.Milliseconds())
				_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, tcpUserTimeout, ms) // without it, it takes longer
			})
		},
	}
}
