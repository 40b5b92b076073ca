package engine

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// Invariant: a waiter is a row. Given many suspended rollouts: an engine that watches them has as
// many goroutines as one that watches few.
func TestAWaiterIsARow(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("few", 1, waitsForKey)
	p.run("many", 60, waitsForKey)
	few, many := p.goroutines("few"), p.goroutines("many")
	if many > few+10 {
		t.Errorf("60 suspended rollouts cost %d goroutines, one costs %d", many, few)
	}
	for id, want := range map[string]int{"few": 1, "many": 60} {
		if run, err := s.Run(t.Context(), id); err != nil || run.Counts.Suspended != want {
			t.Errorf("%s: %+v, %v", id, run.Counts, err)
		}
	}
}

// goroutines is how many goroutines there are while an engine watches a run, without those that come
// and go with what it asks the store.
func (p *poison) goroutines(runID string) int {
	t, s, dir := p.t, p.s, p.dir
	t.Helper()
	if err := New(Options{Store: s, RunID: runID, Concurrency: 4, WorkDir: dir, Resolve: os.LookupEnv}).Run(t.Context(), UntilIdle); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan struct{})
	n := math.MaxInt
	r := New(Options{Store: s, RunID: runID, Concurrency: 4, WorkDir: dir, Resolve: os.LookupEnv})
	go func() {
		defer close(waiting)
		if err := r.Run(t.Context(), UntilStopped); err != nil {
			t.Error(err)
		}
	}()
	for i := range 100 {
		if err := r.CheckNow(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i >= 50 { // it has looked for work
			n = min(n, runtime.NumGoroutine())
		}
	}
	r.Stop()
	<-waiting
	return n
}

// Given a runner that has nothing to do: it looks at the store again when something is due, when the
// store has changed, or when the store is not in its place.
func TestAnIdleRunnerRests(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	r := New(Options{Store: s, WorkDir: dir, Resolve: os.LookupEnv, Now: func() time.Time { return now }})
	changed := s.Changed("")
	for due, want := range map[time.Time]bool{{}: true, now.Add(time.Second): true, now: false} {
		if got := r.rests(action{due: due, changed: changed}); got != want {
			t.Errorf("due at %v: rests is %v", due, got)
		}
	}
	(&poison{t, dir, s}).run("r", 1, waitsForKey)
	select {
	case <-changed: // a moment after the commit has been answered
	case <-time.After(time.Minute):
	}
	if r.rests(action{changed: changed}) {
		t.Error("it rests though a run was made")
	}
	if err := os.Rename(filepath.Join(dir, "store"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if r.rests(action{changed: s.Changed("")}) {
		t.Error("it rests though the store was moved")
	}
}

// Given a runner that waits for nothing but a result that its source will forget: it does not rest if
// it is to end once that is forgotten, of which the store says nothing.
func TestARunnerThatStaysDoesNotRest(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("r", 1, waitsForKey)
	o := Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv, Stay: true}
	if err := New(o).Run(t.Context(), UntilIdle); err != nil {
		t.Fatal(err)
	}
	expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	p.damage(`UPDATE triggers SET spec = json_set(spec, '$.expiresAt', '` + expires + `')`)
	r := New(o)
	for until, rests := range map[Until]bool{UntilStopped: true, UntilIdle: false} {
		if next, err := r.nextAction(t.Context(), until); err != nil || next.done || r.rests(next) != rests {
			t.Errorf("until %d: %+v, %v", until, next, err)
		}
	}
}

// Given a run of which nothing can be done here: Run returns when it is idle, whether rollouts wait
// for somebody or were put back for another process.
func TestAnIdleRunnerReturns(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("waits", 2, waitsForKey)
	p.run("elsewhere", 2, "echo '{}'")
	p.damage(`UPDATE plans SET data = replace(data, '"planVersion":1,', '"planVersion":99,') WHERE run_id = 'elsewhere'`)
	if err := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv}).Run(t.Context(), UntilIdle); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]store.Counts{"waits": {Total: 2, Suspended: 2}, "elsewhere": {Total: 2, Pending: 2}} {
		if run, err := s.Run(t.Context(), id); err != nil || run.Counts != want {
			t.Errorf("%s: %+v, %v, want %+v", id, run.Counts, err, want)
		}
	}
}

// silentStore is a store whose wake-ups are lost. It tells its test when the runner looks at it, and when
// that goes on resting.
type silentStore struct {
	*sqlite.Store
	changed, looked, rests chan struct{}
}

func (s silentStore) Wake() <-chan store.WakeUp { return nil }

func (s silentStore) Changed(string) <-chan struct{} { return s.changed }

func (s silentStore) Backlog(ctx context.Context, runID string) (store.Backlog, error) {
	s.looked <- struct{}{}
	return s.Store.Backlog(ctx, runID)
}

func (s silentStore) InPlace() error {
	select {
	case s.rests <- struct{}{}:
	default:
	}
	return s.Store.InPlace()
}

// Given a runner that rests, to which no wake-up comes: it looks at the store as soon as that has found
// out by itself that it was changed, and not when the rest is over.
func TestARestEndsWhenTheStoreHasChanged(t *testing.T) {
	dir := t.TempDir()
	s := silentStore{openIn(t, filepath.Join(dir, "store")), make(chan struct{}), make(chan struct{}, 100), make(chan struct{})}
	r := New(Options{Store: s, WorkDir: dir, Resolve: os.LookupEnv})
	ended := make(chan error)
	go func() { ended <- r.Run(t.Context(), UntilStopped) }()
	<-s.looked
	<-s.rests
	s.changed <- struct{}{}
	select {
	case <-s.looked:
	case <-time.After(rest * 9 / 10):
		t.Error("it rests on")
	}
	r.Stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
