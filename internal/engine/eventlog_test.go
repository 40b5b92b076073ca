package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/testenv"
)

// Only the events of runs that were named are written; when it is not known which have changed,
// only those of runs that have.
func TestOnlyRunsThatHaveChangedAreWritten(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	for _, id := range []string{"a", "b", "c"} {
		p.run(id, 1, "echo '{}'")
	}
	r := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv})
	pump := r.events
	written := func(want string) {
		t.Helper()
		got := ""
		for _, id := range []string{"a", "b", "c"} {
			file := files.Of(s).Run(id).Events()
			if _, err := os.Stat(file); err == nil {
				got += id
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got != want {
			t.Errorf("the events of %q were written, want %q", got, want)
		}
	}
	for _, id := range []string{"a", "b", "c"} {
		pump.watch(id)
	}
	pump.kick("b")
	pump.flush(false)
	written("b")
	pump.kickAll()
	pump.flush(false)
	written("ac") // b was handed on
	pump.kickAll()
	pump.flush(false)
	written("")
	if _, err := s.Cancel(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	pump.kickAll()
	pump.flush(false)
	written("c")
	if _, watched := pump.seen["c"]; watched || len(pump.seen) != 2 {
		t.Errorf("of %v the final run is still watched", pump.seen)
	}
}

// Of many runs those that were used last are kept.
func TestRunsThatWereUsedLastAreKept(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	r := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv})
	loads := map[string]int{}
	load := r.runs.load
	r.runs.load = func(ctx context.Context, runID string) (*rollout.Run, error) {
		loads[runID]++
		return load(ctx, runID)
	}
	get := func(id string) {
		t.Helper()
		if run, err := r.runs.get(t.Context(), id); err != nil || run.Plan.Set.ID != id {
			t.Fatal(run, err)
		}
	}
	for i := range cachedRuns + 10 {
		id := fmt.Sprint("r", i)
		p.run(id, 1, "echo '{}'")
		get(id)
		get("r0")
	}
	// r0 was used all the time, r1 least recently.
	get(fmt.Sprint("r", cachedRuns+9))
	get("r1")
	if loads["r0"] != 1 || loads["r1"] != 2 || loads[fmt.Sprint("r", cachedRuns+9)] != 1 || len(r.runs.runs) != cachedRuns || len(r.runs.order) != cachedRuns {
		t.Errorf("they were loaded %v times", loads)
	}
}

// Y4: while one run is loaded others are got, and whoever wants the same one waits for it.
func TestALoadHoldsUpNoOtherRun(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("slow", 1, "echo '{}'")
	p.run("quick", 1, "echo '{}'")
	r := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv})
	load, began, goOn := r.runs.load, make(chan struct{}), make(chan struct{})
	r.runs.load = func(ctx context.Context, runID string) (*rollout.Run, error) {
		if runID == "slow" {
			began <- struct{}{} // a second load would wait here for ever
			<-goOn
		}
		return load(ctx, runID)
	}
	got := make(chan *rollout.Run)
	get := func() {
		run, err := r.runs.get(t.Context(), "slow")
		if err != nil {
			t.Error(err)
		}
		got <- run
	}
	go get()
	testenv.Receive(t, began)
	quick := make(chan error)
	go func() {
		_, err := r.runs.get(t.Context(), "quick")
		quick <- err
	}()
	if err := testenv.Receive(t, quick); err != nil {
		t.Error(err)
	}
	go get()
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := r.runs.get(ended, "slow"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	close(goOn)
	if one, other := testenv.Receive(t, got), testenv.Receive(t, got); one == nil || one != other {
		t.Errorf("got %p and %p", one, other)
	}
}

// Given an executor that follows a run: when another process removes that run, then nothing of it
// comes back, and it is not followed any more.
func TestRemovedRunIsNotWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("gone", 1, "echo '{}'")
	pump := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv}).events
	pump.watch("gone")
	pump.kick("gone")
	pump.flush(false)
	if _, err := s.Cancel(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), s, "gone"); err != nil {
		t.Fatal(err)
	}
	pump.kick("gone")
	pump.flush(false)
	if _, err := os.Stat(string(files.Of(s).Run("gone"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the removed run is there again: %v", err)
	}
	if len(pump.seen) != 0 || len(pump.errs) != 0 {
		t.Errorf("followed: %v, errors: %v", pump.seen, pump.errs)
	}
	if err := pump.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := pump.stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(string(files.Of(s).Run("gone"))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("at its end the folder of the removed run is there again: %v", err)
	}
}
