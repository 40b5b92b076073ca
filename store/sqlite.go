package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	_ "modernc.org/sqlite" // the driver named "sqlite"
)

// Options for Open.
type Options struct {
	// Now is the store's clock; nil means time.Now.
	Now func() time.Time
	// Lease is how long a claim lasts if it is not renewed; 0 means 30 s. Renew it every third of that.
	Lease time.Duration
	// Process is who claims; nil means this process.
	Process *Process
	// MustExist makes it an error if there is no store yet.
	MustExist bool
}

// DefaultLease is how long a claim lasts that is not renewed.
const DefaultLease = 30 * time.Second

// parkedFor is how long a delivery that matches nothing is kept.
const parkedFor = 7 * 24 * time.Hour

// SQLite is the embedded store: one file in a folder, shared by the processes of one machine.
type SQLite struct {
	dir     string
	id      string
	holder  string
	process Process
	lease   time.Duration
	now     func() time.Time

	// read serves queries; writes go through the committer's one connection.
	read   *sql.DB
	write  *sql.DB
	commit *committer
	wake   *waker

	registered sync.Once
	registerEr error
}

var _ Store = (*SQLite)(nil)

// Open opens the store in a folder, and makes both if they are not there. A file that is damaged, locked, newer or no
// store at all is an error and is left as it is.
func Open(dir string, opts Options) (*SQLite, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Lease == 0 {
		opts.Lease = DefaultLease
	}
	if opts.Process == nil {
		self := ThisProcess()
		opts.Process = &self
	}
	file := filepath.Join(dir, "store.db")
	if err := inspect(file, opts.MustExist); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the store: %w", err)
	}
	s := &SQLite{dir: dir, holder: uuid.NewString(), process: *opts.Process, lease: opts.Lease, now: opts.Now}
	if err := s.connect(file); err != nil {
		return nil, describe(file, err)
	}
	if s.wake, err = newWaker(dir); err != nil {
		return nil, errors.Join(err, s.closeDatabases())
	}
	s.commit = startCommitter(s)
	return s, nil
}

func (s *SQLite) connect(file string) (err error) {
	pragmas := "_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-1024)"
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath()}).String()
	if s.write, err = sql.Open("sqlite", name+"?"+pragmas+"&_txlock=immediate&_pragma=journal_mode(WAL)"); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	if err := s.migrate(); err != nil {
		return errors.Join(err, s.closeDatabases())
	}
	if s.read, err = sql.Open("sqlite", name+"?"+pragmas+"&_pragma=query_only(1)"); err != nil {
		return errors.Join(err, s.closeDatabases())
	}
	s.read.SetMaxOpenConns(4)
	s.read.SetMaxIdleConns(1)
	return nil
}

// inspect looks at a store's file without changing it.
func inspect(file string, mustExist bool) error {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		if mustExist {
			return fmt.Errorf("there is no store in %s; give its folder with --store, or start a run there first: %w", filepath.Dir(file), err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot open the store: %w", err)
	}
	defer f.Close()
	header := make([]byte, 100)
	n, err := io.ReadFull(f, header)
	if n == 0 && errors.Is(err, io.EOF) {
		return nil // made and not yet written: a process that died at once
	}
	if err != nil || string(header[:16]) != "SQLite format 3\x00" {
		return fmt.Errorf("%s is not an evalrun store, or it is damaged: it does not begin like an SQLite database; it was left as it is", file)
	}
	// Offsets are those of the database header, https://sqlite.org/fileformat.html section 1.3.
	if id := binary.BigEndian.Uint32(header[68:]); id != applicationID && id != 0 {
		return fmt.Errorf("%s is an SQLite database of another program (application id %#x), not an evalrun store; it was left as it is", file, id)
	}
	if v := binary.BigEndian.Uint32(header[60:]); v > uint32(len(migrations)) {
		return fmt.Errorf("%s was written by a newer evalrun (schema %d, this one knows %d); update evalrun; it was left as it is", file, v, len(migrations))
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	pageSize := int64(binary.BigEndian.Uint16(header[16:]))
	if pageSize == 1 {
		pageSize = 65536
	}
	pages := int64(binary.BigEndian.Uint32(header[28:]))
	valid := binary.BigEndian.Uint32(header[24:]) == binary.BigEndian.Uint32(header[92:])
	if _, err := os.Stat(file + "-wal"); errors.Is(err, os.ErrNotExist) && valid && info.Size() < pages*pageSize {
		return fmt.Errorf("%s is damaged: it is cut (%d bytes of %d); restore it from a copy; it was left as it is", file, info.Size(), pages*pageSize)
	}
	return nil
}

// describe says what an error of the database means for a person.
func describe(file string, err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "SQLITE_BUSY"), strings.Contains(text, "database is locked"):
		return fmt.Errorf("the store %s is locked by another program; end it or try again: %w", file, err)
	case strings.Contains(text, "SQLITE_CORRUPT"), strings.Contains(text, "malformed"), strings.Contains(text, "SQLITE_NOTADB"), strings.Contains(text, "not a database"):
		return fmt.Errorf("the store %s is damaged; restore it from a copy: %w", file, err)
	case strings.Contains(text, "SQLITE_FULL"):
		return fmt.Errorf("the disk of the store %s is full: %w", file, err)
	case strings.Contains(text, "SQLITE_READONLY"), strings.Contains(text, "readonly"):
		return fmt.Errorf("the store %s cannot be written; check its permissions: %w", file, err)
	}
	return fmt.Errorf("the store %s: %w", file, err)
}

func (s *SQLite) migrate() error {
	ctx := context.Background()
	var version, app int
	if err := s.write.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if err := s.write.QueryRowContext(ctx, "PRAGMA application_id").Scan(&app); err != nil {
		return err
	}
	if version == len(migrations) && app == applicationID {
		return s.write.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'storeId'").Scan(&s.id)
	}
	tx, err := s.write.BeginTx(ctx, nil) // immediate: two processes may come here at once
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit this does nothing
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version == 0 {
		var tables int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil {
			return err
		}
		if tables > 0 {
			return errors.New("it is an SQLite database of another program, not an evalrun store; it was left as it is")
		}
	}
	for ; version < len(migrations); version++ {
		if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
			return fmt.Errorf("migrating it to schema %d: %w", version+1, err)
		}
	}
	for _, q := range []string{
		fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", version),
		"INSERT OR IGNORE INTO meta VALUES ('storeId', '" + uuid.NewString() + "')",
	} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	if err := tx.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'storeId'").Scan(&s.id); err != nil {
		return err
	}
	return tx.Commit()
}

// ID implements Store.
func (s *SQLite) ID() string { return s.id }

// Dir implements Store.
func (s *SQLite) Dir() string { return s.dir }

// Holder implements Store.
func (s *SQLite) Holder() string { return s.holder }

// Wake implements Store.
func (s *SQLite) Wake() <-chan []string { return s.wake.received }

// Close implements Store.
func (s *SQLite) Close() error {
	s.commit.stop()
	return errors.Join(s.wake.close(), s.closeDatabases())
}

func (s *SQLite) closeDatabases() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// micros is a time as the store keeps it; the zero time is null.
func micros(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func fromMicros(v sql.NullInt64) time.Time {
	if !v.Valid {
		return time.Time{}
	}
	return time.UnixMicro(v.Int64).UTC()
}
