package sqlite

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/testenv"
)

// ofVersion makes a store as an earlier evalrun left it.
func ofVersion(t *testing.T, version int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "store.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	queries := append([]string{}, migrations[:version]...)
	if version > 0 {
		queries = append(queries, "INSERT INTO meta VALUES ('storeId', 'kept')", fmt.Sprintf("PRAGMA application_id = %d", applicationID))
	}
	for _, q := range append(queries, fmt.Sprintf("PRAGMA user_version = %d", version)) {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestStoresOfEveryVersionAreMigrated(t *testing.T) {
	for version := range len(migrations) + 1 {
		if testenv.Short() && version%8 != len(migrations)%8 {
			continue // under the race detector each takes long
		}
		dir := ofVersion(t, version)
		s := openInternal(t, dir)
		if version > 0 && s.ID() != "kept" {
			t.Errorf("version %d: the id is %q", version, s.ID())
		}
		var now int
		if err := s.read.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&now); err != nil || now != len(migrations) {
			t.Errorf("version %d became %d: %v", version, now, err)
		}
		exercise(t, s)
	}
}

func TestMigrationThatFailsChangesNothing(t *testing.T) {
	dir := ofVersion(t, len(migrations))
	file := filepath.Join(dir, "store.db")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	good := migrations
	defer func() { migrations = good }()
	migrations = append(good[:len(good):len(good)], "CREATE TABLE more (x)", "CREATE TABLE more (x)")
	_, err = Open(dir, store.Options{})
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), fmt.Sprintf("schema %d", len(good)+2)) {
		t.Fatal(err)
	}
	after, err := os.ReadFile(file)
	if err != nil || sha256.Sum256(after) != sha256.Sum256(before) {
		t.Fatal("the file has changed: ", err)
	}
	migrations = good
	openInternal(t, dir)
}

func TestStoreWithoutAnIDIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := openInternal(t, dir)
	if err := s.Write(t.Context(), "try", func(tx *rules.Tx) error { return tx.Exec("DELETE FROM meta") }); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, store.Options{}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatal(err)
	}
}

// Requests that an older evalrun has sent are known at the provider by the item keys of their triggers.
func TestRequestsAtAProviderOutliveTheMigration(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := store.Plan{RunID: store.NewRunID(), Evaluations: []store.Evaluation{{ID: "e"}}, Rollouts: []store.PlannedRollout{{ID: uuid.NewString()}}}
	_, err = s.CreateRun(t.Context(), p)
	claims, err1 := s.Claim(t.Context(), p.RunID, 1)
	if err := errors.Join(err, err1); err != nil {
		t.Fatal(err)
	}
	_, err = s.CommitSegment(t.Context(), claims[0].Token, store.SegmentEnd{Outcome: store.OutcomeCompleted})
	_, err1 = s.WaitForScores(t.Context(), claims[0].Token, store.ScoreWait{Triggers: []store.NewTrigger{{InterruptID: "k", EvaluatorID: "e", Source: "openai-batch", ItemKey: "k",
		Request: &store.BatchRequest{Provider: "p", Model: "m", CustomID: "new", Body: []byte("{}"), Wait: time.Hour}}}})
	batches, err2 := s.ClaimBatches(t.Context(), p.RunID, 1)
	if err := errors.Join(err, err1, err2, s.Close()); err != nil || len(batches) != 1 {
		t.Fatal(batches, err)
	}
	const before = 14 // without custom ids
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"DROP TABLE workers", "DROP TABLE limits", "DROP INDEX rollouts_lanes", "DROP INDEX triggers_started", "ALTER TABLE runs DROP COLUMN priority", "ALTER TABLE rollouts DROP COLUMN tags", "DROP TABLE kept", "DROP TABLE kept_blocks", "DROP TABLE blocks", "DROP INDEX triggers_machine", "ALTER TABLE triggers DROP COLUMN local", "ALTER TABLE triggers DROP COLUMN machine", "ALTER TABLE triggers DROP COLUMN boot_id", "DROP INDEX judge_requests_custom", "ALTER TABLE judge_requests DROP COLUMN custom_id", "ALTER TABLE judge_requests DROP COLUMN merged", fmt.Sprintf("PRAGMA user_version = %d", before)} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	var ids []string
	if err := openInternal(t, dir).WaitingRequests(t.Context(), batches[0].ID, func(r store.WaitingRequest) error {
		ids = append(ids, r.CustomID)
		return nil
	}); err != nil || len(ids) != 1 || ids[0] != "k" {
		t.Error(ids, err)
	}
}
