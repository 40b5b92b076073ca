package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// project is a folder with a store and agents that are shell scripts.
type project struct {
	t   *testing.T
	dir string
}

func newProject(t *testing.T) *project { return &project{t, t.TempDir()} }

// open opens the project's store, as a process of its own would.
func (p *project) open() *sqlite.Store {
	p.t.Helper()
	s, err := sqlite.Open(filepath.Join(p.dir, ".evalrun"), store.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			p.t.Error(err)
		}
	})
	return s
}

// plan stores a run of n evaluations whose agent is a shell script. The script finds the input in
// $in and the project's folder in $PROJECT.
func (p *project) plan(s *sqlite.Store, n int, script string, change func(*eval.Set)) string {
	p.t.Helper()
	set := &eval.Set{ID: "set", Name: "Set", Epochs: 1, Limits: eval.Limits{Suspensions: 100, OutputBytes: 1 << 20},
		Retry: eval.Retry{Backoff: time.Millisecond, MaxBackoff: time.Millisecond}}
	for i := range n {
		set.Evaluations = append(set.Evaluations, eval.Evaluation{ID: fmt.Sprint("e", i), Name: fmt.Sprint("Evaluation ", i),
			Inputs: json.RawMessage(fmt.Sprintf(`{"i":%d}`, i)), Criteria: map[string]json.RawMessage{}})
	}
	if change != nil {
		change(set)
	}
	entry := function.FromCommand([]string{"sh", "-ec", "in=$(cat)\n" + script})
	entry.Env = map[string]string{"PROJECT": p.dir}
	plan, err := plans.New(plans.Request{Set: set, Agents: []agent.Entry{entry}, BaseDir: p.dir, WorkDir: p.dir, KeepWorkspaces: true}, s.Dir())
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := s.CreateRun(p.t.Context(), plan); err != nil {
		p.t.Fatal(err)
	}
	return plan.RunID
}

func (p *project) runner(s *sqlite.Store, runID string) *engine.Runner {
	return engine.New(engine.Options{Store: s, RunID: runID, Concurrency: 4, WorkDir: p.dir, Resolve: os.LookupEnv})
}

