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
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/wake"
)

const defaultBusy = 10 * time.Second

// db is the open database: its connections, and its place on disk. It implements [rules.Database].
type db struct {
	dir  string
	file string
	// database is the path that is opened: the file, or a copy of a file that cannot be written.
	database string
	id       string
	now      func() time.Time

	// read serves queries; writes go through the one connection of write.
	read  *sql.DB
	write *sql.DB
	// place are the folder and the file as they were when the store was opened.
	place [2]os.FileInfo
	wake  *wake.Socket

	// looking guards the next two fields: the connection that sees what others commit, and the
	// version of the database that it has seen last.
	looking sync.Mutex
	conn    *sql.Conn
	seen    int64
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
		"_pragma=busy_timeout(%d)&_pragma=synchronous(FULL)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-1024)&_pragma=trusted_schema(0)",
		busy.Milliseconds())
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: d.database}).EscapedPath()}).String() + "?" + pragmas
}

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

// Files implements Place. The files are in the store's own folder.
func (d *db) Files() string { return "" }

// Name implements Database.
func (d *db) Name() string { return d.dir }

// Reader implements Database.
func (d *db) Reader() *sql.DB { return d.read }

// Connect implements Database.
func (d *db) Connect(ctx context.Context) (*sql.Conn, error) { return d.write.Conn(ctx) }

// Pipelines implements Database.
func (d *db) Pipelines() bool { return false }

// Begin implements Database.
func (d *db) Begin(t *rules.Tx, relaxed bool) error {
	mode := "FULL"
	if relaxed {
		mode = "NORMAL"
	}
	if err := setSynchronous(t, mode); err != nil {
		return err
	}
	if err := t.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := d.sameSchema(t); err != nil {
		return err
	}
	t.SetTime(d.now().UnixMicro()) // not before the lock is there: it may have been waited for
	return nil
}

// setSynchronous changes the mode of the connection if it is another one.
func setSynchronous(t *rules.Tx, mode string) error {
	if t.Mode == mode {
		return nil
	}
	t.Mode = ""
	if err := t.Exec("PRAGMA synchronous = " + mode); err != nil {
		return err
	}
	t.Mode = mode
	return nil
}

// Commit implements Database.
func (d *db) Commit(t *rules.Tx, _ rules.Changed) error { return t.Exec("COMMIT") }

// Again implements Database. What can pass has been waited for already.
func (d *db) Again(error, int, time.Time, <-chan struct{}) bool { return false }

// Tell implements Database.
func (d *db) Tell(what rules.Changed) { d.wake.Tell(what.Message()) }

// HasChanged implements Database. It also says yes when it cannot find out, because those who are
// woken for nothing wait again, and when the store is not in its place, which those who write find out.
func (d *db) HasChanged() bool {
	if d.InPlace() != nil {
		return true
	}
	d.looking.Lock()
	defer d.looking.Unlock()
	ctx := context.Background()
	if d.conn == nil {
		conn, err := d.read.Conn(ctx) // the version that is counted is the connection's own
		if err != nil {
			return true
		}
		d.conn = conn
	}
	before := d.seen
	if err := d.conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&d.seen); err != nil {
		_ = d.conn.Close() // another one is made the next time
		d.conn = nil
		return true
	}
	return d.seen != before
}

// Shut implements Database.
func (d *db) Shut() error {
	closed := d.wake.Close()
	d.looking.Lock()
	defer d.looking.Unlock()
	if d.conn != nil {
		_ = d.conn.Close() // its database is closed next
		d.conn = nil
	}
	return errors.Join(closed, d.closeDatabases(), d.removeCopy())
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
