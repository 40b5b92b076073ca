package runner_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// Given one open store: then several runs, and an executor, can be worked on in one process at the
// same time, and each call sees its own events.
func TestRunsAndAnExecutorInOneProcess(t *testing.T) {
	testenv.NeedSlow(t)
	path := evalSet(false)
	t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(path)) })
	store, first := begin(path)
	t.Cleanup(func() { check(store.Close()) })
	runs := []string{first.RunID}
	for range 2 {
		set, err := runner.Load([]string{path}, runner.LoadOptions{Command: []string{os.Args[0], "agent"}})
		check(err)
		run, err := store.Create(t.Context(), set, runner.CreateOptions{})
		check(err)
		runs = append(runs, run.RunID)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var executor, work sync.WaitGroup
	executor.Go(func() {
		if err := store.Execute(ctx, runner.ExecuteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, id := range runs {
		work.Go(func() {
			result, err := store.Run(t.Context(), id, runner.RunOptions{Wait: true, Options: runner.Options{Events: func(e schemas.Event) {
				if e.RunID != id {
					t.Errorf("the run %s was told of %s", id, e.RunID)
				}
			}}})
			if err != nil || result.Verdict != runner.Finished {
				t.Errorf("%v, %v", result, err)
			}
		})
	}
	work.Wait()
	cancel()
	executor.Wait()
}

// A run that waits ends when its context does, or when it is told to drain, or after its time: it
// can be gone on with in each case.
func TestWhatEndsARun(t *testing.T) {
	testenv.NeedSlow(t)
	closed := make(chan struct{})
	close(closed)
	for name, c := range map[string]struct {
		options runner.RunOptions
		cancel  bool
		want    runner.Verdict
	}{
		"context": {runner.RunOptions{Wait: true}, true, runner.Interrupted},
		"drain":   {runner.RunOptions{Wait: true, Options: runner.Options{Drain: closed}}, false, runner.Interrupted},
		"timeout": {runner.RunOptions{Wait: true, WaitTimeout: time.Millisecond}, false, runner.Suspended},
	} {
		t.Run(name, func(t *testing.T) {
			path := evalSet(true)
			t.Cleanup(func() { _ = os.RemoveAll(filepath.Dir(path)) })
			store, run := begin(path)
			t.Cleanup(func() { check(store.Close()) })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.options.Events = func(e schemas.Event) {
				if c.cancel && e.Type == schemas.EventRolloutSuspended {
					cancel()
				}
			}
			result, err := store.Run(ctx, run.RunID, c.options)
			if err != nil || result.Verdict != c.want {
				t.Errorf("%v (%s), %v; expected %v", result.Verdict, result.Reason, err, c.want)
			}
			if _, err := os.Stat(store.DocumentPath(run.RunID)); err != nil {
				t.Error(err)
			}
		})
	}
}
