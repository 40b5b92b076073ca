package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

// rescored is a scenario whose run has ended. It is scored again by the evaluators of another eval
// set, which find every score 1 to be 0.
type rescored struct{ *scenario }

func newRescored(t *testing.T) rescored {
	t.Helper()
	s := emptyScenario(t, "failpoint")
	s.total = 6
	set := func(expected int) map[string]any {
		var evaluations []any
		for i := range s.total {
			evaluations = append(evaluations, map[string]any{"id": fmt.Sprint("e", i), "name": "e", "inputs": map[string]any{"n": 1},
				"evaluationCriterias": map[string]any{"exact": map[string]any{"expectedOutput": map[string]any{"n": expected}}}})
		}
		return map[string]any{"version": "1.0", "id": "rescored", "name": "Rescored", "evaluations": evaluations,
			"agent":      map[string]any{"type": "function", "command": []string{"sh", "-c", `echo called >> "$0"; echo '{"n": 1}'`, filepath.Join(s.dir, "calls")}},
			"evaluators": []any{map[string]any{"version": "1.0", "id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": map[string]any{"name": "exact"}}}}
	}
	s.write("other.json", set(2))
	s.write("set.json", set(1))
	s.finish()
	return rescored{s}
}

func (s rescored) score(env ...string) *exec.Cmd {
	cmd := s.command(env...)
	cmd.Args = []string{s.program, "score", runID, "--evaluators", "other.json"}
	return cmd
}

// scored checks that each rollout has its result of before or the new one, as the rescoring counts
// them, and returns how many have the new one.
func (s rescored) scored() (scored int) {
	s.t.Helper()
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{MustExist: true})
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	if err := st.Snapshot(s.t.Context(), runID, func(v store.View) error {
		rescorings, err := v.Rescorings()
		if err != nil {
			return err
		}
		if err := v.Rollouts(func(o store.RolloutView) error {
			switch {
			case len(o.Results) != 1 || o.Score == nil || o.Results[0].Rescoring != o.Rescoring:
				s.t.Errorf("%s: score %v of rescoring %d, results %+v", o.EvaluationID, o.Score, o.Rescoring, o.Results)
			case o.Rescoring > 0 && o.Rescoring == len(rescorings) && *o.Score == 0:
				scored++
			case o.Rescoring != 0 || *o.Score != 1:
				s.t.Errorf("%s has the score %v of rescoring %d", o.EvaluationID, *o.Score, o.Rescoring)
			}
			return nil
		}); err != nil {
			return err
		}
		if len(rescorings) == 0 { // killed before it had begun
			return nil
		}
		last := rescorings[len(rescorings)-1]
		if last.Scored != scored || last.Due != s.total-scored || last.EndedAt.IsZero() != (scored < s.total) {
			s.t.Errorf("%d rollouts have new results, of rescoring %d %d: %d are due, it ended %v", scored, last.Number, last.Scored, last.Due, last.EndedAt)
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return scored
}

// finishScoring scores what is left, or all of it anew if nothing is, and checks that all of it is
// there, and that no agent was asked again.
func (s rescored) finishScoring() {
	s.t.Helper()
	document := filepath.Join(s.dir, ".evalrun", "runs", runID, "results.json")
	before, err := os.ReadFile(document)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := schemas.Validate("results", before); err != nil {
		s.t.Error("the document after the kill: ", err)
	}
	if out, err := s.score().CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	if n := s.scored(); n != s.total {
		s.t.Errorf("%d of %d rollouts have new results", n, s.total)
	}
	s.checkEvents()
	after, err := os.ReadFile(document)
	if err != nil || !bytes.Contains(after, []byte(`"due": 0`)) || bytes.Contains(after, []byte(`"score": 1`)) {
		s.t.Errorf("the document is not that of the new scores: %v\n%s", err, after)
	}
	if calls, err := os.ReadFile(filepath.Join(s.dir, "calls")); err != nil || bytes.Count(calls, []byte("\n")) != s.total {
		s.t.Errorf("agents were called so: %v\n%s", err, calls)
	}
}

// checkEvents checks that events.jsonl has the events of the store, and that each rescoring that has
// ended has said so once.
func (s rescored) checkEvents() {
	s.t.Helper()
	st, err := sqlite.Open(filepath.Join(s.dir, ".evalrun"), store.Options{MustExist: true})
	if err != nil {
		s.t.Fatal(err)
	}
	defer st.Close()
	events, err := st.Events(s.t.Context(), runID, 0, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(s.dir, ".evalrun", "runs", runID, "events.jsonl"))
	if err != nil {
		s.t.Fatal(err)
	}
	lines := slices.Collect(bytes.Lines(file))
	if len(lines) != len(events) {
		s.t.Fatalf("events.jsonl has %d of %d events:\n%s", len(lines), len(events), file)
	}
	said := map[int]int{}
	for i, e := range events {
		var line schemas.Event
		if err := json.Unmarshal(lines[i], &line); err != nil || line.Seq != e.Seq || string(line.Data) != string(e.Data) {
			s.t.Errorf("%v: got %s, want %+v", err, lines[i], e)
		}
		if data, err := line.Decode(); err != nil {
			s.t.Error(err)
		} else if end, ok := data.(*schemas.RunRescored); ok {
			said[end.Number]++
		}
	}
	rescorings, err := st.Rescorings(s.t.Context(), runID)
	if err != nil || len(rescorings) == 0 {
		s.t.Fatal(rescorings, err)
	}
	for _, r := range rescorings {
		if ended := !r.EndedAt.IsZero() && r.Due == 0; said[r.Number] != 1 || !ended {
			s.t.Errorf("rescoring %d has ended: %v; it was said %d times", r.Number, ended, said[r.Number])
		}
	}
}

// A rescoring is killed before and after it has stored results, and before and after it has told of
// its end: a rollout has the results of before or the new ones, the same command goes on with the
// others, and the event of each rescoring is there once.
func TestARescoringKilledAtEachStep(t *testing.T) {
	testenv.NeedSlow(t)
	for _, step := range []string{"rescore.storing", "rescore.stored", "rescore.telling", "rescore.told"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newRescored(t)
			if !s.killed(s.score("EVALRUN_FAILPOINT=kill:" + step + ":1")) {
				t.Fatal("it was not killed")
			}
			if n := s.scored(); (n > 0) != (step != "rescore.storing") {
				t.Errorf("%d rollouts have new results", n)
			}
			s.finishScoring()
		})
	}
}

// The same at every durable step there is.
func TestARescoringKilledAtAnyStep(t *testing.T) {
	testenv.NeedLong(t)
	for n, killed := 1, true; killed; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newRescored(t)
			killed = s.killed(s.score(fmt.Sprintf("EVALRUN_FAILPOINT=kill:any:%d", n)))
			s.scored()
			s.finishScoring()
		})
	}
}
