package crash

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

// newJudgedScenario is an eval set whose rollouts are judged. asked counts how often the provider
// was asked of each rollout's output.
func newJudgedScenario(t *testing.T) (s *scenario, environ []string, asked func() map[string]int) {
	t.Helper()
	s, environ, asked, _ = newJudgedBy(t, map[string]any{}, false)
	return s, environ, asked
}

// newJudgedBy is newJudgedScenario with the eval set's key judges, and the provider. alike says that
// the judges are asked the same about every rollout.
func newJudgedBy(t *testing.T, judges map[string]any, alike bool) (s *scenario, environ []string, asked func() map[string]int, server *fakejudge.Server) {
	t.Helper()
	var mu sync.Mutex
	counts := map[string]int{}
	server, err := fakejudge.Start(func(r fakejudge.Request) fakejudge.Reply {
		mu.Lock()
		defer mu.Unlock()
		counts[r.Prompt]++
		return fakejudge.Score(75, "well")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for name, value := range server.Environ() {
		environ = append(environ, name+"="+value)
	}
	s = emptyScenario(t, "failpoint")
	s.total = 3
	var evaluations []any
	agent := "cat" // its input is its output: no two are alike
	if alike {
		agent = `cat > /dev/null; echo '{"n": 1}'`
	}
	for i := range s.total {
		evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", i), "name": "e", "inputs": map[string]any{"n": i}, "expectedOutput": map[string]any{},
			"evaluationCriterias": map[string]any{"judge": nil, "second": nil}})
	}
	judge := func(id, prompt string) map[string]any {
		return map[string]any{"version": "1.0", "id": id, "evaluatorTypeId": "uipath-llm-judge-output-semantic-similarity",
			"evaluatorConfig": map[string]any{"name": id, "model": "gpt-5-mini", "prompt": prompt + " {{ActualOutput}} {{ExpectedOutput}}"}}
	}
	s.write("set.json", map[string]any{"version": "1.0", "id": "judged", "name": "Judged", "evaluations": evaluations, "judges": judges,
		"agent":      map[string]any{"type": "function", "command": []string{"sh", "-c", agent}},
		"evaluators": []any{judge("judge", "How good?"), judge("second", "How bad?")}})
	return s, environ, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return counts
	}, server
}

// A run that is judged in a batch is killed at each step of the batch. No verdict is lost, none is
// there twice, and there is one batch: also where the process dies between the provider's start and
// our record of it.
func TestABatchKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	for _, step := range []string{"rollout.scoring", "rollout.scoringCommitted", "engine.batchStarting", "engine.batchStarted", "engine.batchChecked", "engine.batchAnswer", "engine.batchDelivered"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s, environ, asked, server := newJudgedBy(t, map[string]any{"batch": map[string]any{"enabled": true, "interval": "20ms"}}, false)
			if !s.killed(s.command(append(environ, "EVALRUN_FAILPOINT=kill:"+step+":1")...)) {
				t.Errorf("there was no step %s", step)
			}
			s.finish(environ...)
			s.checkVerdicts()
			if b := server.Batches(); len(b) != 1 || b[0].Requests != 2*s.total {
				t.Errorf("%+v", b)
			}
			for prompt, n := range asked() {
				if n != 1 {
					t.Errorf("%q was asked %d times", prompt, n)
				}
			}
		})
	}
}

// The same where the judges are asked the same about every rollout: there is one request for each
// question, which is paid for once, and each rollout has its verdict.
func TestABatchOfEqualQuestionsKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	for _, step := range []string{"rollout.scoring", "rollout.scoringCommitted", "engine.batchStarting", "engine.batchStarted", "engine.batchChecked", "engine.batchAnswer", "engine.batchDelivered", "judge.cached", "rollout.evaluated"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s, environ, asked, server := newJudgedBy(t, map[string]any{"batch": map[string]any{"enabled": true, "interval": "20ms"}}, true)
			if !s.killed(s.command(append(environ, "EVALRUN_FAILPOINT=kill:"+step+":1")...)) {
				t.Errorf("there was no step %s", step)
			}
			s.finish(environ...)
			if paid := s.checkVerdicts(); paid != 2 {
				t.Errorf("%d verdicts were paid for, want one of each evaluator", paid)
			}
			if b := server.Batches(); len(b) != 1 || b[0].Requests != 2 || len(asked()) != 2 {
				t.Errorf("%+v, %d questions", b, len(asked()))
			}
			for prompt, n := range asked() {
				if n != 1 {
					t.Errorf("%q was asked %d times", prompt, n)
				}
			}
		})
	}
}

// A judged run is killed at each of its steps. No verdict is lost and none is there twice, and only
// the question whose answer was on its way is asked again.
func TestAJudgedRunKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	for _, step := range []string{"judge.cached", "judge.answered", "rollout.evaluated", "rollout.finishing", "rollout.finished"} {
		for n := 1; n <= 3; n++ {
			t.Run(fmt.Sprint(step, " ", n), func(t *testing.T) {
				t.Parallel()
				s, environ, asked := newJudgedScenario(t)
				if !s.killed(s.command(append(environ, fmt.Sprintf("EVALRUN_FAILPOINT=kill:%s:%d", step, n))...)) {
					t.Errorf("there was no step %s %d", step, n)
				}
				s.finish(environ...)
				if paid := s.checkVerdicts(); paid != 2*s.total {
					t.Errorf("%d verdicts have their cost, want %d", paid, 2*s.total)
				}
				if len(asked()) != 2*s.total {
					t.Errorf("%d questions, want %d", len(asked()), 2*s.total)
				}
				again := 0
				for _, n := range asked() {
					again += n - 1
				}
				// At the kill up to 3 rollouts are judged at once, whose answers may be on their way. The
				// answer of the killed step itself was kept.
				if again > s.total-1 {
					t.Errorf("%d answers were paid for twice", again)
				}
			})
		}
	}
}

// checkVerdicts checks that each evaluator has one result of each rollout, which is a score. paid is how
// many of them did not come from the cache.
func (s *scenario) checkVerdicts() (paid int) {
	s.t.Helper()
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{MustExist: true})
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	err = st.Snapshot(s.t.Context(), runID, func(v store.View) error {
		if run := v.Run(); !run.Final() || run.Counts.Completed != s.total {
			s.t.Errorf("%+v", run)
		}
		return v.Rollouts(func(o store.RolloutView) error {
			if len(o.Results) != 2 || o.Score == nil || *o.Score != 0.75 {
				s.t.Errorf("%s: %d results, score %v", o.EvaluationID, len(o.Results), o.Score)
			}
			for _, stored := range o.Results {
				var results []eval.Result
				if err := json.Unmarshal(stored.Data, &results); err != nil {
					return err
				}
				if len(results) != 1 || results[0].Score == nil || len(results[0].Judge.Verdicts) != 1 {
					s.t.Errorf("%s: %s", o.EvaluationID, stored.Data)
				} else if !results[0].Judge.Verdicts[0].Cached {
					paid++
				}
			}
			return nil
		})
	})
	if err != nil {
		s.t.Error(err)
	}
	return paid
}
