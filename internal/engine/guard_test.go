package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/snapshot"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// panickyAgent is an agent with a bug of ours.
type panickyAgent struct{}

func (panickyAgent) Run(context.Context, agent.Segment) (agent.Outcome, error) {
	var none *agent.Outcome
	return *none, nil
}

func (panickyAgent) Close() error { return nil }

func init() {
	agent.Register(agent.Type{Name: "panicky", New: func(agent.Entry, agent.Options) agent.Agent { return panickyAgent{} }})
}

// panickyEvaluator is an evaluator with one.
type panickyEvaluator struct{ eval.Evaluator }

func (panickyEvaluator) Evaluate(context.Context, eval.Subject) eval.Verdict { panic("planted") }

// poison is a store with runs in which something is bad.
type poison struct {
	t   *testing.T
	dir string
	s   *sqlite.Store
}

// run plans a run of n evaluations with a shell script as its agent.
func (p *poison) run(id string, n int, script string) string {
	p.t.Helper()
	return p.runScoredBy(id, n, script, eval.Definition{ID: "e", Name: "e", Type: "uipath-exact-match", Weight: 1, Config: json.RawMessage(`{"name":"e"}`)})
}

func (p *poison) runScoredBy(id string, n int, script string, evaluator eval.Definition) string {
	p.t.Helper()
	return p.runOf(id, n, script, func(req *plans.Request) { req.Set.Evaluators = []eval.Definition{evaluator} })
}

