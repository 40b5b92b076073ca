package sqlite_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// filled makes a closed store with a run in every state, and returns its folder and the bytes of
// its file.
func filled(t *testing.T) (dir, runID string, data []byte) {
	t.Helper()
	dir = t.TempDir()
	s, err := sqlite.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := benchPlan(40)
	if _, err := s.CreateRun(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	claims, err := s.Claim(t.Context(), "", 30)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range claims {
		end := store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: []store.NewTrigger{{InterruptID: "i", Source: "inbox", ItemKey: fmt.Sprint("k", i), Spec: []byte(`{}`)}}}
		if i%3 == 0 {
			end = store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: []byte(`"` + strings.Repeat("x", 9000) + `"`)}
		}
		if _, err := s.CommitSegment(t.Context(), c.Token, end); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := s.RecordResult(t.Context(), c.Token, store.Result{EvaluatorID: "e", Data: []byte(`[]`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(filepath.Join(dir, "store.db")); err != nil {
		t.Fatal(err)
	}
	return dir, p.RunID, data
}

// contents are the files of a folder with their digests.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out[e.Name()] = "not compared" // a folder, or the shared memory of those who have the store open
		if e.Type().IsRegular() && !strings.HasSuffix(e.Name(), "-shm") {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = fmt.Sprintf("%x", sha256.Sum256(data))
		}
	}
	return out
}

// refuses checks that a store is refused with an error that names its file and says what is wrong,
// and is left as it was.
func refuses(t *testing.T, dir string, says ...string) {
	t.Helper()
	before := contents(t, dir)
	s, err := sqlite.Open(dir, store.Options{Busy: 10 * time.Millisecond})
	if err == nil {
		_ = s.Close()
		t.Fatal("it was opened")
	}
	for _, text := range append(says, filepath.Join(dir, "store.db")) {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not say %q", err, text)
		}
	}
	if diff := cmp.Diff(before, contents(t, dir)); diff != "" {
		t.Errorf("the files have changed:\n%s", diff)
	}
}

// write replaces a store's file in a folder of its own.
func write(t *testing.T, data []byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "store.db"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// database opens a store's file as another program would.
func database(t *testing.T, dir string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(dir, "store.db")}).EscapedPath())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := db.ExecContext(context.Background(), q); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCutFileIsRefused(t *testing.T) {
	_, _, data := filled(t)
	offsets := []int{1, 15, 16, 50, 99, 100, 107, 108, 511, 512, 4095, 4096, 4097, len(data) - 4096, len(data) - 1}
	r := rand.New(rand.NewPCG(1, 1))
	for range 40 {
		offsets = append(offsets, 1+r.IntN(len(data)-1))
	}
	for _, n := range offsets {
		refuses(t, write(t, data[:n]), "damaged", "restore it from a copy")
	}
}

func TestGarbageIsRefused(t *testing.T) {
	_, _, data := filled(t)
	for name, change := range map[string]func([]byte) []byte{
		"garbage header":  func(d []byte) []byte { copy(d, "something else!!"); return d },
		"text":            func([]byte) []byte { return []byte(strings.Repeat("not a database\n", 1000)) },
		"zeroes":          func(d []byte) []byte { clear(d); return d },
		"page size 0":     func(d []byte) []byte { d[16], d[17] = 0, 0; return d },
		"one more byte":   func(d []byte) []byte { return append(d, 1) },
		"zeroed schema":   func(d []byte) []byte { clear(d[100:4096]); return d },
		"garbage in root": func(d []byte) []byte { copy(d[100:], strings.Repeat("\xff", 200)); return d },
	} {
		t.Run(name, func(t *testing.T) { refuses(t, write(t, change(append([]byte{}, data...))), "damaged") })
	}
}

func TestGarbagePagesAreNoticedByNameWhenTheyAreRead(t *testing.T) {
	testenv.NeedSlow(t)
	_, runID, data := filled(t)
	noticed := 0
	for page := 1; page < len(data)/4096; page += 6 {
		damaged := append([]byte{}, data...)
		r := rand.New(rand.NewPCG(uint64(page), 1))
		for i := range 4096 {
			damaged[page*4096+i] = byte(r.Uint32())
		}
		dir := write(t, damaged)
		err := useAll(t, dir, runID)
		if err == nil {
			continue // an overflow page of a payload: nothing in it says that it is damaged
		}
		noticed++
		if !strings.Contains(err.Error(), filepath.Join(dir, "store.db")) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("page %d: the error %q does not name the file", page, err)
		}
	}
	if noticed < len(data)/4096/6/2 {
		t.Errorf("only %d damaged pages of %d were noticed", noticed, len(data)/4096/6)
	}
}

