package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// lasting is an agent that outlives its segments.
type lasting struct{ closed *atomic.Int64 }

func (lasting) Run(context.Context, agent.Segment) (agent.Outcome, error) {
	return agent.Outcome{Output: json.RawMessage(`{}`)}, nil
}

func (l lasting) Close() error { l.closed.Add(1); return nil }

// An agent is closed when its run is let go of for another, or when the work ends.
func TestAgentsAreClosedWithTheirRuns(t *testing.T) {
	var made, closed, closedBefore atomic.Int64
	agent.Register(agent.Type{Name: "lasting", New: func(agent.Entry, agent.Options) agent.Agent {
		made.Add(1)
		closedBefore.Store(closed.Load())
		return lasting{&closed}
	}})
	dir := t.TempDir()
	s := openIn(t, filepath.Join(dir, "store"))
	p := &poison{t, dir, s}
	const runs = cachedRuns + 3
	for i := range runs {
		p.run(fmt.Sprint("r", i), 1, "")
	}
	r := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv})
	load := r.runs.load
	r.runs.load = func(ctx context.Context, runID string) (*rollout.Run, error) {
		run, err := load(ctx, runID)
		run.Plan.Agents[0].Type = "lasting"
		return run, err
	}
	if err := r.Run(t.Context(), UntilIdle); err != nil {
		t.Fatal(err)
	}
	if made.Load() != runs || closed.Load() != runs || closedBefore.Load() == 0 {
		t.Errorf("of %d agents %d were closed, %d of them before the last was made",
			made.Load(), closed.Load(), closedBefore.Load())
	}
}

// The eval set's folder is looked for where it was relative to the store, then relative to the
// command's folder, then beside the store.
func TestFindBaseDir(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"project/sets", "project/.evalrun", "elsewhere/sets", "unpacked/.evalrun"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	plan := plans.Plan{BaseDir: "../sets", WorkDir: "sets"}
	for _, test := range []struct{ name, store, workDir, want string }{
		{"in its place", "project/.evalrun", "elsewhere", "project/sets"},
		{"the store was moved, the command runs in a checkout", "unpacked/.evalrun", "elsewhere", "elsewhere/sets"},
		{"the store was moved and nothing else is there", "unpacked/.evalrun", "unpacked", "unpacked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := sqlite.Open(filepath.Join(dir, test.store), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			r := New(Options{Store: s, WorkDir: filepath.Join(dir, test.workDir)})
			if got, err := r.runs.openBaseDir(t.Context(), "r", plan); err != nil || got != filepath.Join(dir, test.want) {
				t.Errorf("got %s, %v, expected %s", got, err, filepath.Join(dir, test.want))
			}
		})
	}
}
