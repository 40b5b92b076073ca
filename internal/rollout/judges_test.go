package rollout

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
)

// newJudgedWorld is a world whose rollout a model judges, by a rule.
func newJudgedWorld(t *testing.T, rule func(fakejudge.Request) fakejudge.Reply) (*world, *fakejudge.Server) {
	t.Helper()
	server, err := fakejudge.Start(rule)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	w := newWorld(t, completes, func(req *plans.Request) {
		config := judge.Default()
		req.Judges = &config
		req.Set.Evaluators = []eval.Definition{{ID: "j/../j", Name: "J", Type: "llm-judge", Weight: 1, Config: json.RawMessage(`{"prompt": "{{output}}", "judges": [{"model": "gpt-5-mini"}], "samples": 2}`)}}
	})
	for name, value := range server.Environ() {
		w.secrets[name] = value
	}
	load := w.host.LoadRun
	w.host.LoadRun = func(ctx context.Context, runID string) (*Run, error) {
		run, err := load(ctx, runID)
		if err == nil {
			run.Judges = judge.New(judge.Options{Config: *run.Plan.Judges, CacheDir: files.Of(w.store).JudgeCache(), Resolve: w.resolve, Redact: run.Redact})
		}
		return run, err
	}
	return w, server
}

func verdict(score float64) fakejudge.Reply {
	return fakejudge.Reply{Arguments: map[string]any{"justification": "so", "score": score, "cannotBeJudged": false}}
}

// Given a rollout with a judge: it is judged, and what was asked and said is kept without the key.
func TestARolloutIsJudged(t *testing.T) {
	w, _ := newJudgedWorld(t, func(fakejudge.Request) fakejudge.Reply { return verdict(0.5) })
	w.run()
	o := w.view()
	if o.State != eval.StateCompleted || o.Score == nil || *o.Score != 0.5 || len(o.Results) != 1 {
		t.Fatalf("it is %s with the score %v and %d results", o.State, o.Score, len(o.Results))
	}
	spent, err := SpentOnJudges(t.Context(), w.store, w.runID)
	if want := (judge.Spent{Calls: 2, Tokens: 440}); err != nil || spent != want {
		t.Errorf("spent %+v, %v, want %+v", spent, err, want)
	}
	files, err := filepath.Glob(filepath.Join(w.store.Dir(), "runs", w.runID, "rollouts", o.ID, folderJudges, "*.json"))
	if err != nil || len(files) != 2 {
		t.Errorf("kept %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		w.check(err)
		if strings.Contains(string(data), fakejudge.Key) || !strings.Contains(string(data), "output-") {
			t.Errorf("%s: %s", file, data)
		}
	}
}

// Given an executor of all runs that lacks the key of a judge: it leaves the rollout to others
// before its agent is started, and also where the agent has finished already.
func TestARolloutWhoseJudgeHasNoKeyIsLeftToOthers(t *testing.T) {
	for name, begin := range map[string]func(*world){"before its agent": func(*world) {}, "after its agent": func(w *world) {
		r := w.claim()
		_, err := w.store.CommitSegment(t.Context(), r.held.claim.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{}`)})
		w.check(err)
		w.check(w.store.Release(t.Context(), r.held.claim.Token, 0))
	}} {
		t.Run(name, func(t *testing.T) {
			w, server := newJudgedWorld(t, func(fakejudge.Request) fakejudge.Reply { return verdict(0.5) })
			begin(w)
			delete(w.secrets, "OPENAI_API_KEY")
			w.host.AnyRun = true
			if r := w.run(); r.Postponed() == "" || len(server.Requests()) > 0 || len(w.view().Results) > 0 {
				t.Errorf("postponed %v after %d requests", r.Postponed(), len(server.Requests()))
			}
		})
	}
}

// Given a process that is ended while a judge thinks: nothing is said of the rollout, and whoever
// claims it next has it judged.
func TestAnEndedProcessLeavesNoVerdict(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var hang atomic.Bool
	hang.Store(true)
	w, _ := newJudgedWorld(t, func(fakejudge.Request) fakejudge.Reply {
		if hang.Load() {
			cancel()
			return fakejudge.Reply{Hang: true}
		}
		return verdict(1)
	})
	w.check(w.claim().Run(ctx))
	if o := w.view(); o.State != eval.StateEvaluating || len(o.Results) > 0 {
		t.Fatalf("it is %s with %d results", o.State, len(o.Results))
	}
	hang.Store(false)
	w.run()
	if o := w.view(); o.State != eval.StateCompleted || *o.Score != 1 {
		t.Errorf("it is %s with the score %v", o.State, o.Score)
	}
}