// useAll does everything that reads, and some of what writes; the first error of all.
func useAll(t *testing.T, dir, runID string) (err error) {
	t.Helper()
	s, err := sqlite.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	ctx := t.Context()
	note := func(e error) {
		if err == nil {
			err = e
		}
	}
	_, e := s.Runs(ctx)
	note(e)
	_, e = s.Plan(ctx, runID)
	note(e)
	note(s.Triggers(ctx, "", true, func(store.Trigger) error { return nil }))
	_, e = s.Events(ctx, runID, 0, 10_000)
	note(e)
	_, e = s.Backlog(ctx, runID)
	note(e)
	note(s.Snapshot(ctx, runID, func(v store.View) error {
		if err := v.Evaluations(func(store.Evaluation) error { return nil }); err != nil {
			return err
		}
		return v.Rollouts(func(store.RolloutView) error { return nil })
	}))
	_, e = s.Deliver(ctx, store.Delivery{Source: "inbox", ItemKey: "none", Status: store.StatusSuccessful})
	note(e)
	_, e = s.Claim(ctx, runID, 100)
	note(e)
	_, e = s.Cancel(ctx, runID)
	note(e)
	return err
}

func TestAnotherProgramsDatabaseIsRefused(t *testing.T) {
	for name, queries := range map[string][]string{
		"without an application id":                 {"CREATE TABLE t (x)"},
		"with many tables":                          manyTables(),
		"with an application id":                    {"PRAGMA application_id = 77"},
		"with an application id and tables":         {"PRAGMA application_id = 77", "CREATE TABLE t (x)"},
		"that counts its versions":                  {"PRAGMA user_version = 1", "CREATE TABLE t (x)"},
		"with a write-ahead log that was left over": {"PRAGMA journal_mode = WAL", "CREATE TABLE t (x)"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			db := database(t, dir)
			execute(t, db, queries...)
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			refuses(t, dir, "another program", "--store")
		})
	}
}

func manyTables() (out []string) {
	for i := range 200 {
		out = append(out, fmt.Sprintf("CREATE TABLE t%d (x, y, z)", i))
	}
	return out
}

func TestNewerStoreIsRefused(t *testing.T) {
	t.Run("closed", func(t *testing.T) {
		dir, _, _ := filled(t)
		db := database(t, dir)
		execute(t, db, "PRAGMA user_version = 99")
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, "newer evalrun", "update")
	})
	t.Run("in use, and its file behind the log", func(t *testing.T) {
		dir, _, _ := filled(t)
		execute(t, database(t, dir), "PRAGMA user_version = 99", "CREATE TABLE more (x)")
		refuses(t, dir, "newer evalrun", "update")
	})
	t.Run("another program's, and its file behind the log", func(t *testing.T) {
		dir := t.TempDir()
		execute(t, database(t, dir), "PRAGMA journal_mode = WAL", "CREATE TABLE t (x)")
		refuses(t, dir, "another program")
	})
}

func TestEmptyFile(t *testing.T) {
	t.Run("of a process that died at once is filled", func(t *testing.T) {
		open(t, write(t, nil))
	})
	t.Run("is no store where one must be", func(t *testing.T) {
		dir := write(t, nil)
		if _, err := sqlite.Open(dir, store.Options{MustExist: true}); err == nil || !strings.Contains(err.Error(), "no store in "+dir) {
			t.Fatal(err)
		}
	})
	t.Run("beside runs has lost them", func(t *testing.T) {
		dir := write(t, nil)
		if err := os.Mkdir(filepath.Join(dir, "runs"), 0o700); err != nil {
			t.Fatal(err)
		}
		refuses(t, dir, "damaged")
	})
}

func TestMissingStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	_, err := sqlite.Open(dir, store.Options{MustExist: true})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "--store") {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Fatal("its folder was made")
	}
}

func TestLockedStore(t *testing.T) {
	t.Run("by a program that writes: opening works, writing says so", func(t *testing.T) {
		dir, _, _ := filled(t)
		db := database(t, dir)
		s, err := sqlite.Open(dir, store.Options{Busy: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		execute(t, db, "BEGIN EXCLUSIVE")
		_, err = s.CreateRun(t.Context(), benchPlan(1))
		if err == nil || !strings.Contains(err.Error(), "locked by another program") || !strings.Contains(err.Error(), filepath.Join(dir, "store.db")) {
			t.Fatal(err)
		}
		if _, err := s.Runs(t.Context()); err != nil {
			t.Fatal(err)
		}
		execute(t, db, "ROLLBACK")
		if _, err := s.CreateRun(t.Context(), benchPlan(1)); err != nil {
			t.Fatal("after the lock is gone: ", err)
		}
	})
	t.Run("by a program that lets nobody in", func(t *testing.T) {
		dir, _, _ := filled(t)
		execute(t, database(t, dir), "PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "CREATE TABLE t (x)")
		refuses(t, dir, "locked by another program")
	})
}
