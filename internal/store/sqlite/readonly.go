package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// A store that cannot be written, such as a backup or one of another user, can still be read.
// SQLite itself reads no such database that has a write-ahead log, because readers share files
// beside it. So it is given a copy, in a folder of its own that goes when the store is closed.

// readOnlyError is the error of everything that would change a store that cannot be written.
type readOnlyError struct{ file string }

func (e *readOnlyError) Error() string {
	return fmt.Sprintf(
		"the store %s cannot be written, so it can only be read; check the permissions of the file and its folder", e.file)
}

// Broken implements the method that [store.IsBroken] asks for.
func (e *readOnlyError) Broken() bool { return true }

// unwritable reports whether there is a store that this process may not write.
func unwritable(dir, file string) bool {
	if _, err := os.Stat(file); err != nil {
		return false
	}
	for _, path := range []string{dir, file} {
		switch err := unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS); {
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EROFS), errors.Is(err, unix.EPERM):
			return true
		}
	}
	return false
}

// readOnly reports whether the store can only be read.
func (d *db) readOnly() bool { return d.database != d.file }

// Writable implements Database.
func (d *db) Writable() error {
	if d.readOnly() {
		return &readOnlyError{d.file}
	}
	return nil
}

// copyTries is how often a copy is begun again because the database was written meanwhile.
const copyTries = 10

// readCopy makes a copy of the database, which is opened instead of it. What another process adds
// to the write-ahead log meanwhile does not matter: a transaction is there or not. When the log is
// brought into the database itself the copy is begun again.
func (d *db) readCopy() error {
	dir, err := os.MkdirTemp("", "evalrun-read-")
	if err != nil {
		return err
	}
	d.database = filepath.Join(dir, filepath.Base(d.file))
	for range copyTries {
		before, err := changedAt(d.file)
		if err == nil {
			err = errors.Join(copyFile(d.file, d.database), copyFile(d.file+"-wal", d.database+"-wal"))
		}
		after, statErr := changedAt(d.file)
		if err = errors.Join(err, statErr); err != nil {
			return errors.Join(fmt.Errorf("cannot read the store: %w", err), d.removeCopy())
		}
		if after.Equal(before) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf(
		"the store %s cannot be written here, and another process writes it all the time; read it when that is over",
		d.file), d.removeCopy())
}

func (d *db) removeCopy() error {
	if !d.readOnly() {
		return nil
	}
	return os.RemoveAll(filepath.Dir(d.database))
}

func changedAt(file string) (time.Time, error) {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// copyFile replaces a file by a copy of another. If there is no other, it removes the file.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.Remove(to); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), in.Close())
}
