package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

var update = flag.Bool("update", false, "write the golden files anew")

const testRunID = "01900000-0000-7000-8000-000000000001"

// testRun is a run in a real store, with a clock that is set by hand.
type testRun struct {
	t      testing.TB
	dir    string
	now    time.Time
	st     *sqlite.Store
	set    eval.Set
	claims map[string]store.Claim // by evaluation id and agent
	red    *redact.Redactor
}

func newRun(t testing.TB, set eval.Set, agents ...string) *testRun {
	t.Helper()
	return newRunFrom(t, set, plans.Origin{}, agents...)
}

// newRunFrom makes a run that was planned from somewhere.
func newRunFrom(t testing.TB, set eval.Set, origin plans.Origin, agents ...string) *testRun {
	t.Helper()
	r := &testRun{t: t, dir: t.TempDir(), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), set: set, claims: map[string]store.Claim{}}
	var err error
	if r.st, err = sqlite.Open(filepath.Join(r.dir, ".evalrun"), store.Options{Now: func() time.Time { return r.now }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.check(r.st.Close()) })
	req := plans.Request{RunID: testRunID, Set: &set, BaseDir: r.dir, WorkDir: r.dir, Origin: origin}
	if len(agents) == 0 {
		agents = []string{"calculator"}
	}
	for _, name := range agents {
		req.Agents = append(req.Agents, agent.Entry{Name: name, Type: "function", Command: []string{"true"}, ResumeWhen: agent.ResumeAny})
	}
	plan, err := plans.New(req, r.st.Dir())
	r.check(err)
	_, err = r.st.CreateRun(t.Context(), plan)
	r.check(err)
	return r
}

func (r *testRun) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *testRun) wait(d time.Duration) { r.now = r.now.Add(d) }

// claim takes up to n rollouts.
func (r *testRun) claim(n int) {
	r.t.Helper()
	claims, err := r.st.Claim(r.t.Context(), testRunID, n)
	r.check(err)
	for _, c := range claims {
		r.claims[c.EvaluationID+" "+c.Agent] = c
		if c.Epoch == 1 && c.Agent == "calculator" {
			r.claims[c.EvaluationID] = c
		}
	}
}

func (r *testRun) commit(id string, end store.SegmentEnd, named map[string]string) {
	r.t.Helper()
	c, ok := r.claims[id]
	if !ok {
		r.t.Fatalf("%s was not claimed", id)
	}
	dir := files.Of(r.st).Run(testRunID).Rollout(c.RolloutID).Segment(c.Segment, c.Attempt)
	r.check(os.MkdirAll(dir, 0o700))
	for name, text := range named {
		r.check(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		end.Files = append(end.Files, store.File{Name: name, Size: int64(len(text))})
	}
	_, err := r.st.CommitSegment(r.t.Context(), c.Token, end)
	r.check(err)
}

func (r *testRun) complete(id, output, trace string, results ...eval.Result) {
	r.t.Helper()
	files := map[string]string{}
	if trace != "" {
		files[record.FileTrace] = trace
	}
	r.completeWith(id, output, files, results...)
}

// completeWith completes a rollout whose segment leaves files.
func (r *testRun) completeWith(id, output string, files map[string]string, results ...eval.Result) {
	r.t.Helper()
	r.commit(id, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(output)}, files)
	token := r.claims[id].Token
	for len(results) > 0 {
		n := 1
		for n < len(results) && results[n-1].Line {
			n++
		}
		data, err := json.Marshal(results[:n])
		r.check(err)
		r.check(r.st.RecordResult(r.t.Context(), token, store.Result{EvaluatorID: results[n-1].EvaluatorID, Data: data}))
		results = results[n:]
	}
	r.check(r.st.Finish(r.t.Context(), token, summary.RolloutScore(r.set.Evaluators, r.recorded(id))))
}

// recorded reads the results of a rollout back from the store.
func (r *testRun) recorded(id string) (all []eval.Result) {
	r.view(func(v store.View) {
		r.check(v.Rollouts(func(rv store.RolloutView) error {
			if rv.ID == r.claims[id].RolloutID {
				rv.State = eval.StateCompleted
				results, err := readResults(rv)
				for _, one := range results {
					all = append(all, one.Result)
				}
				return err
			}
			return nil
		}))
	})
	return all
}

func (r *testRun) suspend(id, trace string, timeout time.Duration, values ...string) {
	r.t.Helper()
	end := store.SegmentEnd{Outcome: store.OutcomeSuspended, SuspendTimeout: timeout}
	for i, value := range values {
		specs, err := wait.ParseSpecs(json.RawMessage(value))
		r.check(err)
		for _, spec := range specs {
			data, err := json.Marshal(spec)
			r.check(err)
			end.Triggers = append(end.Triggers, store.NewTrigger{InterruptID: "int-" + string(rune('1'+i)), Type: string(spec.Type), Name: spec.Name,
				Source: "external", ItemKey: spec.ItemKey, KeyPrefix: strings.ToLower(string(spec.Type)) + "-", FolderPath: spec.FolderPath, Spec: data})
		}
	}
	files := map[string]string{}
	if trace != "" {
		files[record.FileTrace] = trace
	}
	r.commit(id, end, files)
}

// deliver answers the first open trigger of a rollout.
func (r *testRun) deliver(id, payload string) {
	r.t.Helper()
	var open []store.Trigger
	r.check(r.st.Triggers(r.t.Context(), testRunID, false, func(g store.Trigger) error {
		if g.EvaluationID == id {
			open = append(open, g)
		}
		return nil
	}))
	_, err := r.st.Deliver(r.t.Context(), store.Delivery{TriggerID: open[0].ID, Status: store.StatusSuccessful, Payload: json.RawMessage(payload), By: "deliver"})
	r.check(err)
}

