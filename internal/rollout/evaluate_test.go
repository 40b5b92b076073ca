package rollout

import (
	"context"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/plans"
)

// The rule of [mayBeScored]. Given a rollout whose agent suspends and then completes: no evaluator
// sees it before it has completed, and then each does once.
func TestASuspendedRolloutIsNotScored(t *testing.T) {
	w := newWorld(t, suspendsOnce+completes, func(req *plans.Request) {
		req.Set.Evaluators = []eval.Definition{noting("first", `echo '{"score": 1}'`), noting("second", `echo '{"score": 0}'`)}
	})
	err := w.claim().Run(t.Context())
	if first, second := w.lines("first"), w.lines("second"); first+second > 0 {
		t.Errorf("the evaluators were called %d and %d times while the rollout was suspended", first, second)
	}
	w.check(err)
	if o := w.view(); o.State != eval.StateSuspended || o.Score != nil || len(o.Results) > 0 {
		t.Errorf("the suspended rollout is %s with score %v and results %v", o.State, o.Score, o.Results)
	}
	w.deliver()
	w.run()
	if o := w.view(); o.State != eval.StateCompleted || o.Score == nil || *o.Score != 0.5 || len(o.Results) != 2 {
		t.Errorf("the completed rollout is %s with score %v and results %v", o.State, o.Score, o.Results)
	}
	if first, second := w.lines("first"), w.lines("second"); first != 1 || second != 1 {
		t.Errorf("the evaluators were called %d and %d times, want once", first, second)
	}
}

// mayBeScored over every state: only one is the evaluators'.
func TestOnlyEvaluatingRolloutsAreScored(t *testing.T) {
	for _, state := range []eval.State{
		eval.StatePending, eval.StateRunning, eval.StateSuspended, eval.StateEvaluating, eval.StateScoring, eval.StateCompleted, eval.StateFaulted, eval.StateCancelled,
	} {
		if got, want := mayBeScored(state), state == eval.StateEvaluating; got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}

// Given a rollout of which one evaluator has a result when the process is ended: whoever claims it
// next runs only the other one, and not the agent.
func TestAnEvaluatorWithAResultIsNotRunAgain(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	w := newWorld(t, `echo x >> "$WORLD/agent"; `+completes, func(req *plans.Request) {
		req.Set.Evaluators = []eval.Definition{noting("first", `echo '{"score": 1}'`), noting("second", `echo '{"score": 1}'`)}
	})
	r := w.claim()
	load := w.host.LoadRun
	w.host.LoadRun = func(ctx context.Context, runID string) (*Run, error) {
		run, err := load(ctx, runID)
		if err == nil {
			run.Evaluators[1] = ending{end: end}
		}
		return run, err
	}
	w.check(r.Run(ctx))
	if o := w.view(); o.State != eval.StateEvaluating || len(o.Results) != 1 {
		t.Fatalf("it is %s with the results %v", o.State, o.Results)
	}
	w.host.LoadRun = load
	w.run()
	if o := w.view(); o.State != eval.StateCompleted || len(o.Results) != 2 {
		t.Errorf("it is %s with the results %v", o.State, o.Results)
	}
	if agent, first, second := w.lines("agent"), w.lines("first"), w.lines("second"); agent != 1 || first != 1 || second != 1 {
		t.Errorf("agent, first and second evaluator ran %d, %d and %d times, want once", agent, first, second)
	}
}

// ending is an evaluator during which the process is ended.
type ending struct {
	eval.Evaluator
	end func()
}

func (e ending) Evaluate(context.Context, eval.Subject) eval.Verdict {
	e.end()
	return eval.Verdict{}
}
