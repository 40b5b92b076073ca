// Package sqlite keeps a store in one SQLite file, which the processes of one machine share. Only
// code that opens a store names this package; all other code uses the interfaces of package store.
//
// Writes go through one connection, which commits them in groups; reads have connections of their
// own. The package knows files, migrations, and what a folder on disk can do wrong. What the store
// does is in package rules.
package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/wake"
)

// Store is the embedded store: one file in a folder, shared by the processes of one machine.
type Store = rules.Store

// Open opens the store in a folder, and makes both if they are not there. Only the owner may read
// what is in the store. A file that is damaged, locked, newer or no store at all is an error and is
// left as it is. A store that cannot be written is opened for reading.
func Open(dir string, opts store.Options) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	opts = rules.Defaults(opts)
	if opts.Busy == 0 {
		opts.Busy = defaultBusy
	}
	file := filepath.Join(dir, "store.db")
	exists, err := inspect(file, opts.MustExist)
	if err != nil {
		return nil, err
	}
	d := &db{dir: dir, file: file, database: file, now: opts.Now}
	readOnly := unwritable(dir, file)
	if !exists && !readOnly {
		const failed = "cannot make the store: %w; name another place with --store or EVALRUN_STORE"
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf(failed, err)
		}
		unlock, err := lockFolder(dir)
		if err != nil {
			return nil, fmt.Errorf(failed, err)
		}
		defer unlock()
		if err := errors.Join(ignoreInGit(dir), createPrivate(file)); err != nil {
			return nil, fmt.Errorf(failed, err)
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
		return nil, errors.Join(d.Describe(err), d.removeCopy())
	}
	for i, path := range []string{dir, file} {
		if d.place[i], err = os.Stat(path); err != nil {
			return nil, errors.Join(err, d.closeDatabases(), d.removeCopy())
		}
	}
	s := rules.New(d, opts)
	if d.wake, err = wake.Listen(files.Store(dir).Wake(), s.Received); err != nil && !d.readOnly() {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
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