// rollouts returns the rollouts of a run as they stand.
func (p *project) rollouts(s *sqlite.Store, runID string) (out []store.RolloutView) {
	p.t.Helper()
	err := s.Snapshot(p.t.Context(), runID, func(v store.View) error {
		return v.Rollouts(func(o store.RolloutView) error {
			out = append(out, o)
			return nil
		})
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

func (p *project) file(name string) string {
	p.t.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

func TestTwoProcessesShareARun(t *testing.T) {
	p := newProject(t)
	a, b := p.open(), p.open()
	runID := p.plan(a, 40, `echo "$in" >> "$PROJECT/ran"; echo '{}'`, nil)
	var both sync.WaitGroup
	for _, s := range []*sqlite.Store{a, b} {
		both.Go(func() {
			if err := p.runner(s, runID).Run(t.Context(), engine.UntilFinal); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if n := strings.Count(p.file("ran"), "\n"); n != 40 {
		t.Errorf("agents ran %d times, expected 40", n)
	}
	for _, o := range p.rollouts(a, runID) {
		if o.State != eval.StateCompleted || o.Attempt != 1 {
			t.Errorf("%s is %s after attempt %d", o.EvaluationID, o.State, o.Attempt)
		}
	}
	log := p.file(filepath.Join(".evalrun", "runs", runID, "events.jsonl"))
	run, err := a.Run(t.Context(), runID)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log, "\n"); int64(n) != run.Seq {
		t.Errorf("events.jsonl has %d lines, expected %d", n, run.Seq)
	}
}

func TestARepeatedSegmentFindsTheWorkspaceAsItWas(t *testing.T) {
	for _, test := range []struct{ name, script string }{
		{"the first segment", `
			cd "$EVALRUN_WORKSPACE"; echo spoiled >> file; mkdir -p sub
			if [ ! -e "$PROJECT/failed" ]; then touch "$PROJECT/failed"; exit 1; fi
			printf '{"lines": %d}' $(wc -l < file)`},
		{"a later segment", `
			cd "$EVALRUN_WORKSPACE"
			case $in in *'"resume":null'*)
				mkdir sub; ln -s nowhere sub/link; printf '' > file; echo '{"__interrupt__": [{"id": "t", "value": {"resume_time": "2020-01-01T00:00:00Z"}}]}'; exit 0;;
			esac
			[ -L sub/link ]; echo spoiled >> file; rm -r sub
			if [ ! -e "$PROJECT/failed" ]; then touch "$PROJECT/failed"; exit 1; fi
			printf '{"lines": %d}' $(wc -l < file)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProject(t)
			s := p.open()
			runID := p.plan(s, 1, test.script, func(set *eval.Set) { set.Retry.Max, set.Retry.On = 1, []string{"exit"} })
			if err := p.runner(s, runID).Run(t.Context(), engine.UntilFinal); err != nil {
				t.Fatal(err)
			}
			o := p.rollouts(s, runID)[0]
			last := o.Segments[len(o.Segments)-1]
			if o.State != eval.StateCompleted || last.Attempt != 2 || string(last.Output) != `{"lines":1}` && string(last.Output) != `{"lines": 1}` {
				t.Errorf("%s, attempt %d, output %s, fault %v; expected a second attempt that finds one line", o.State, last.Attempt, last.Output, o.Fault)
			}
			if left, err := os.ReadDir(files.Of(s).Work(o.ID)); err != nil || len(left) != 1 {
				t.Errorf("beside the workspace there is still something left: %v, %v", left, err)
			}
		})
	}
}

// With two repetitions an agent that always fails is
// started three times.
func TestRetries(t *testing.T) {
	p := newProject(t)
	s := p.open()
	runID := p.plan(s, 1, `echo x >> "$PROJECT/ran"; exit 3`, func(set *eval.Set) { set.Retry.Max, set.Retry.On = 2, []string{"exit"} })
	if err := p.runner(s, runID).Run(t.Context(), engine.UntilFinal); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(p.file("ran"), "\n"); n != 3 {
		t.Errorf("the agent ran %d times, want 3", n)
	}
}

func TestWhatIsNotRetriedIsFaulted(t *testing.T) {
	p := newProject(t)
	s := p.open()
	runID := p.plan(s, 1, "exit 3", func(set *eval.Set) { set.Retry.Max, set.Retry.On = 5, []string{"timeout"} })
	if err := p.runner(s, runID).Run(t.Context(), engine.UntilFinal); err != nil {
		t.Fatal(err)
	}
	if o := p.rollouts(s, runID)[0]; o.State != eval.StateFaulted || o.Attempt != 1 || o.Fault.Category != "exit" {
		t.Errorf("%s after attempt %d: %v", o.State, o.Attempt, o.Fault)
	}
}

func TestTheRolloutLimitCountsAllSegments(t *testing.T) {
	testenv.NeedSlow(t)
	p := newProject(t)
	s := p.open()
	runID := p.plan(s, 1, `case $in in *'"resume":null'*) sleep 0.2; echo '{"__interrupt__": [{"id": "t", "value": {"resume_time": "2020-01-01T00:00:00Z"}}]}';; *) sleep 60;; esac`,
		func(set *eval.Set) { set.Limits.Timeout = 2 * time.Second })
	if err := p.runner(s, runID).Run(t.Context(), engine.UntilFinal); err != nil {
		t.Fatal(err)
	}
	o := p.rollouts(s, runID)[0]
	if o.State != eval.StateFaulted || o.Fault.Category != "timeout" || o.Segment != 2 {
		t.Errorf("%s in segment %d: %v", o.State, o.Segment, o.Fault)
	}
	if c := o.Clocks; c.Wall() != o.FinishedAt.Sub(o.CreatedAt) {
		t.Errorf("the clocks %+v do not add up to %v", c, o.FinishedAt.Sub(o.CreatedAt))
	}
}

func TestAnotherProcessCancels(t *testing.T) {
	p := newProject(t)
	a, b := p.open(), p.open()
	runID := p.plan(a, 1, "exec sleep 3600", nil)
	done := make(chan error, 1)
	started := make(chan struct{})
	r := engine.New(engine.Options{Store: a, RunID: runID, Concurrency: 1, WorkDir: p.dir, Resolve: os.LookupEnv, Events: func(e store.Event) {
		if e.Type == store.RolloutStarted {
			close(started)
		}
	}})
	go func() { done <- r.Run(t.Context(), engine.UntilFinal) }()
	<-started
	if _, err := b.Cancel(t.Context(), runID); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if o := p.rollouts(a, runID)[0]; o.State != eval.StateCancelled {
		t.Errorf("the rollout is %s", o.State)
	}
}

func TestAnEndedRunnerLeavesWhatCanBeResumed(t *testing.T) {
	p := newProject(t)
	s := p.open()
	runID := p.plan(s, 3, `if [ ! -e "$PROJECT/again" ]; then exec sleep 3600; fi; echo '{}'`, nil)
	ctx, end := context.WithCancel(t.Context())
	r := engine.New(engine.Options{Store: s, RunID: runID, Concurrency: 3, WorkDir: p.dir, Resolve: os.LookupEnv, Events: func(e store.Event) {
		if e.Type == store.RolloutStarted {
			end() // whatever the agents have got to
		}
	}})
	if err := r.Run(ctx, engine.UntilFinal); err != nil {
		t.Fatal(err)
	}
	for _, o := range p.rollouts(s, runID) {
		if o.State != eval.StatePending {
			t.Errorf("%s is %s, expected pending", o.EvaluationID, o.State)
		}
	}
	if err := os.WriteFile(filepath.Join(p.dir, "again"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.runner(s, runID).Run(t.Context(), engine.UntilFinal); err != nil {
		t.Fatal(err)
	}
	for _, o := range p.rollouts(s, runID) {
		if o.State != eval.StateCompleted || o.Failures != 0 {
			t.Errorf("%s is %s with %d failures", o.EvaluationID, o.State, o.Failures)
		}
	}
}

// While agents are short the next rollouts are claimed in advance. When long ones come, those wait
// without its being their working time, and are given back.
func TestWaitingForAPlaceIsQueued(t *testing.T) {
	testenv.NeedSlow(t)
	p := newProject(t)
	s := p.open()
	runID := p.plan(s, 15, `case $in in *'"i":10}'*|*'"i":11}'*) sleep 1.2;; esac; echo '{}'`, nil)
	r := engine.New(engine.Options{Store: s, RunID: runID, Concurrency: 2, WorkDir: p.dir, Resolve: os.LookupEnv})
	if err := r.Run(t.Context(), engine.UntilFinal); err != nil {
		t.Fatal(err)
	}
	for i, o := range p.rollouts(s, runID) {
		if long := i == 10 || i == 11; o.State != eval.StateCompleted || !long && o.Clocks.Working > time.Second || o.Attempt != 1 {
			t.Errorf("%s is %s after attempt %d with the clocks %+v", o.EvaluationID, o.State, o.Attempt, o.Clocks)
		}
		if o.Clocks.Wall() != o.FinishedAt.Sub(o.CreatedAt) {
			t.Errorf("%s: the clocks %+v do not add up to %v", o.EvaluationID, o.Clocks, o.FinishedAt.Sub(o.CreatedAt))
		}
	}
}
