package engine

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// batchWorld is a run whose rollouts are judged in batches of a provider.
type batchWorld struct {
	*testing.T
	*poison
	server *fakejudge.Server
	id     string
	n      int
}

// newBatchWorld makes a run of n rollouts as if their agents had run, which a model judges in
// batches.
func newBatchWorld(t *testing.T, model string, n int, rule func(fakejudge.Request) fakejudge.Reply, change ...func(*judge.Config)) *batchWorld {
	t.Helper()
	return newBatchWorldAsking(t, "{{output}}", model, n, rule, change...)
}

// newBatchWorldAsking is newBatchWorld with the judge's prompt.
func newBatchWorldAsking(t *testing.T, prompt, model string, n int, rule func(fakejudge.Request) fakejudge.Reply, change ...func(*judge.Config)) *batchWorld {
	t.Helper()
	server, err := fakejudge.Start(rule)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	dir := t.TempDir()
	w := &batchWorld{t, &poison{t, dir, openIn(t, filepath.Join(dir, "store"))}, server, "run", n}
	config := judge.Default()
	config.Batch.Enabled, config.Batch.Interval, config.Batch.MaxInterval = true, time.Millisecond, 5*time.Millisecond
	cached := 0.1
	config.Prices = eval.Prices{"*": {Input: 1, CachedInput: &cached, Output: 10}}
	for _, f := range change {
		f(&config)
	}
	w.runOf(w.id, n, "exit 1", func(req *plans.Request) {
		req.Judges = &config
		req.Set.Evaluators = []eval.Definition{{ID: "e", Name: "e", Type: "llm-judge", Weight: 1, Config: json.RawMessage(`{"prompt":"` + prompt + `","judges":[{"model":"` + model + `"}]}`)}}
	})
	claims, err := w.s.Claim(t.Context(), w.id, n)
	if err != nil || len(claims) != n {
		t.Fatal(len(claims), err)
	}
	var all sync.WaitGroup
	for _, c := range claims {
		all.Go(func() { // together, because commits are grouped
			if _, err := w.s.CommitSegment(t.Context(), c.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`"` + c.EvaluationID + `"`)}); err != nil {
				t.Error(err)
			}
			if err := w.s.Release(t.Context(), c.Token, 0); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return w
}

// work works on the run.
func (w *batchWorld) work(until Until) {
	w.Helper()
	values := w.server.Environ()
	resolve := func(name string) (string, bool) { value, ok := values[name]; return value, ok }
	if err := New(Options{Store: w.s, RunID: w.id, Concurrency: 4, WorkDir: w.dir, Resolve: resolve}).Run(w.Context(), until); err != nil {
		w.Fatal(err)
	}
}

// results are the judge's results of all rollouts.
func (w *batchWorld) results() (out map[string]eval.Result) {
	w.Helper()
	out = map[string]eval.Result{}
	if err := w.s.Snapshot(w.Context(), w.id, func(v store.View) error {
		return v.Rollouts(func(o store.RolloutView) error {
			var all []eval.Result
			for _, r := range o.Results {
				if err := json.Unmarshal(r.Data, &all); err != nil {
					return err
				}
				out[o.EvaluationID] = all[0]
			}
			return nil
		})
	}); err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *batchWorld) counts() store.Counts {
	w.Helper()
	run, err := w.s.Run(w.Context(), w.id)
	if err != nil {
		w.Fatal(err)
	}
	return run.Counts
}

func passes(fakejudge.Request) fakejudge.Reply {
	return fakejudge.Reply{Arguments: map[string]any{"justification": "so", "score": 0.75, "cannotBeJudged": false}}
}

// Given 1,000 rollouts whose judge is asked in a batch: they wait in one batch, for which a look is
// one request; nobody has a goroutine; and when it is done each has its verdict, at the price of
// batches.
func TestAThousandRolloutsWaitForOneBatch(t *testing.T) {
	testenv.NeedSlow(t)
	for model, api := range map[string]string{"gpt-5-mini": "chat", "claude-haiku-4-5": "messages"} {
		t.Run(api, func(t *testing.T) {
			n := 1000
			if testenv.Short() {
				n = 60
			}
			w := newBatchWorld(t, model, n, passes)
			w.server.HoldBatches(true)
			w.work(UntilIdle)
			if w.counts() != (store.Counts{Total: n, Scoring: n}) {
				t.Fatalf("%+v", w.counts())
			}
			if b := w.server.Batches(); len(b) != 1 || b[0].Requests != n || b[0].API != api || len(w.server.Requests()) != 0 {
				t.Fatalf("%+v, %d requests by themselves", b, len(w.server.Requests()))
			}
			asked := w.server.Batches()[0].Asked
			if waiting := w.goroutines(w.id); waiting > 60 {
				t.Errorf("%d goroutines wait", waiting)
			}
			if err := w.s.CheckNow(t.Context(), w.id); err != nil {
				t.Fatal(err)
			}
			if more := w.server.Batches()[0].Asked - asked; more > 100 {
				t.Errorf("%d requests ask for the batch of %d rollouts", more, n)
			}
			w.server.HoldBatches(false)
			w.work(UntilFinal)
			for id, r := range w.results() {
				call := r.Judge.Verdicts[0]
				if r.Score == nil || *r.Score != 0.75 || call.Batch != w.server.Batches()[0].ID || call.Attempts != 0 || call.Usage == nil {
					t.Fatalf("%s: %+v %+v", id, r, call)
				}
				if want := (fakejudge.InputTokens*1 + fakejudge.OutputTokens*10) / 1e6 / 2; call.Usage.Cost == nil || *call.Usage.Cost != want {
					t.Fatalf("%s: %+v, want the cost %v", id, call.Usage, want)
				}
			}
			if len(w.results()) != n || w.counts().Completed != n || len(w.server.Batches()) != 1 || w.server.Batches()[0].Fetched != 1 {
				t.Errorf("%d results, %+v, %+v", len(w.results()), w.counts(), w.server.Batches())
			}
		})
	}
}

// A request that has no answer in its batch, or none that is a verdict, is asked once more by itself.
// What the model has refused stays refused.
func TestARequestWithoutAnAnswerIsAskedDirectly(t *testing.T) {
	for model, api := range map[string]string{"gpt-5-mini": "chat", "claude-haiku-4-5": "messages"} {
		t.Run(api, func(t *testing.T) {
			w := newBatchWorld(t, model, 6, func(r fakejudge.Request) fakejudge.Reply {
				if r.Batch == "" {
					return passes(r)
				}
				for what, reply := range map[string]fakejudge.Reply{"e1": {Hang: true}, "e2": {Status: 500, Error: "broken"}, "e3": {Text: "fine"}, "e4": {Refusal: "no"}, "e5": {Truncated: true}} {
					if strings.Contains(r.Prompt, "\n"+what+"\n") {
						return reply
					}
				}
				return passes(r)
			})
			w.work(UntilFinal)
			got := w.results()
			for id, want := range map[string]struct {
				attempts int
				category eval.JudgeCategory
			}{"e0": {0, ""}, "e1": {1, ""}, "e2": {1, ""}, "e3": {1, ""}, "e4": {0, eval.JudgeRefused}, "e5": {0, eval.JudgeTruncated}} {
				r := got[id]
				if r.Judge != nil && r.Judge.Verdicts[0].PaidTwice != (id == "e3") {
					t.Errorf("%s: paid twice %v", id, r.Judge.Verdicts[0].PaidTwice)
				}
				if r.Judge == nil || r.Judge.Verdicts[0].Attempts != want.attempts || r.ErrorCategory != want.category || (r.Score == nil) != (want.category != "") {
					t.Errorf("%s: %+v", id, r)
				}
			}
		})
	}
}

// A batch whose start was not answered may have been started. It is found again, at OpenAI by our id
// and at Anthropic by when it was made and its size, and not started twice.
func TestABatchIsNotStartedTwice(t *testing.T) {
	for model, api := range map[string]string{"gpt-5-mini": "chat", "claude-haiku-4-5": "messages"} {
		t.Run(api, func(t *testing.T) {
			w := newBatchWorld(t, model, 3, passes)
			w.server.LoseBatches(1)
			w.work(UntilFinal)
			if b := w.server.Batches(); len(b) != 1 || len(w.server.Requests()) != 3 {
				t.Errorf("%+v, %d requests", b, len(w.server.Requests()))
			}
			if w.counts().Completed != 3 {
				t.Errorf("%+v", w.counts())
			}
		})
	}
}

// A batch that nobody waits for any more is cancelled at its provider.
func TestACancelledRunCancelsItsBatch(t *testing.T) {
	for model, api := range map[string]string{"gpt-5-mini": "chat", "claude-haiku-4-5": "messages"} {
		t.Run(api, func(t *testing.T) {
			w := newBatchWorld(t, model, 3, passes)
			w.server.HoldBatches(true)
			w.work(UntilIdle)
			if _, err := w.s.Cancel(t.Context(), w.id); err != nil {
				t.Fatal(err)
			}
			w.work(UntilFinal)
			if b := w.server.Batches(); len(b) != 1 || !b[0].Cancelled || w.counts().Cancelled != 3 {
				t.Errorf("%+v, %+v", b, w.counts())
			}
			if err := Remove(t.Context(), w.s, w.id); err != nil {
				t.Error(err)
			}
		})
	}
}

// A provider that refuses batches altogether: the questions are asked one by one.
func TestARefusedBatchIsAskedOneByOne(t *testing.T) {
	w := newBatchWorld(t, "gpt-5-mini", 2, passes)
	w.server.RefuseBatches()
	w.work(UntilFinal)
	for id, r := range w.results() {
		if r.Score == nil || r.Judge.Verdicts[0].Attempts != 1 {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if len(w.results()) != 2 || len(w.server.Batches()) != 0 {
		t.Errorf("%+v", w.results())
	}
}

// What waits in a batch of another process counts as spent, and no more when its answer is there: a
// budget of calls is not spent anew by each process.
func TestTheBudgetCountsWhatWaitsInABatch(t *testing.T) {
	testenv.NeedSlow(t)
	for model, api := range map[string]string{"gpt-5-mini": "chat", "claude-haiku-4-5": "messages"} {
		t.Run(api, func(t *testing.T) {
			rule := func(r fakejudge.Request) fakejudge.Reply {
				if r.Batch != "" && strings.Contains(r.Prompt, "\ne3\n") {
					return fakejudge.Reply{Text: "fine"} // it is asked once more
				}
				return passes(r)
			}
			w := newBatchWorld(t, model, 4, rule)
			spent := func() judge.Spent {
				t.Helper()
				got, err := rollout.SpentOnJudges(t.Context(), w.s, w.id)
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			w.server.HoldBatches(true)
			w.work(UntilIdle)
			if got := spent(); got != (judge.Spent{Calls: 4}) {
				t.Errorf("while it waits: %+v", got)
			}
			w.server.HoldBatches(false)
			w.work(UntilFinal)
			if got := spent(); got.Calls != 5 || got.Tokens == 0 {
				t.Errorf("when it is done: %+v", got)
			}
			w = newBatchWorld(t, model, 4, rule, func(c *judge.Config) { c.Budget.Calls = 4 })
			w.server.HoldBatches(true)
			w.work(UntilIdle)
			w.server.HoldBatches(false)
			w.work(UntilFinal)
			if got := w.results(); got["e3"].ErrorCategory != eval.JudgeBudget || got["e0"].Score == nil {
				t.Errorf("of 4 calls there is a fifth: %+v", got)
			}
		})
	}
}

// Given rollouts about which the judge is asked the same: the question is in the batch once, each has
// its verdict, and it is paid for, counted and budgeted once. If its answer is no verdict it is asked
// once more, for all of them.
func TestEqualQuestionsOfABatchArePaidForOnce(t *testing.T) {
	testenv.NeedSlow(t)
	for model, api := range map[string]string{"gpt-5-mini": "chat", "claude-haiku-4-5": "messages"} {
		for name, c := range map[string]struct {
			rule  func(fakejudge.Request) fakejudge.Reply
			calls int
		}{"answered": {passes, 1}, "asked again": {func(r fakejudge.Request) fakejudge.Reply {
			if r.Batch != "" {
				return fakejudge.Reply{Text: "fine"}
			}
			return passes(r)
		}, 2}} {
			t.Run(api+" "+name, func(t *testing.T) {
				const n = 5
				w := newBatchWorldAsking(t, "Is it good?", model, n, c.rule, func(j *judge.Config) { j.Budget.Calls = c.calls })
				spent := func(want int) judge.Spent {
					t.Helper()
					got, err := rollout.SpentOnJudges(t.Context(), w.s, w.id)
					if err != nil || got.Calls != want {
						t.Errorf("%+v, %v, want %d calls", got, err, want)
					}
					return got
				}
				w.server.HoldBatches(true)
				w.work(UntilIdle)
				spent(1)
				w.server.HoldBatches(false)
				w.work(UntilFinal)
				if b := w.server.Batches(); len(b) != 1 || b[0].Requests != 1 || len(w.server.Requests()) != c.calls {
					t.Errorf("%+v, %d requests", b, len(w.server.Requests()))
				}
				paid, twice, tokens := 0, 0, int64(0)
				for id, r := range w.results() {
					if r.Score == nil || *r.Score != 0.75 {
						t.Errorf("%s: %+v", id, r)
						continue
					}
					call := r.Judge.Verdicts[0]
					if *call.Usage.Cost > 0 {
						paid++
						tokens += call.Usage.Tokens()
					}
					if call.PaidTwice {
						twice++
					}
					if call.Cached != (*call.Usage.Cost == 0) {
						t.Errorf("%s: cached %v at the cost %v", id, call.Cached, *call.Usage.Cost)
					}
				}
				want := int64(c.calls) * (fakejudge.InputTokens + fakejudge.OutputTokens)
				if got := spent(c.calls); len(w.results()) != n || got.Tokens != want || tokens != want || twice != c.calls-1 {
					t.Errorf("%d results, %d paid for, %d of them twice, %d tokens, spent %+v", len(w.results()), paid, twice, tokens, got)
				}
			})
		}
	}
}

// Without the cache each question is asked, as it is without batches.
func TestWithoutTheCacheEqualQuestionsAreAllAsked(t *testing.T) {
	w := newBatchWorldAsking(t, "Is it good?", "gpt-5-mini", 3, passes, func(j *judge.Config) { j.NoCache = true })
	w.work(UntilFinal)
	if b := w.server.Batches(); len(b) != 1 || b[0].Requests != 3 || w.counts().Completed != 3 {
		t.Errorf("%+v, %+v", b, w.counts())
	}
}
