package postgres_test

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite" // the driver named "sqlite"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/postgres"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// Given a row in every table of runs, with a value in every column, when the run goes from SQLite to
// PostgreSQL and back, then every value is as it was.
func TestRunsMoveBetweenStoresOfBothKinds(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	first := openSQLite(t, filepath.Join(dir, "first"))
	db, err := sql.Open("sqlite", filepath.Join(dir, "first", "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	tables := packedTables(t, db)
	for _, table := range tables {
		names, values := sampleRow(t, db, table)
		if _, err := db.ExecContext(ctx, "INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES (?"+
			strings.Repeat(", ?", len(names)-1)+")", values...); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
	}

	second, err := postgres.Open(at(t, dir), store.Options{Files: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Close() })
	see := func(*rules.Row) error { return nil }
	if err := second.Import(ctx, first, see); err != nil {
		t.Fatal(err)
	}
	if err := second.Import(ctx, first, see); !errors.Is(err, store.ErrRunExists) {
		t.Errorf("imported twice: %v", err)
	}
	third := openSQLite(t, filepath.Join(dir, "third"))
	if err := second.Export(ctx, []string{"r"}, third, see); err != nil {
		t.Fatal(err)
	}
	again, err := sql.Open("sqlite", filepath.Join(dir, "third", "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	for _, table := range tables {
		if diff := cmp.Diff(rowOf(t, db, table), rowOf(t, again, table)); diff != "" {
			t.Errorf("%s: %s", table, diff)
		}
	}
}

func openSQLite(t *testing.T, dir string) *rules.Store {
	t.Helper()
	s, err := sqlite.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func packedTables(t *testing.T, db *sql.DB) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		if rules.IsPacked(name) {
			names = append(names, name)
		}
	}
	if err := rows.Err(); err != nil || len(names) < 20 {
		t.Fatalf("%d tables, %v", len(names), err)
	}
	return names
}

// sampleRow is a row of run "r" with something in every column.
func sampleRow(t *testing.T, db *sql.DB, table string) (names []string, values []any) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT name, type FROM pragma_table_info(?)", table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	known := map[string]any{"run_id": "r", "rollout_id": "ro", "trigger_id": "t", "state": "suspended", "disposition": "accepted",
		"sum": fmt.Sprintf("%x", sha256.Sum256(nil)), "place": "", "machine": "", "owner": nil, "object": "", "parked_id": nil}
	for rows.Next() {
		var name, kind string
		if err := rows.Scan(&name, &kind); err != nil {
			t.Fatal(err)
		}
		value, ok := known[name]
		if !ok {
			value = map[string]any{"INTEGER": 1, "REAL": 0.25, "TEXT": "text of " + name, "BLOB": []byte{'{', 0, 255, '}'}}[kind]
		}
		names, values = append(names, name), append(values, value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return names, values
}

// rowOf is the only row of a table, without when somebody asked for a block, and where that is in an object.
func rowOf(t *testing.T, db *sql.DB, table string) map[string]any {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		t.Fatalf("%s has no row (%v)", table, err)
	}
	values := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil || rows.Next() || rows.Err() != nil {
		t.Fatalf("%s: %v, or it has another row", table, errors.Join(err, rows.Err()))
	}
	out := map[string]any{}
	for i, name := range columns {
		if !strings.Contains("asked_at starts_at stored", name) {
			out[name] = values[i]
		}
	}
	return out
}
