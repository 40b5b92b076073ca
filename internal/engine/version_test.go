package engine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
)

// Given a run that a later version of the program has planned, beside one of this version: an
// executor leaves the former as it is, does the latter, and with --once ends.
func TestPlanOfALaterVersionIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("later", 2, "echo '{}'")
	p.damage(`UPDATE plans SET data = replace(data, '"planVersion":1,', '"planVersion":99,"set":7,') WHERE run_id = 'later'`)
	p.run("waits", 1, waitsForKey)
	if err := New(Options{Store: s, RunID: "waits", Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv}).Run(t.Context(), UntilIdle); err != nil {
		t.Fatal(err)
	}
	p.damage(`UPDATE plans SET data = replace(data, '"planVersion":1,', '"planVersion":99,') WHERE run_id = 'waits'`)
	p.damage(`UPDATE triggers SET source = 'timer', checked = 1, due_at = 1`)
	p.run("now", 1, "echo '{}'")
	if err := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv}).Run(t.Context(), UntilIdle); err != nil {
		t.Errorf("the executor ended with %v", err)
	}
	for id, want := range map[string]store.Counts{"later": {Total: 2, Pending: 2}, "waits": {Total: 1, Suspended: 1}, "now": {Total: 1, Completed: 1}} {
		if run, err := s.Run(t.Context(), id); err != nil || run.Counts != want {
			t.Errorf("%s: %+v, %v, want %+v", id, run.Counts, err, want)
		}
	}
	plan, err := s.Plan(t.Context(), "later")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plans.Read(plan); !errors.Is(err, plans.ErrLater) {
		t.Errorf("reading the plan: %v", err)
	}
}
