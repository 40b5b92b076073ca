// Package sqlite keeps a store in one SQLite file, which the processes of one machine share. Only
// code that opens a store names this package; all other code uses the interfaces of package store.
//
// Writes go through one connection, which commits them in groups; reads have connections of their
// own. The package knows SQL, leases and what a folder on disk can do wrong, and nothing of what
// the stored JSON means.
package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/store"
)

// Store is the embedded store: one file in a folder, shared by the processes of one machine. Each
// of its parts implements an interface of package store over the same database, and has no other
// part.
type Store struct {
	*db
	runs
	queue
	scoring
	batches
	ledger
	mailbox
	questions
	reader
	listing
	mcpTasks
	accessTokens
	jobs
	outbox
	rescorings
	standings
}

// Open opens the store in a folder, and makes both if they are not there. Only the owner may read
// what is in the store. A file that is damaged, locked, newer or no store at all is an error and is
// left as it is. A store that cannot be written is opened for reading.
func Open(dir string, opts store.Options) (*Store, error) {
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
	if opts.Machine == nil {
		here := store.ThisMachine()
		opts.Machine = &here
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
	d := &db{
		dir: dir, file: file, database: file, holder: uuid.NewString(), machine: *opts.Machine, process: *opts.Process,
		lease: opts.Lease, now: opts.Now,
	}
	readOnly := unwritable(dir, file)
	if !exists && !readOnly {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("cannot make the store: %w", err)
		}
		unlock, err := lockFolder(dir)
		if err != nil {
			return nil, fmt.Errorf("cannot make the store: %w", err)
		}
		defer unlock()
		if err := errors.Join(ignoreInGit(dir), createPrivate(file)); err != nil {
			return nil, fmt.Errorf("cannot make the store: %w", err)
		}
	}
	if readOnly {
		if err := d.readCopy(); err != nil {
			return nil, err
		}
	} else {
		for _, left := range makePrivate(dir) {
			if opts.Warn != nil {
				opts.Warn(left)
			}
		}
	}
	if err := d.connect(opts.Busy); err != nil {
		return nil, errors.Join(d.describe(err), d.removeCopy())
	}
	for i, path := range []string{dir, file} {
		if d.place[i], err = os.Stat(path); err != nil {
			return nil, errors.Join(err, d.closeDatabases(), d.removeCopy())
		}
	}
	d.changes = newChanges(d)
	if d.wake, err = newWaker(dir, d.changes); err != nil && !d.readOnly() {
		return nil, errors.Join(err, d.closeDatabases())
	}
	d.commit = startCommitter(d)
	return &Store{
		d, runs{d}, queue{d}, scoring{d}, batches{d}, ledger{d}, mailbox{d}, questions{d}, reader{d}, listing{d},
		mcpTasks{d}, accessTokens{d}, jobs{d}, outbox{d}, rescorings{d}, standings{d},
	}, nil
}

// ignoreInGit keeps a new store out of the repository that it is made in. A folder that has
// something else in it is left alone.
func ignoreInGit(dir string) error {
	if there, err := os.ReadDir(dir); err != nil || len(there) > 0 {
		return err
	}
	return os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*\n"), 0o600)
}

// lockFolder lets one process at a time make the store: while another makes its log, SQLite does
// not wait but fails.
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
