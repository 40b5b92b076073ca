package runner

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/store"
)

func openTest(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "store"), OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// closedDocuments are those of a store that are written when a test says so.
func closedDocuments(s *Store, tell func(error)) *documents {
	d := newDocuments(func(ctx context.Context, runID string) error {
		p, err := readPlanned(ctx, s.st, runID, Variables{})
		if err != nil {
			return err
		}
		return p.save(ctx)
	}, tell)
	d.closed = true
	return d
}

// An executor says at once, and once, that a results document cannot be written. When it can
// be, nothing is left of the error.
func TestDocumentThatCannotBeWrittenIsSaidAtOnce(t *testing.T) {
	s := openTest(t)
	for _, id := range []string{"a", "b"} {
		if _, err := s.st.CreateRun(t.Context(), store.Plan{RunID: id, Data: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		// In the place of the document there is a folder that is not empty.
		if err := os.MkdirAll(filepath.Join(string(files.Of(s).Run(id)), "results.json", "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	d := closedDocuments(s, func(err error) { said = append(said, err.Error()) })
	for range 2 {
		d.changedRun("a")
		d.changedRun("b")
		d.saveChanged()
	}
	if strings.Count(strings.Join(said, "\n"), "could not be written") != 2 {
		t.Errorf("said %s", said)
	}
	if err := os.RemoveAll(files.Of(s).Run("a").Results()); err != nil {
		t.Fatal(err)
	}
	d.changedRun("a")
	if err := d.close(); err == nil || strings.Count(err.Error(), "could not be written") != 1 || !strings.Contains(err.Error(), filepath.Join("runs", "b")) {
		t.Errorf("at the end: %v", err)
	}
}

// Given an executor that was told about a run which another process has removed since: then it has
// no document to write, and that is no error.
func TestDocumentOfARemovedRunIsNotWritten(t *testing.T) {
	s := openTest(t)
	var said []error
	d := closedDocuments(s, func(err error) { said = append(said, err) })
	d.changedRun("removed")
	if err := d.close(); err != nil || len(said) > 0 {
		t.Errorf("%v, said %v", err, said)
	}
	if _, err := os.Stat(string(files.Of(s).Run("removed"))); !os.IsNotExist(err) {
		t.Errorf("the folder of the removed run is there: %v", err)
	}
}

// Whoever ends an executor before it has begun does nothing wrong.
func TestExecuteEndsWithItsContext(t *testing.T) {
	s := openTest(t)
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if err := s.Execute(ctx, ExecuteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, once := range []bool{false, true} {
		if err := s.Execute(ended, ExecuteOptions{Once: once}); err != nil {
			t.Error(once, err)
		}
	}
}
