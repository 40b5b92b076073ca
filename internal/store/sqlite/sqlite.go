// Package sqlite keeps a store in one SQLite file, which the processes of one machine share. Only
// what opens a store names this package; all others use the interfaces of package store.
//
// Writes go through one connection, which commits them in groups; reads have connections of their
// own. It knows SQL, leases and what a folder on disk can do wrong, and nothing of what the stored
// JSON means.
package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/evalrun/evalrun/internal/store"
)

const defaultBusy = 10 * time.Second

// parkedFor is how long a delivery that matches nothing is kept.
const parkedFor = 7 * 24 * time.Hour

// SQLite is the embedded store: one file in a folder, shared by the processes of one machine.
type SQLite struct {
	dir     string
	file    string
	id      string
	holder  string
	process store.Process
	lease   time.Duration
	now     func() time.Time

	// read serves queries; writes go through the committer's one connection.
	read  *sql.DB
	write *sql.DB
	// place are the folder and the file as they were when the store was opened.
	place  [2]os.FileInfo
	commit *committer
	wake   *waker

	closing  sync.Once
	closeErr error
}

var _ store.Store = (*SQLite)(nil)

// Open opens the store in a folder, and makes both if they are not there. What is in it is for its owner only. A file that is damaged, locked, newer or no
// store at all is an error and is left as it is.
func Open(dir string, opts store.Options) (*SQLite, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Lease == 0 {
		opts.Lease = store.DefaultLease
	}
	if opts.Busy == 0 {
		opts.Busy = defaultBusy
	}
	if opts.Process == nil {
		self := store.ThisProcess()
		opts.Process = &self
	}
	file := filepath.Join(dir, "store.db")
	exists, err := inspect(file, opts.MustExist)
	if err != nil {
		return nil, err
	}
	if !exists {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the store: %w", err)
		}
		unlock, err := lockFolder(dir)
		if err != nil {
			return nil, fmt.Errorf("cannot make the store: %w", err)
		}
		defer unlock()
		if err := createPrivate(file); err != nil {
			return nil, fmt.Errorf("cannot make the store: %w", err)
		}
	}
	for _, left := range makePrivate(dir) {
		if opts.Warn != nil {
			opts.Warn(left)
		}
	}
	s := &SQLite{dir: dir, file: file, holder: uuid.NewString(), process: *opts.Process, lease: opts.Lease, now: opts.Now}
	if err := s.connect(opts.Busy); err != nil {
		return nil, s.describe(err)
	}
	for i, path := range []string{dir, file} {
		if s.place[i], err = os.Stat(path); err != nil {
			return nil, errors.Join(err, s.closeDatabases())
		}
	}
	if s.wake, err = newWaker(dir); err != nil {
		return nil, errors.Join(err, s.closeDatabases())
	}
	s.commit = startCommitter(s)
	return s, nil
}

// lockFolder lets one process at a time make the store: SQLite does not wait for another that makes its log, it fails.
func lockFolder(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			// A file system without locks gets none: two that make the store at once are rare.
			return func() { _ = f.Close() }, nil
		}
	}
}

func (s *SQLite) connect(busy time.Duration) (err error) {
	pragmas := fmt.Sprintf("_pragma=busy_timeout(%d)&_pragma=synchronous(FULL)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-1024)", busy.Milliseconds())
	name := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: s.file}).EscapedPath()}).String()
	if s.write, err = sql.Open("sqlite", name+"?"+pragmas+"&_txlock=immediate&_pragma=journal_mode(WAL)"); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	if err := s.migrate(); err != nil {
		return errors.Join(err, s.closeDatabases())
	}
	if s.read, err = sql.Open("sqlite", name+"?"+pragmas+"&_pragma=query_only(1)&mode=rw"); err != nil {
		return errors.Join(err, s.closeDatabases())
	}
	s.read.SetMaxOpenConns(4)
	s.read.SetMaxIdleConns(1)
	return nil
}

// InPlace implements Store.
func (s *SQLite) InPlace() error {
	for i, path := range []string{s.dir, s.file} {
		if now, err := os.Stat(path); err != nil || !os.SameFile(now, s.place[i]) {
			return fmt.Errorf("the store %s: %w; start again with the place where it is now (--store)", s.dir, store.ErrMoved)
		}
	}
	return nil
}

// ID implements Store.
func (s *SQLite) ID() string { return s.id }

// Dir implements Store.
func (s *SQLite) Dir() string { return s.dir }

// Holder implements Store.
func (s *SQLite) Holder() string { return s.holder }

// Wake implements Store.
func (s *SQLite) Wake() <-chan store.WakeUp { return s.wake.received }

// Close implements Store. Closing twice is no error.
func (s *SQLite) Close() error {
	s.closing.Do(func() {
		s.commit.stop()
		s.closeErr = errors.Join(s.wake.close(), s.closeDatabases())
	})
	return s.closeErr
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
