package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/store"
)

// maxGroup bounds how many operations share one commit.
const maxGroup = 256

// committer runs all writes of a process on one connection. Operations that arrive while a commit is being synced wait together and
// share the next one, each in a savepoint of its own: an operation that fails takes nothing with it. (SQLite syncs for 0.2 ms
// to 10 ms a commit; without groups that would bound the whole program.)
type committer struct {
	store *SQLite
	ops   chan *operation
	quit  chan struct{}
	done  chan struct{}
}

type operation struct {
	run func(*tx) error
	err chan error
	// relaxed says that a power cut may take the operation back. Nothing outside the store must follow from it that could not be done again.
	relaxed bool
	// wake is set by run if other processes may want to know, of changed, the runs that have new events.
	wake    bool
	changed map[string]bool
}

// tx is what an operation works with: the open transaction, its time, and cached statements.
type tx struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	store *SQLite
	// now is the time of the transaction in microseconds; every row it writes has the same.
	now  int64
	wake bool
	// changed are the runs that have got an event by the operation.
	changed map[string]bool
	// synchronous is the mode of the connection.
	synchronous string
}

func startCommitter(s *SQLite) *committer {
	c := &committer{store: s, ops: make(chan *operation), quit: make(chan struct{}), done: make(chan struct{})}
	go c.loop()
	return c
}

func (c *committer) stop() {
	close(c.quit)
	<-c.done
}

// writeOp runs one operation and returns when it is durable. ctx ends only the waiting for a turn: once begun, an operation is finished.
func (s *SQLite) writeOp(ctx context.Context, run func(*tx) error) error {
	return s.enqueue(ctx, &operation{run: run, err: make(chan error, 1)})
}

// writeRelaxed runs one operation that survives the end of every process and need not survive a power cut. It waits for no sync, which
// is what keeps the time between one agent and the next short.
func (s *SQLite) writeRelaxed(ctx context.Context, run func(*tx) error) error {
	return s.enqueue(ctx, &operation{run: run, err: make(chan error, 1), relaxed: true})
}

func (s *SQLite) enqueue(ctx context.Context, op *operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.commit.ops <- op:
		return s.describe(<-op.err)
	case <-ctx.Done():
		return ctx.Err()
	case <-s.commit.done:
		return store.ErrClosed
	}
}

func (c *committer) loop() {
	defer close(c.done)
	ctx := context.Background()
	t := &tx{store: c.store, stmts: map[string]*sql.Stmt{}}
	defer t.close()
	for {
		var group []*operation
		select {
		case op := <-c.ops:
			group = c.collect(op)
		case <-c.quit:
			return
		}
		if t.conn == nil {
			conn, err := c.store.write.Conn(ctx)
			if err != nil {
				fail(group, err)
				continue
			}
			t.conn = conn
		}
		relaxed, strict := split(group)
		c.runGroup(t, relaxed, "NORMAL")
		c.runGroup(t, strict, "FULL")
	}
}

// split parts the operations that wait for no sync from the others, which they need not wait for.
func split(group []*operation) (relaxed, strict []*operation) {
	for _, op := range group {
		if op.relaxed {
			relaxed = append(relaxed, op)
		} else {
			strict = append(strict, op)
		}
	}
	return relaxed, strict
}

// collect takes what waits already.
func (c *committer) collect(first *operation) []*operation {
	group := []*operation{first}
	for len(group) < maxGroup {
		select {
		case op := <-c.ops:
			group = append(group, op)
		default:
			return group
		}
	}
	return group
}

// runGroup runs operations in one transaction with a mode of SQLite's PRAGMA synchronous.
func (c *committer) runGroup(t *tx, group []*operation, synchronous string) {
	if len(group) == 0 {
		return
	}
	defer failpoint.Transaction()()
	errs := make([]error, len(group))
	commit := func() error {
		if err := t.setSynchronous(synchronous); err != nil {
			return err
		}
		if err := t.exec("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		t.now = c.store.now().UnixMicro() // not before the lock is there: it may have been waited for
		for i, op := range group {
			t.wake, t.changed = false, map[string]bool{}
			if len(group) == 1 { // it needs no savepoint: what fails with it is only itself
				if err := op.run(t); err != nil {
					return err
				}
			} else if err := t.runInSavepoint(op, &errs[i]); err != nil {
				return err
			}
			op.wake, op.changed = t.wake && errs[i] == nil, t.changed
		}
		failpoint.Hit("store.commit")
		return t.exec("COMMIT")
	}
	if err := commit(); err != nil {
		_ = t.exec("ROLLBACK") // there may be none to roll back
		fail(group, err)
		return
	}
	failpoint.Hit("store.committed")
	wake, runs := false, map[string]bool{}
	for i, op := range group {
		if op.wake {
			wake = true
			maps.Copy(runs, op.changed)
		}
		op.err <- errs[i]
	}
	if wake {
		c.store.wake.tell(slices.Collect(maps.Keys(runs)))
	}
}

// runInSavepoint runs an operation so that it takes nothing with it when it fails, with failure. The error is one of the transaction.
func (t *tx) runInSavepoint(op *operation, failure *error) error {
	if err := t.exec("SAVEPOINT op"); err != nil {
		return err
	}
	if *failure = op.run(t); *failure != nil {
		if err := t.exec("ROLLBACK TO op"); err != nil {
			return err
		}
	}
	return t.exec("RELEASE op")
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

func fail(group []*operation, err error) {
	for _, op := range group {
		op.err <- err
	}
}

// close gives back the connection, and what it holds.
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
	err = stmt.QueryRowContext(context.Background(), args...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	return err
}

// rows calls scan for each row. The rows are read to the end before it is called again for another query.
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

func each(rows *sql.Rows, scan func(scanner) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *tx) after(d time.Duration) int64 { return t.now + d.Microseconds() }
