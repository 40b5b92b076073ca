package rollout

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
)

// asking is an evaluator that waits for an answer, which is then its score.
func asking(name string) eval.Definition {
	return noting(name, `in=$(cat); case $in in
		*'"resume"'*) echo "{\"score\": $(echo "$in" | sed 's/.*"resume":{"placeholder-id":\([0-9.]*\)}.*/\1/')}";;
		*) echo '{"__interrupt__": "how good is it?"}';; esac`)
}

// answer delivers something for what an evaluator waits for.
func (w *world) answer(evaluator string, status store.Status, payload string) {
	w.t.Helper()
	for _, t := range w.view().Triggers {
		if t.EvaluatorID == evaluator && t.State.IsOpen() {
			d := store.Delivery{TriggerID: t.ID, Status: status, Payload: json.RawMessage(payload)}
			if status != store.StatusSuccessful {
				d.Fault = fault.New(fault.JudgeExpired, "nobody has answered")
			}
			_, err := w.store.Deliver(w.t.Context(), d)
			w.check(err)
		}
	}
}

// resultOf is what an evaluator said, nil if it has said nothing.
func (w *world) resultOf(evaluator string) *eval.Result {
	w.t.Helper()
	for _, r := range w.view().Results {
		var results []eval.Result
		w.check(json.Unmarshal(r.Data, &results))
		if r.EvaluatorID == evaluator {
			return &results[0]
		}
	}
	return nil
}

// The rule of the state scoring: no average, no second segment, and no evaluator with a result runs
// again.
func TestARolloutWaitsForItsEvaluators(t *testing.T) {
	w := newWorld(t, `echo x >> "$WORLD/agent"; `+completes, func(req *plans.Request) {
		req.Set.Evaluators = []eval.Definition{asking("first"), noting("other", `echo '{"score": 1}'`), asking("second"),
			{ID: "exact", Name: "exact", Type: "uipath-exact-match", Weight: 1, Config: json.RawMessage(`{"defaultEvaluationCriteria":{"expectedOutput":{}}}`)}}
	})
	if r := w.run(); r.State() != eval.StateScoring {
		t.Fatalf("it is %s", r.State())
	}
	o := w.view()
	if o.State != eval.StateScoring || o.Score != nil || len(o.Triggers) != 2 || w.jobsChanged != 1 {
		t.Fatalf("it is %s with score %v, triggers %v; the engine was told %d times", o.State, o.Score, o.Triggers, w.jobsChanged)
	}
	if w.resultOf("other") == nil || w.resultOf("exact") == nil || len(o.Results) != 2 {
		t.Errorf("the others have said %v", o.Results)
	}
	w.answer("second", store.StatusSuccessful, `0.25`)
	w.run()
	if o := w.view(); o.State != eval.StateScoring || o.Score != nil || len(o.Results) != 3 {
		t.Fatalf("it is %s with score %v and %d results", o.State, o.Score, len(o.Results))
	}
	w.answer("first", store.StatusSuccessful, `0.75`)
	w.run()
	o = w.view()
	if o.State != eval.StateCompleted || o.Score == nil || *o.Score != 0.75 || len(o.Segments) != 1 {
		t.Errorf("it is %s with score %v and %d segments", o.State, o.Score, len(o.Segments))
	}
	for name, want := range map[string]int{"agent": 1, "other": 1, "first": 2, "second": 2} {
		if got := w.lines(name); got != want {
			t.Errorf("%s ran %d times, want %d", name, got, want)
		}
	}
}

// What does not come is the evaluator's failure, which is missing data and never the fault of the
// rollout; the evaluator is not called for it.
func TestAnEvaluatorWaitsInVain(t *testing.T) {
	for _, status := range []store.Status{store.StatusFaulted, store.StatusExpired, store.StatusCancelled} {
		w := newWorld(t, completes, func(req *plans.Request) { req.Set.Evaluators = []eval.Definition{asking("first")} })
		w.run()
		w.answer("first", status, ``)
		w.run()
		o := w.view()
		if r := w.resultOf("first"); o.State != eval.StateCompleted || o.Score != nil || o.Fault != nil || r == nil || r.Score != nil || !strings.Contains(r.Error, "nobody has answered") || r.ErrorCategory != eval.JudgeExpired {
			t.Errorf("%s: it is %s with score %v, fault %v, result %+v", status, o.State, o.Score, o.Fault, r)
		}
		if n := w.lines("first"); n != 1 {
			t.Errorf("%s: it ran %d times", status, n)
		}
	}
}

// An evaluator that says nonsense instead of what it waits for, and one that waits for ever, have
// failed.
func TestAnEvaluatorThatCannotWait(t *testing.T) {
	for _, v := range []struct{ name, script, want string }{
		{"no interrupt", `echo '{"__interrupt__": []}'`, "the evaluator cannot wait: __interrupt__"},
		{"null", `echo '{"__interrupt__": null}'`, "the evaluator cannot wait: __interrupt__"},
		{"both", `echo '{"__interrupt__": 1, "score": 1}'`, "expected either a score or __interrupt__"},
		{"again and again", `echo '{"__interrupt__": 1}'`, "have waited 2 times (limits.suspensions)"},
	} {
		t.Run(v.name, func(t *testing.T) {
			w := newWorld(t, completes, func(req *plans.Request) {
				req.Set.Limits.Suspensions = 2
				req.Set.Evaluators = []eval.Definition{noting("first", v.script)}
			})
			for range 3 {
				if w.run().State() != eval.StateScoring {
					break
				}
				w.answer("first", store.StatusSuccessful, `1`)
			}
			if r := w.resultOf("first"); r == nil || r.Score != nil || !strings.Contains(r.Error, v.want) {
				t.Errorf("%+v", r)
			}
		})
	}
}
