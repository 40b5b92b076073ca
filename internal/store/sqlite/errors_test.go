package sqlite

import (
	"errors"
	"strings"
	"testing"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
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

// An error that is not the caller's names the step at which it has come, and of what. What a caller
// decides on can still be told.
func TestErrorsNameTheStep(t *testing.T) {
	s := openInternal(t, t.TempDir())
	ctx := t.Context()
	if _, err := s.CreateRun(ctx, planOf("r")); err != nil {
		t.Fatal(err)
	}
	_, missing := s.BeginRescoring(ctx, store.NewRescoring{RunID: "none"})
	if !errors.Is(missing, store.ErrNotFound) || !strings.Contains(missing.Error(), "none") {
		t.Errorf("a run that is not there: %v", missing)
	}
	for _, damage := range []string{"UPDATE rollouts SET fault = 'no JSON'", "ALTER TABLE triggers RENAME TO elsewhere"} {
		if err := s.Write(ctx, "damage", func(t *rules.Tx) error { return t.Exec(damage) }); err != nil {
			t.Fatal(err)
		}
	}
	_, listed := s.ListRollouts(ctx, "r", 0, 1)
	_, claimed := s.Claim(ctx, "r", 1)
	read := s.Triggers(ctx, "r", true, func(store.Trigger) error { return nil })
	written := s.CheckTrigger(ctx, "t")
	for step, err := range map[string]error{"list the rollouts of run r: invalid character": listed, "read the triggers of run r: ": read,
		"ask at once for trigger t: ": written, "claim rollouts: ": claimed} {
		if err == nil || !strings.Contains(err.Error(), step) {
			t.Errorf("%v does not name the step %q", err, step)
		}
	}
	own := errors.New("the caller's")
	if err := s.Snapshot(ctx, "r", func(store.View) error { return own }); err != own { //nolint:errorlint // it is passed on as it is
		t.Errorf("what a caller's function returns has become %v", err)
	}
}
