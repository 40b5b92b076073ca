package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/internal/testenv"
)

// opened is a store, and the database below it.
type opened struct {
	*db
	*rules.Store
}

func openInternal(tb testing.TB, dir string) opened { return openWith(tb, dir, store.Options{}) }

func openWith(tb testing.TB, dir string, o store.Options) opened {
	tb.Helper()
	s, err := Open(dir, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return opened{s.Database.(*db), s}
}

func insertHolder(id string) func(*rules.Tx) error {
	return func(t *rules.Tx) error { return t.Exec("INSERT INTO holders VALUES (?, 1, '', '', '', 0)", id) }
}

func holders(tb testing.TB, s opened) (out []string) {
	tb.Helper()
	rows, err := s.read.QueryContext(tb.Context(), "SELECT holder_id FROM holders ORDER BY holder_id")
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			tb.Fatal(err)
		}
		out = append(out, id)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return out
}

func TestOperationThatFailsTakesNothingWithIt(t *testing.T) {
	s := openInternal(t, t.TempDir())
	failure := errors.New("failure")
	errs := s.Together(insertHolder("a"),
		func(t *rules.Tx) error { return errors.Join(insertHolder("lost")(t), failure) },
		insertHolder("b"),
		insertHolder("a"), // a constraint
		insertHolder("c"))
	if errs[0] != nil || !errors.Is(errs[1], failure) || errs[2] != nil || errs[3] == nil || errs[4] != nil {
		t.Fatal(errs)
	}
	if got := strings.Join(holders(t, s), ""); got != "abc" {
		t.Fatalf("got %s, want abc", got)
	}
}

func TestTransactionThatIsLostFailsEveryOperationOfItsGroup(t *testing.T) {
	s := openInternal(t, t.TempDir())
	// SQLite ends the whole transaction itself when the disk is full, for one.
	errs := s.Together(insertHolder("a"), func(t *rules.Tx) error {
		return errors.Join(t.Exec("ROLLBACK"), errors.New("disk full"))
	}, insertHolder("b"))
	for i, err := range errs {
		if err == nil {
			t.Errorf("operation %d was reported as durable", i)
		}
	}
	if got := holders(t, s); len(got) != 0 {
		t.Fatal(got)
	}
}

func TestCloseWhileWritesWait(t *testing.T) {
	for range 4 {
		s := openInternal(t, t.TempDir())
		var group sync.WaitGroup
		started := make(chan struct{}, 40)
		var mu sync.Mutex
		done := map[string]bool{}
		for i := range 40 {
			group.Go(func() {
				started <- struct{}{}
				id := fmt.Sprintf("h%02d", i)
				err := s.Write(context.Background(), "try", insertHolder(id))
				if err != nil && !errors.Is(err, store.ErrClosed) {
					t.Error(err)
				}
				mu.Lock()
				done[id] = err == nil
				mu.Unlock()
			})
		}
		for range 8 {
			<-started
		}
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		group.Wait()
		if err := s.Write(context.Background(), "try", insertHolder("late")); !errors.Is(err, store.ErrClosed) {
			t.Fatalf("after it was closed: %v", err)
		}
		again := openInternal(t, s.Dir())
		there := map[string]bool{}
		for _, id := range holders(t, again) {
			there[id] = true
		}
		for id, ok := range done {
			if ok != there[id] {
				t.Fatalf("%s was reported as written: %v, and is there: %v", id, ok, there[id])
			}
		}
	}
}

func TestIdleStoreHasFewGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	s := openInternal(t, t.TempDir())
	if _, err := s.Claim(t.Context(), "", 1); err != nil {
		t.Fatal(err)
	}
	if n := runtime.NumGoroutine() - before; n > 4 {
		t.Errorf("an idle store has %d goroutines", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// database/sql lets its goroutines end by themselves.
	testenv.NoMoreGoroutines(t, before)
}

func TestHoldersThatAreGoneAreForgotten(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	open := func(p store.Process) opened {
		return openWith(t, dir, store.Options{Process: &p, Now: func() time.Time { return now }})
	}
	dead, foreign := store.ThisProcess(), store.ThisProcess()
	dead.StartTime = "1"
	foreign.BootID = "another"
	s := open(store.ThisProcess())
	p := store.Plan{RunID: store.NewRunID(), Evaluations: []store.Evaluation{{ID: "e"}}}
	for i := range 10 {
		p.Rollouts = append(p.Rollouts, store.PlannedRollout{ID: store.RolloutID(p.RunID, "e", "a", i)})
	}
	if _, err := s.CreateRun(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	claimOnce := func(p store.Process, putBack bool) {
		s := open(p)
		claims, err := s.Claim(t.Context(), "", 1)
		if err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
		if putBack {
			if _, err := s.CommitSegment(t.Context(), claims[0].Token, store.SegmentEnd{Outcome: store.OutcomeInterrupted}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 5 {
		claimOnce(dead, true)
		claimOnce(foreign, true)
	}
	claimOnce(foreign, false) // still holds something
	if n := len(holders(t, s)); n != 6 {
		t.Errorf("%d holders are known, want those six of which nothing can be said", n)
	}
	now = now.Add(8 * 24 * time.Hour)
	s2 := open(store.ThisProcess())
	if _, err := s2.Claim(t.Context(), "", 20); err != nil { // takes everything over
		t.Fatal(err)
	}
	if n := len(holders(t, s)); n > 2 {
		t.Errorf("%d holders are still known after a week: %v", n, holders(t, s))
	}
}
