package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/evalrun/evalrun/internal/store"
)

const defaultBusy = 10 * time.Second

// db is the open database: its connections, the committer of its writes, and its place on disk.
type db struct {
	dir  string
	file string
	// database is the path that is opened: the file, or a copy of a file that cannot be written.
	database string
	id       string
	holder   string
	machine  store.Machine
	process  store.Process
	lease    time.Duration
	now      func() time.Time

	// read serves queries; writes go through the committer's one connection.
	read  *sql.DB
	write *sql.DB
	// place are the folder and the file as they were when the store was opened.
	place   [2]os.FileInfo
	commit  *committer
	wake    *waker
	changes *changes

	// queries are statements of the pool that are prepared once, because they run all the time.
	queries sync.Map

	closing  sync.Once
	closeErr error
}

func (d *db) connect(busy time.Duration) (err error) {
	source := d.dataSource(busy)
	if d.write, err = sql.Open("sqlite", source+"&_txlock=immediate&_pragma=journal_mode(WAL)"); err != nil {
		return err
	}
	d.write.SetMaxOpenConns(1)
	if err := d.migrate(); err != nil {
		return errors.Join(err, d.closeDatabases())
	}
	if d.read, err = sql.Open("sqlite", source+"&_pragma=query_only(1)&mode=rw"); err != nil {
		return errors.Join(err, d.closeDatabases())
	}
	d.read.SetMaxOpenConns(5) // one of them looks for what others commit
	d.read.SetMaxIdleConns(4)
	return nil
}

// dataSource is the file and the settings that all connections have.
func (d *db) dataSource(busy time.Duration) string {
	pragmas := fmt.Sprintf(
		"_pragma=busy_timeout(%d)&_pragma=synchronous(FULL)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-1024)",
		busy.Milliseconds())
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: d.database}).EscapedPath()}).String() + "?" + pragmas
}

// query is a prepared statement of the pool.
func (d *db) query(ctx context.Context, text string) (*sql.Stmt, error) {
	if stmt, ok := d.queries.Load(text); ok {
		return stmt.(*sql.Stmt), nil
	}
	stmt, err := d.read.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if earlier, ok := d.queries.LoadOrStore(text, stmt); ok {
		_ = stmt.Close() // another goroutine was faster
		return earlier.(*sql.Stmt), nil
	}
	return stmt, nil
}

// queryRow runs a prepared query of one row.
func (d *db) queryRow(ctx context.Context, text string, args ...any) scanner {
	stmt, err := d.query(ctx, text)
	if err != nil {
		return failed{err}
	}
	return stmt.QueryRowContext(ctx, args...)
}

// failed is a row that could not be read.
type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// InPlace implements Place.
func (d *db) InPlace() error {
	for i, path := range []string{d.dir, d.file} {
		if now, err := os.Stat(path); err != nil || !os.SameFile(now, d.place[i]) {
			return fmt.Errorf("the store %s: %w; start again with the place where it is now (--store)", d.dir, store.ErrMoved)
		}
	}
	return nil
}

// ID implements Place.
func (d *db) ID() string { return d.id }

// Dir implements Place.
func (d *db) Dir() string { return d.dir }

// Holder is the id under which this process claims.
func (d *db) Holder() string { return d.holder }

// Wake returns a channel that receives after another process committed something that may concern a
// dispatcher. Wake-ups are folded together and may be lost.
func (d *db) Wake() <-chan store.WakeUp { return d.wake.received }

// Process implements Processes.
func (d *db) Process() store.Process { return d.process }

// Changed implements Changes.
func (d *db) Changed(runID string) <-chan struct{} { return d.changes.of(runID) }

// Close ends all waiting for changes and closes the store. Claims that are still held stay until
// their lease is void. Closing twice is no error.
func (d *db) Close() error {
	d.closing.Do(func() {
		d.commit.stop()
		closed := d.wake.close()
		d.changes.close()
		d.closeErr = errors.Join(closed, d.closeDatabases(), d.removeCopy())
	})
	return d.closeErr
}

func (d *db) closeDatabases() error {
	var errs []error
	for _, db := range []*sql.DB{d.read, d.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// writeOp runs one operation and returns when it is durable. Errors name the step. ctx ends only
// the waiting for a turn: an operation that has begun is finished.
func (d *db) writeOp(ctx context.Context, step string, run func(*write) error) error {
	return d.enqueue(ctx, &operation{step: step, run: run, err: make(chan error, 1)})
}

// writeRelaxed runs one operation that survives the end of every process, but perhaps not a power
// cut. It waits for no sync. That keeps the time between one agent and the next short.
func (d *db) writeRelaxed(ctx context.Context, step string, run func(*write) error) error {
	return d.enqueue(ctx, &operation{step: step, run: run, err: make(chan error, 1), relaxed: true})
}

func (d *db) enqueue(ctx context.Context, op *operation) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.readOnly() {
		return &readOnlyError{d.file}
	}
	select {
	case d.commit.ops <- op:
		return d.describe(<-op.err, op.step)
	case <-ctx.Done():
		return ctx.Err()
	case <-d.commit.done:
		return store.ErrClosed
	}
}
