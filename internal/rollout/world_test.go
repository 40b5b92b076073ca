package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/sources"
)

// world is a store with a run of one rollout, whose agent is a shell script. The script finds its
// input in $in and the world's folder in $WORLD.
type world struct {
	t     *testing.T
	dir   string
	store *sqlite.Store
	host  *Host
	runID string
	// secrets are the values of ${VAR}s.
	secrets map[string]string
	// jobsChanged counts how often the engine was told of triggers.
	jobsChanged int
}

const (
	suspendsOnce = `case $in in *'"resume":null'*) echo '{"__interrupt__": {"job": {"key": "k"}, "type": "WaitJob"}}'; exit 0;; esac; `
	completes    = `echo '{}'`
)

func newWorld(t *testing.T, script string, change func(*plans.Request)) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, dir: dir, secrets: map[string]string{}}
	w.store = w.open()
	set := &eval.Set{ID: "set", Name: "Set", Epochs: 1, Limits: eval.Limits{Suspensions: 100, OutputBytes: 1 << 20}}
	set.Evaluations = []eval.Evaluation{{ID: "e", Name: "E", Inputs: json.RawMessage(`{}`), Criteria: map[string]json.RawMessage{}}}
	entry := function.FromCommand([]string{"sh", "-ec", "in=$(cat)\n" + script})
	entry.Env = map[string]string{"WORLD": dir}
	req := plans.Request{Set: set, Agents: []agent.Entry{entry}, BaseDir: dir, WorkDir: dir}
	if change != nil {
		change(&req)
	}
	for _, def := range set.Evaluators {
		set.Evaluations[0].Criteria[def.ID] = json.RawMessage(`{}`)
	}
	plan, err := plans.New(req, w.store.Dir())
	w.check(err)
	_, err = w.store.CreateRun(t.Context(), plan)
	w.check(err)
	w.runID = plan.RunID
	w.host = &Host{
		Store: w.store, LoadRun: w.loadRun, JobsChanged: func() { w.jobsChanged++ }, Resolve: w.resolve,
		Lease: store.DefaultLease, Logger: slog.New(slog.DiscardHandler), Syncer: &durable.Syncer{Dir: w.store.Dir()},
	}
	return w
}

// open opens the store as another process would.
func (w *world) open() *sqlite.Store {
	w.t.Helper()
	s, err := sqlite.Open(filepath.Join(w.dir, ".evalrun"), store.Options{})
	w.check(err)
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) resolve(name string) (string, bool) {
	value, ok := w.secrets[name]
	return value, ok
}

func (w *world) loadRun(ctx context.Context, runID string) (*Run, error) {
	stored, err := w.store.Plan(ctx, runID)
	if err != nil {
		return nil, err
	}
	plan, err := plans.Read(stored)
	if err != nil {
		return nil, err
	}
	set := sources.New(nil, wait.Env{StoreDir: w.store.Dir(), Resolve: w.resolve, Now: time.Now})
	w.t.Cleanup(set.Close)
	return NewRun(plan, w.dir, w.dir, agent.Options{Resolve: w.resolve, Now: time.Now}, set, plan.Redactor(nil, w.resolve))
}

// freeSlot is a slot that is always free.
type freeSlot struct{}

func (freeSlot) Acquire(context.Context) error { return nil }
func (freeSlot) Release()                      {}

// claim claims the rollout.
func (w *world) claim() *Rollout {
	w.t.Helper()
	claims, err := w.store.Claim(w.t.Context(), w.runID, 1)
	w.check(err)
	if len(claims) != 1 {
		w.t.Fatal("the rollout cannot be claimed")
	}
	return New(w.host, claims[0], freeSlot{}, nil)
}

// run claims the rollout and takes it as far as it goes.
func (w *world) run() *Rollout {
	w.t.Helper()
	r := w.claim()
	w.check(r.Run(w.t.Context()))
	return r
}

// deliver answers what the script waits for.
func (w *world) deliver() {
	w.t.Helper()
	_, err := w.store.Deliver(w.t.Context(), store.Delivery{Source: wait.SourceExternal, ItemKey: "k", Status: store.StatusSuccessful})
	w.check(err)
}

// view is the rollout as it stands.
func (w *world) view() (out store.RolloutView) {
	w.t.Helper()
	w.check(w.store.Snapshot(w.t.Context(), w.runID, func(v store.View) error {
		return v.Rollouts(func(o store.RolloutView) error {
			out = o
			return nil
		})
	}))
	return out
}

// lines counts the lines of a file in the world's folder; 0 if there is none.
func (w *world) lines(name string) int {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	return strings.Count(string(data), "\n")
}

// noting is a command evaluator that notes each of its calls in the file of its name, in the eval
// set's folder.
func noting(name, script string) eval.Definition {
	config, err := json.Marshal(map[string]any{"command": []string{"sh", "-ec", "echo called >> " + name + "; " + script}})
	if err != nil {
		panic(err)
	}
	return eval.Definition{ID: name, Name: name, Type: "command", Weight: 1, Dir: ".", Config: config}
}
