package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
)

// R5. An executor says at once, and once, that a results document cannot be written. When it can be, nothing is left of the error.
func TestDocumentThatCannotBeWrittenIsSaidAtOnce(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(filepath.Join(dir, "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, id := range []string{"a", "b"} {
		if _, err := s.CreateRun(t.Context(), store.Plan{RunID: id, Data: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		// In the place of the document there is a folder that is not empty.
		if err := os.MkdirAll(filepath.Join(workspace.RunDir(s.Dir(), id), "results.json", "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var stderr bytes.Buffer
	d := &documents{output: &output{store: s, stderr: &stderr}, changed: map[string]bool{}, errs: map[string]error{}, closed: true}
	for range 2 {
		d.note(store.Event{RunID: "a"})
		d.note(store.Event{RunID: "b"})
		d.save()
	}
	if said := stderr.String(); strings.Count(said, "could not be written") != 2 {
		t.Errorf("said %s", said)
	}
	if err := os.RemoveAll(filepath.Join(workspace.RunDir(s.Dir(), "a"), "results.json")); err != nil {
		t.Fatal(err)
	}
	d.note(store.Event{RunID: "a"})
	if err := d.close(); err == nil || strings.Count(err.Error(), "could not be written") != 1 || !strings.Contains(err.Error(), filepath.Join("runs", "b")) {
		t.Errorf("at the end: %v", err)
	}
}

// Given an executor that was told of a run which another process has removed since: then it has no document to write, and that is no error.
func TestDocumentOfARemovedRunIsNotWritten(t *testing.T) {
	s, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	var stderr bytes.Buffer
	d := &documents{output: &output{store: s, stderr: &stderr}, changed: map[string]bool{}, errs: map[string]error{}, closed: true}
	d.output.redactRun = func(runID string) (*redact.Redactor, error) { // as the executor does
		plan, err := planOf(t.Context(), s, runID)
		return plan.Redactor(nil, os.LookupEnv), err
	}
	d.note(store.Event{RunID: "removed"})
	if err := d.close(); err != nil || stderr.Len() > 0 {
		t.Errorf("%v, said %q", err, stderr.String())
	}
	if _, err := os.Stat(workspace.RunDir(s.Dir(), "removed")); !os.IsNotExist(err) {
		t.Errorf("the folder of the removed run is there: %v", err)
	}
}
