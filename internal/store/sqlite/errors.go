package sqlite

import (
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/evalrun/evalrun/internal/store/rules"
)

// databaseError is an error of the database with words for a person before it.
type databaseError struct {
	text string
	err  error
}

func (e *databaseError) Error() string { return e.text + ": " + e.err.Error() }
func (e *databaseError) Unwrap() error { return e.err }

// Broken implements the method that [store.IsBroken] asks for.
func (e *databaseError) Broken() bool {
	var own *sqlite.Error
	if !errors.As(e.err, &own) {
		return false
	}
	switch own.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		return false // the data to be written is wrong
	}
	return true
}

// Describe implements Database.
func (d *db) Describe(err error, step ...string) error {
	located := err
	if len(step) > 0 {
		located = fmt.Errorf("%s: %w", strings.Join(step, " "), err)
	}
	var e *sqlite.Error
	switch {
	case errors.As(err, &e) && !errors.As(err, new(*databaseError)):
		return &databaseError{fmt.Sprintf(meaning(e.Code()), d.file), located}
	case rules.OfRow(err):
		return located
	}
	return err
}

// meaning says what a result code means for a store. %s stands for the store's file.
func meaning(code int) string {
	const full = "the disk of the store %s is full; make room and go on"
	if code == sqlite3.SQLITE_IOERR_SHMSIZE { // the memory that processes share is a file, too
		return full
	}
	switch code & 0xff { // without the bits that extended result codes add
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return "the store %s is locked by another program; end that or try again"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return "the store %s is damaged; restore it from a copy"
	case sqlite3.SQLITE_FULL:
		return full
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return "the store %s cannot be written; check the permissions of the file and its folder"
	case sqlite3.SQLITE_IOERR:
		return "the store %s cannot be read or written; check its disk"
	}
	return "the store %s"
}