func (r *testRun) view(f func(store.View)) {
	r.t.Helper()
	r.check(r.st.Snapshot(r.t.Context(), testRunID, func(v store.View) error { f(v); return nil }))
}

// report calls f with the run's report.
func (r *testRun) report(f func(*Report)) {
	r.t.Helper()
	r.check(FromStore(r.t.Context(), r.st, testRunID, r.red, func(rep *Report) error { f(rep); return nil }))
}

// document is the results document, which must be valid. The store's id, which is made by chance,
// is replaced.
func (r *testRun) document() []byte {
	r.t.Helper()
	var b bytes.Buffer
	o := Options{StoreID: "STORE", StoreDir: r.st.Dir(), StorePath: ".evalrun", Plan: plans.Plan{Set: r.set}, Redact: r.red}
	r.view(func(v store.View) { r.check(WriteResults(&b, v, o)) })
	if err := schemas.Validate("results", b.Bytes()); err != nil {
		r.t.Errorf("the document does not fit its schema: %v\n%s", err, &b)
	}
	return b.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; write it anew with -update):\n%s", path, diff)
	}
}

func ptr[T any](v T) *T { return &v }

func exact(id string) eval.Definition {
	return eval.Definition{ID: id, Name: id, Type: "uipath-exact-match", Weight: 1, Config: json.RawMessage(`{"name":"` + id + `"}`)}
}

func score(id string, score float64) eval.Result {
	return eval.Result{EvaluatorID: id, EvaluatorName: id, Score: &score, Scale: 1, Duration: 1500 * time.Microsecond,
		Details: json.RawMessage(`{"expected":"8.0","actual":"8.0"}`)}
}

func evaluation(id, name string) eval.Evaluation {
	return eval.Evaluation{ID: id, Name: name, Inputs: json.RawMessage(`{}`), Criteria: map[string]json.RawMessage{}}
}

func setOf(evaluators []eval.Definition, evaluations ...eval.Evaluation) eval.Set {
	return eval.Set{ID: "set-1", Name: "Suspend Resume Test", Evaluators: evaluators, Evaluations: evaluations, Epochs: 1, Reduce: eval.ReduceMean,
		Thresholds: eval.Thresholds{Pass: 1}}
}

const jobValue = `{"name":"TestProcess","input_arguments":{"n":1},"process_folder_path":"Shared"}`

// mixedRun has a rollout of every kind.
func mixedRun(t testing.TB) *testRun {
	set := setOf([]eval.Definition{exact("exact"), exact("lines"), {ID: "legacy", Name: "Legacy Similarity", Type: "legacy-json-similarity", Weight: 1,
		Config: json.RawMessage(`{"id":"legacy","category":0,"type":6,"targetOutputKey":"*"}`)}, {ID: "judge", Name: "Judge", Type: "uipath-llm-judge-output-semantic-similarity", Weight: 1, NotRun: "no model"}},
		evaluation("passes", "Passes"), evaluation("fails", "Fails"), evaluation("waits", "Waits for a job"), evaluation("resumed", "Waited and passed"),
		evaluation("faults", "Faults"), evaluation("mocked", "Has mocks"), evaluation("siblings", "Waits for many"), evaluation("runs", "Still runs"))
	set.Evaluations[5].NotRunnable = "mockingStrategy (llm): evalrun cannot mock an agent's tools"
	r := newRun(t, set)
	r.claim(10)
	r.wait(400 * time.Millisecond)
	r.complete("passes", `{"result":8.0}`, `{"name":"add","context":{"span_id":"0x01"},"attributes":{"tool.name":"add"},"status":{"status_code":"OK"}}`+"\n",
		score("exact", 1), eval.Result{EvaluatorID: "legacy", EvaluatorName: "Legacy Similarity", Score: ptr(100.0), Scale: 100, Details: json.RawMessage("null")})
	line := score("lines", 0)
	line.EvaluatorID, line.EvaluatorName, line.Line = "lines_line_1", "lines (Line 1)", true
	r.complete("fails", `{"result":"8"}`, "", score("exact", 0.5), line, score("lines", 0),
		eval.Result{EvaluatorID: "legacy", EvaluatorName: "Legacy Similarity", Score: ptr(0.0), Scale: 100, Error: "path a.b not found"},
		eval.Result{EvaluatorID: "judge", EvaluatorName: "Judge", Scale: 1, NotRun: "no model"})
	r.suspend("waits", `{"name":"start","context":{"span_id":"0x0a"},"parent_id":null,"attributes":{},"events":[]}`+"\nnot JSON\n", 0, jobValue)
	r.suspend("resumed", `{"name":"first","context":{"span_id":"0x0b"}}`+"\n", time.Hour, jobValue)
	r.suspend("siblings", "", time.Hour, `[{"title":"Approve","app_name":"a"},{"resume_time":"2026-03-01T13:00:00.5Z"}]`, `{"message":"hello"}`)
	r.commit("faults", store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: fault.New("exit", "the agent ended with exit status 1; stderr ends with:\nboom")}, nil)
	r.wait(2 * time.Second)
	r.deliver("resumed", `{"answer":42}`)
	r.wait(100 * time.Millisecond)
	r.claim(1)
	r.wait(time.Second)
	r.complete("resumed", `{"result":42}`, `{"name":"second","context":{"span_id":"0x0c"},"parent_id":"0x0b","status":{"status_code":"ERROR"}}`+"\n", score("exact", 1))
	return r
}