func (p *poison) runOf(id string, n int, script string, change func(*plans.Request)) string {
	p.t.Helper()
	set := &eval.Set{ID: id, Name: id, Epochs: 1, Limits: eval.Limits{Suspensions: 100, OutputBytes: 1 << 20}}
	for i := range n {
		set.Evaluations = append(set.Evaluations, eval.Evaluation{ID: fmt.Sprint("e", i), Name: fmt.Sprint("E", i), Inputs: json.RawMessage(`{}`),
			Criteria: map[string]json.RawMessage{"e": json.RawMessage(`{"expectedOutput":{}}`)}})
	}
	req := plans.Request{RunID: id, Set: set, Agents: []agent.Entry{function.FromCommand([]string{"sh", "-ec", "in=$(cat)\n" + script})},
		BaseDir: p.dir, WorkDir: p.dir}
	change(&req)
	plan, err := plans.New(req, p.s.Dir())
	if err == nil {
		_, err = p.s.CreateRun(p.t.Context(), plan)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

// damage changes something in the database behind the store's back.
func (p *poison) damage(query string) {
	p.t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(p.s.Dir(), "store.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		p.t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(p.t.Context(), query); err != nil {
		p.t.Fatal(err)
	}
}

const (
	suspends = `case $in in *'"resume":null'*) %s echo '{"__interrupt__": [{"id": "t", "value": {"resume_time": "2020-01-01T00:00:00Z"}}]}'; exit 0;; esac; echo '{}'`
	// As deep as a path can be long. A copy of that beside it is deeper.
	nested = `cd "$EVALRUN_WORKSPACE"; d=dddddddddd; while mkdir $d && cd $d; do :; done 2>/dev/null;`
)

// Given an executor that has a hundred good rollouts, and ten with which it cannot but fail:
// then it completes the hundred, the ten have a fault that says why, and it goes on.
func TestWhatIsBadHarmsOnlyItself(t *testing.T) {
	testenv.NeedSlow(t)
	dir := t.TempDir()
	s, err := sqlite.Open(filepath.Join(dir, ".evalrun"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	p := &poison{t, dir, s}
	bad := map[string]struct{ category, message string }{}
	expect := func(runID, category, message string) {
		bad[runID] = struct{ category, message string }{category, message}
	}
	p.run("good", 100, fmt.Sprintf(suspends, ""))

	expect(p.run("plan", 2, "echo '{}'"), "internal", "the plan of run plan is damaged")
	p.damage("UPDATE plans SET data = '{' WHERE run_id = 'plan'")

	expect(p.run("agent", 1, "echo '{}'"), "internal", `type "unheard-of" is not supported`)
	p.damage(`UPDATE plans SET data = replace(data, '"type":"function"', '"type":"unheard-of"') WHERE run_id = 'agent'`)

	expect(p.run("nested", 2, fmt.Sprintf(suspends, nested)), "unresumable", "file name too long")

	expect(p.run("evaluation", 1, "echo '{}'"), "internal", "unexpected end of JSON input")
	p.damage("UPDATE evaluations SET data = '{' WHERE run_id = 'evaluation'")

	// What is kept for the second segment is no folder, so it can be neither restored nor copied.
	expect(p.run("copy", 1, fmt.Sprintf(suspends, `touch "$EVALRUN_WORKSPACE/../segment-2";`)), "internal", "not a directory")

	expect(p.run("trigger", 1, fmt.Sprintf(suspends, "")), "internal", "unexpected end of JSON input")
	p.damage(`CREATE TRIGGER damage AFTER INSERT ON triggers WHEN new.run_id = 'trigger' BEGIN UPDATE triggers SET spec = '{' WHERE id = new.id; END`)

	expect(p.run("panic", 1, "echo '{}'"), "internal", "panic: runtime error: invalid memory address or nil pointer dereference")
	expect(p.run("evaluator", 1, "echo '{}'"), "internal", "panic: planted")

	final := map[string]bool{}
	var r *Runner
	r = New(Options{Store: s, Concurrency: 4, WorkDir: dir, Resolve: os.LookupEnv, Events: func(e store.Event) {
		if e.Type == store.RunFinished {
			final[e.RunID] = true
		}
		if len(final) == len(bad)+1 {
			r.Stop()
		}
	}})
	r.guard.pause = 10 * time.Millisecond
	load := r.runs.load
	r.runs.load = func(ctx context.Context, runID string) (*rollout.Run, error) {
		run, err := load(ctx, runID)
		switch runID {
		case "panic":
			run.Plan.Agents[0].Type = "panicky"
		case "evaluator":
			run.Evaluators[0] = panickyEvaluator{}
		}
		return run, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := r.Run(ctx, UntilStopped); err != nil {
		t.Errorf("the executor ended: %v", err)
	}
	if ctx.Err() != nil {
		t.Errorf("only %v became final", final)
	}

	run, err := s.Run(t.Context(), "good")
	if err != nil || run.Counts.Completed != 100 {
		t.Errorf("of the good rollouts %+v, %v", run.Counts, err)
	}
	faulted := 0
	for runID, want := range bad {
		err := s.Snapshot(t.Context(), runID, func(v store.View) error {
			return v.Rollouts(func(o store.RolloutView) error {
				if o.State != eval.StateFaulted || string(o.Fault.Category) != want.category || !strings.Contains(o.Fault.Message, want.message) {
					t.Errorf("%s is %s with %v, want %s: %s", runID, o.State, o.Fault, want.category, want.message)
					return nil
				}
				faulted++
				if want.category != "internal" {
					return nil
				}
				log, err := os.ReadFile(files.Of(s).Run(runID).Rollout(o.ID).InternalLog())
				if err != nil || strings.Count(string(log), "attempt ") != internalAttempts || !strings.Contains(string(log), want.message) {
					t.Errorf("%s: %s says %q, %v", runID, files.InternalLog, log, err)
				}
				if strings.HasPrefix(want.message, "panic") && strings.Count(string(log), "[running]") != internalAttempts {
					t.Errorf("%s: the stacks are not in %q", runID, log)
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	}
	if faulted != 10 {
		t.Errorf("%d rollouts faulted, expected 10", faulted)
	}
}

// Given processes of which each ends after it has failed once with a rollout: then all of them
// together try it as often as one would.
func TestFailuresAreCountedOverAllProcesses(t *testing.T) {
	dir := t.TempDir()
	p := &poison{t, dir, openIn(t, filepath.Join(dir, "store"))}
	p.run("segment", 1, "echo '{}'")
	p.damage("UPDATE plans SET data = '{' WHERE run_id = 'segment'")
	p.run("evaluator", 1, "echo '{}'")
	for range internalAttempts {
		s := openIn(t, p.s.Dir())
		r := New(Options{Store: s, Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv})
		r.guard.pause = time.Hour
		load := r.runs.load
		r.runs.load = func(ctx context.Context, runID string) (*rollout.Run, error) {
			run, err := load(ctx, runID)
			if err == nil {
				run.Evaluators[0] = panickyEvaluator{}
			}
			return run, err
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx, UntilStopped) }()
		for open := true; open; { // until both are final or wait for their next attempt
			b, err := s.Backlog(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			open = b.Runnable > 0 || b.Held > 0
		}
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		p.damage("UPDATE rollouts SET runnable_at = 1 WHERE runnable_at IS NOT NULL") // the pause is over
	}
	for _, id := range []string{"segment", "evaluator"} {
		if run, err := p.s.Run(t.Context(), id); err != nil || run.Counts.Faulted != 1 {
			t.Errorf("%s: after %d attempts %+v, %v", id, internalAttempts, run.Counts, err)
		}
	}
}

// Given a run whose plan needs files that the store has lost, on a machine without the eval set's folder:
// its rollouts end with a fault that says so, and what to do.
func TestFilesOfAPlanThatAreLost(t *testing.T) {
	dir := t.TempDir()
	p := &poison{t, dir, openIn(t, filepath.Join(dir, "store"))}
	p.run("r", 1, "echo '{}'")
	r := New(Options{Store: p.s, RunID: "r", Concurrency: 1, WorkDir: dir, Resolve: os.LookupEnv})
	r.guard.pause = time.Millisecond
	r.runs.load = func(context.Context, string) (*rollout.Run, error) {
		return nil, fmt.Errorf("the files of the eval set's folder: %w: block ab is missing", snapshot.ErrLost)
	}
	if err := r.Run(t.Context(), UntilIdle); err != nil {
		t.Fatal(err)
	}
	err := p.s.Snapshot(t.Context(), "r", func(v store.View) error {
		return v.Rollouts(func(o store.RolloutView) error {
			if o.State != eval.StateFaulted || o.Fault.Category != fault.Workspace ||
				!strings.Contains(o.Fault.Message, "block ab is missing; run where the eval set's folder is") {
				t.Errorf("%s with %+v", o.State, o.Fault)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
