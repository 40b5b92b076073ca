package sqlite

import (
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
)

// ofTheStore are the tables whose rows belong to no run.
var ofTheStore = []string{"limits", "workers", "meta", "holders", "mcp_tasks", "mcp_sessions", "access_tokens"}

// X1: a table that is added must be packed, or be known to belong to no run.
func TestEveryTableIsPacked(t *testing.T) {
	s := openInternal(t, t.TempDir())
	rows, err := s.read.QueryContext(t.Context(), "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		packed := rules.IsPacked(name)
		if packed == slices.Contains(ofTheStore, name) {
			t.Errorf("the table %s: packed %t", name, packed)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func all(*rules.Row) error { return nil }

func planOf(runID string) store.Plan {
	return store.Plan{RunID: runID, Name: runID, EvaluationSetID: "set", EvaluationSetName: "Set", Data: []byte(`{}`),
		Evaluations: []store.Evaluation{{ID: "e", Data: []byte(`{}`)}}, Rollouts: []store.PlannedRollout{{ID: store.RolloutID(runID, "e", "a", 1), EvaluationName: "E", Agent: "a", Epoch: 1}}}
}

// X1: only the chosen runs are exported, with the id of their store; one that is there already is not
// imported; and one that a process works on is not exported.
func TestExportAndImport(t *testing.T) {
	ctx := t.Context()
	s := openInternal(t, filepath.Join(t.TempDir(), "a"))
	for _, id := range []string{"one", "two"} {
		if _, err := s.CreateRun(ctx, planOf(id)); err != nil {
			t.Fatal(err)
		}
	}
	out := t.TempDir()
	if err := s.Export(ctx, []string{"one"}, openInternal(t, out).Store, all); err != nil {
		t.Fatal(err)
	}
	exported := openInternal(t, out)
	runs, err := exported.Runs(ctx)
	if err != nil || len(runs) != 1 || runs[0].ID != "one" || exported.ID() != s.ID() {
		t.Fatalf("%+v of the store %s, %v", runs, exported.ID(), err)
	}
	if err := s.Import(ctx, exported.Store, all); !errors.Is(err, store.ErrRunExists) {
		t.Errorf("imported twice: %v", err)
	}
	other := openInternal(t, filepath.Join(t.TempDir(), "b"))
	if _, err := other.CreateRun(ctx, planOf("three")); err != nil {
		t.Fatal(err)
	}
	if err := other.Import(ctx, exported.Store, all); err != nil {
		t.Fatal(err)
	}
	var sent sql.NullInt64
	if err := other.read.QueryRowContext(ctx, "SELECT (SELECT count(*) FROM events WHERE run_id = 'one') - (SELECT seq FROM runs WHERE run_id = 'one') + (SELECT count(*) FROM notifications)").Scan(&sent); err != nil || sent.Int64 != 0 {
		t.Errorf("events were told or lost: %v, %v", sent, err)
	}
	if claims, err := other.Claim(ctx, "one", 1); err != nil || len(claims) != 1 {
		t.Errorf("%+v, %v", claims, err)
	}
	if err := other.Export(ctx, []string{"one"}, openInternal(t, t.TempDir()).Store, all); !errors.Is(err, store.ErrHeld) {
		t.Errorf("a run that is worked on was exported: %v", err)
	}
	if err := other.Export(ctx, []string{"three"}, openInternal(t, t.TempDir()).Store, all); err != nil {
		t.Error(err)
	}
}

// X1: packing neither waits for other writers of the store nor keeps them waiting.
func TestExportTakesNoLockOfTheStore(t *testing.T) {
	ctx := t.Context()
	s := openInternal(t, t.TempDir())
	if _, err := s.CreateRun(ctx, planOf("one")); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", s.dataSource(0)+"&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	writing, err := other.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Export(ctx, []string{"one"}, openInternal(t, t.TempDir()).Store, all), writing.Rollback()); err != nil {
		t.Error(err)
	}
}
