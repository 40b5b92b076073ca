package sqlite

import (
	"strings"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"
)

// What an error of the database means is said with what to do about it, also where the code is an
// extended one.
func TestMeaning(t *testing.T) {
	for code, says := range map[int]string{
		sqlite3.SQLITE_FULL:           "the disk of the store %s is full",
		sqlite3.SQLITE_IOERR_SHMSIZE:  "the disk of the store %s is full",
		sqlite3.SQLITE_IOERR_READ:     "check its disk",
		sqlite3.SQLITE_BUSY_SNAPSHOT:  "is locked by another program",
		sqlite3.SQLITE_CORRUPT_VTAB:   "is damaged",
		sqlite3.SQLITE_CANTOPEN_ISDIR: "check the permissions",
		sqlite3.SQLITE_ERROR:          "the store %s",
	} {
		if got := meaning(code); !strings.Contains(got, says) {
			t.Errorf("%d: %q, expected %q", code, got, says)
		}
	}
}
