package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// openIn opens the store of a folder until the test ends.
func openIn(t *testing.T, dir string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // its file may be gone
	return s
}

const waitsForKey = `case $in in *'"resume":null'*) echo '{"__interrupt__": {"job": {"key": "k"}, "type": "WaitJob"}}'; exit 0;; esac; echo '{}'`

// Given an executor that waits: when its store is moved, deleted or replaced by another one,
// then it ends and says so, and nothing is written where the store was.
func TestStoreThatIsNotInItsPlaceEndsTheExecutor(t *testing.T) {
	for name, change := range map[string]func(dir string) error{
		"moved":   func(dir string) error { return os.Rename(dir, dir+".moved") },
		"deleted": os.RemoveAll,
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".moved"), os.Rename(dir+".other", dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			s := openIn(t, dir)
			p := &poison{t, filepath.Dir(dir), s}
			p.run("r", 1, waitsForKey)
			if err := openIn(t, dir+".other").Close(); err != nil {
				t.Fatal(err)
			}
			before := filesIn(t, dir+".other")

			suspended := make(chan struct{})
			r := New(Options{Store: s, Concurrency: 1, WorkDir: p.dir, Resolve: os.LookupEnv, Events: func(e store.Event) {
				if e.Type == store.RolloutSuspended {
					close(suspended)
				}
			}})
			done := make(chan error, 1)
			go func() { done <- r.Run(t.Context(), UntilStopped) }()
			<-suspended
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			r.wakeUp()
			if err := <-done; !errors.Is(err, store.ErrMoved) || strings.Count(err.Error(), store.ErrMoved.Error()) != 1 || !store.IsBroken(err) {
				t.Errorf("the executor ended with %v", err)
			}
			if name == "replaced" {
				if after := filesIn(t, dir); after != before {
					t.Errorf("the other store has become\n%s", after)
				}
			} else if _, err := os.Lstat(dir); err == nil {
				t.Errorf("the store is there again:\n%s", filesIn(t, dir))
			}
		})
	}
}

// filesIn lists what is below a folder.
func filesIn(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		fmt.Fprintln(&out, strings.TrimPrefix(path, dir))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(out.String(), ".other", "")
}

// Given a suspended rollout whose workspace has gone: it is not resumed with an empty one.
func TestWorkspaceThatIsMissingIsAFault(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("r", 1, waitsForKey)
	run := func() {
		t.Helper()
		if err := New(Options{Store: s, RunID: "r", Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv}).Run(t.Context(), UntilIdle); err != nil {
			t.Fatal(err)
		}
	}
	run()
	if err := os.RemoveAll(filepath.Join(s.Dir(), "work")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Deliver(t.Context(), store.Delivery{Source: "external", ItemKey: "k", Status: store.StatusSuccessful}); err != nil {
		t.Fatal(err)
	}
	run()
	err := s.Snapshot(t.Context(), "r", func(v store.View) error {
		return v.Rollouts(func(o store.RolloutView) error {
			if o.State != eval.StateFaulted || o.Fault.Category != "workspace" || len(o.Segments) != 2 {
				t.Errorf("it is %s with %v after %d segments", o.State, o.Fault, len(o.Segments))
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// logBuffer is a log that can be waited for.
type logBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.written <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Given a run whose events cannot be written: an executor says so at once and once, goes on
// with the other runs, and its error has one for the run.
func TestEventsThatCannotBeWrittenAreSaidAtOnce(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	p.run("bad", 3, "echo '{}'")
	p.run("good", 3, "echo '{}'")
	if err := os.MkdirAll(files.Of(s).Run("bad").Events(), 0o700); err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{written: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	finished := make(chan struct{})
	r := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv, Logger: slog.New(slog.NewTextHandler(log, nil)), Events: func(e store.Event) {
		if e.Type == store.RunFinished {
			close(finished)
		}
	}})
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, UntilStopped) }()
	<-log.written
	<-finished
	r.Stop()
	err := <-done
	if n := strings.Count(log.String(), "the events of run bad"); n != 1 {
		t.Errorf("it was said %d times: %s", n, log)
	}
	if err == nil || strings.Count(err.Error(), "the events of run bad") != 1 || strings.Contains(err.Error(), "run good") || ctx.Err() != nil {
		t.Errorf("the executor ended with %v", err)
	}
}
