package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

const config = `agents:
  - {type: function, name: echo, command: [sh, echo.sh]}
  - {type: function, name: asker, command: [sh, asker.sh], cwd: sub}
jobs:
  Build: {source: external}
evalSets: sets
`

const greet = `{"version": "1.0", "id": "greet", "name": "Greet", "agent": "echo",
 "evaluators": [{"version": "1.0", "id": "contains", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "C"}}],
 "evaluations": [{"id": "one", "name": "One", "inputs": {"text": "hello", "n": 1}, "evaluationCriterias": {"contains": {"searchText": "hello"}}}]}`

// world is a service over a store of its own, with a folder of eval sets.
type world struct {
	dir string
	*service.Service
}

func newWorld(t *testing.T) world {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("serve.yaml", config)
	write("echo.sh", "cat\n")
	write("sub/asker.sh", `grep -q '"resume":null' && echo '{"__interrupt__":[{"id":"q","value":{"processName":"Build","inputArguments":{}}}]}' || echo '{"text":"hello"}'`)
	write("sets/greet.json", greet)
	write("sets/.hidden.json", greet)
	write("outside.json", greet)
	if err := os.Symlink("../outside.json", filepath.Join(dir, "sets", "link.json")); err != nil {
		t.Fatal(err)
	}
	cfg, err := service.ReadConfig(filepath.Join(dir, "serve.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := runner.Open(filepath.Join(dir, "store"), runner.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return world{dir, service.New(st, cfg, service.Options{})}
}

// execute runs an executor beside the test until it ends.
func (w world) execute(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Runner().Execute(ctx, runner.ExecuteOptions{}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (w world) start(t *testing.T, q service.StartRequest) service.Started {
	t.Helper()
	started, err := w.Start(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// reaches waits until a run has a status.
func (w world) reaches(t *testing.T, runID, status string) service.Run {
	t.Helper()
	var run service.Run
	if !testenv.Eventually(func() bool {
		var err error
		if run, err = w.Run(t.Context(), runID); err != nil {
			t.Fatal(err)
		}
		return string(run.Status) == status
	}) {
		t.Fatalf("the run is %s, not %s: %+v", run.Status, status, run.Counts)
	}
	return run
}

func TestANamedSetRunsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.execute(t)
	before := time.Now()
	started := w.start(t, service.StartRequest{EvalSet: "greet", Inputs: json.RawMessage(`{"n": 2}`)})
	if run := w.reaches(t, started.RunID, "successful"); !run.Final() || !started.New {
		t.Errorf("%+v %+v", started, run)
	}
	if took := time.Since(before); took > 4*time.Second { // the executor looks by itself after 5 s
		t.Errorf("the executor was not told: %v", took)
	}
	var document bytes.Buffer
	if err := w.Results(t.Context(), started.RunID, &document); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"n": 2`, `"text": "hello"`, `"score": 1`} {
		if !strings.Contains(document.String(), want) {
			t.Errorf("the results lack %s:\n%s", want, &document)
		}
	}
}

func TestAnUploadSuspendsAndIsDelivered(t *testing.T) {
	w := newWorld(t)
	w.execute(t)
	started := w.start(t, service.StartRequest{Upload: json.RawMessage(strings.Replace(greet, `"agent": "echo"`, `"agent": "asker"`, 1))})
	w.reaches(t, started.RunID, "suspended")
	var ids []string
	if err := w.Triggers(t.Context(), started.RunID, false, func(g runner.Trigger) error {
		ids = append(ids, g.TriggerID)
		return nil
	}); err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	if _, err := w.Deliver(t.Context(), ids[0][:8], runner.Delivery{}); !errors.Is(err, service.ErrNotFound) {
		t.Errorf("a part of an id: %v", err)
	}
	receipt, err := w.Deliver(t.Context(), ids[0], runner.Delivery{Payload: json.RawMessage(`{}`), By: "test"})
	if err != nil || receipt.Disposition != runner.Accepted {
		t.Fatal(receipt, err)
	}
	w.reaches(t, started.RunID, "successful")
}

func TestAKeyMakesOneRun(t *testing.T) {
	w := newWorld(t)
	q := service.StartRequest{EvalSet: "greet", IdempotencyKey: "k", By: "a"}
	first := w.start(t, q)
	if err := os.WriteFile(filepath.Join(w.dir, "sets", "greet.json"), []byte(strings.ReplaceAll(greet, "hello", "bye")), 0o600); err != nil {
		t.Fatal(err)
	}
	if again := w.start(t, q); again.New || again.RunID != first.RunID {
		t.Errorf("again: %+v after %+v", again, first)
	}
	other := q
	other.By = "b"
	if r := w.start(t, other); !r.New || r.RunID == first.RunID {
		t.Errorf("another caller has the run of the first: %+v", r)
	}
	q.Epochs = 2
	if _, err := w.Start(t.Context(), q); !errors.Is(err, service.ErrConflict) {
		t.Errorf("another request with the key: %v", err)
	}
	// Many at once make one run.
	q = service.StartRequest{EvalSet: "greet", IdempotencyKey: "many"}
	news := make(chan bool, 8)
	for range cap(news) {
		go func() {
			r, err := w.Start(t.Context(), q)
			news <- err == nil && r.New
		}()
	}
	count := 0
	for range cap(news) {
		if <-news {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d of them have made the run", count)
	}
}

func TestOnlySetsOfTheFolderAreFound(t *testing.T) {
	w := newWorld(t)
	names, err := w.Config().EvalSets.Names()
	if err != nil || len(names) != 1 || names[0] != "greet" {
		t.Errorf("the sets are %q, %v", names, err)
	}
	for _, name := range []string{"../outside", "../outside.json", "link", ".hidden", "greet.json", "/etc/passwd", "", "greet\x00", "sub/greet", "grete"} {
		_, err := w.Start(t.Context(), service.StartRequest{EvalSet: name})
		if !errors.As(err, new(*runner.InputError)) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if runs, err := w.Store().Runs(t.Context()); err != nil || len(runs) != 0 {
		t.Error(runs, err)
	}
}

func TestUploadsBringNothingThatRuns(t *testing.T) {
	w := newWorld(t)
	upload := func(key, value string) json.RawMessage {
		var set map[string]json.RawMessage
		if err := json.Unmarshal([]byte(greet), &set); err != nil {
			t.Fatal(err)
		}
		set[key] = json.RawMessage(value)
		data, err := json.Marshal(set)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, c := range map[string]struct {
		data json.RawMessage
		says string
	}{
		"agent with a command":  {upload("agent", `{"type":"function","name":"echo","command":["id"]}`), "expected the name of an agent"},
		"agent of the registry": {upload("agent", `"claude"`), "there is no agent"},
		"agents":                {upload("agents", `[{"type":"nop"}]`), "agent"},
		"jobs":                  {upload("jobs", `{"x":{"source":"exec","command":["id"]}}`), "an uploaded eval set has no jobs"},
		"tasks":                 {upload("tasks", `["/etc/*"]`), "an uploaded eval set has no tasks"},
		"dataset":               {upload("dataset", `{"file":"/etc/passwd.csv","id":"{row.id}","inputs":{}}`), "an uploaded eval set has no dataset"},
		"notify":                {upload("notify", `{}`), "an uploaded eval set has no notify"},
		"judges":                {upload("judges", `{}`), "an uploaded eval set has no judges"},
		"too large":             {upload("name", `"`+strings.Repeat("x", 4<<20)+`"`), "at most 4 MiB"},
		"command evaluator":     {upload("evaluators", `[{"id":"c","type":"command","command":["id"]}]`), "brings no command"},
		"code in Python":        {upload("evaluators", `[{"id":"c","type":"python","function":"os:system"}]`), "brings no code"},
		"code in a config":      {upload("evaluators", `[{"id":"c","version":"1.0","evaluator_type_id":"python","evaluator_config":{"function":"os:system"}}]`), "brings no code"},
		"command in a config":   {upload("evaluators", `[{"id":"c","version":"1.0","evaluatorTypeId":"command","evaluatorConfig":{"command":["id"]}}]`), "brings no command"},
		"jq of a check":         {upload("evaluators", `[{"id":"c","type":"checks","checks":[{"anyOf":[{"equals":1,"jq":"[range(1e12)]"}]}]}]`), "brings no jq"},
		"jq of an evaluation":   {upload("evaluations", `[{"id":"1","name":"n","inputs":{},"checks":[{"equals":1,"jq":"."}]}]`), "brings no jq"},
		"answers":               {upload("answers", `[{"match":{},"approve":true}]`), "an uploaded eval set has no answers"},
		"answers of one":        {upload("evaluations", `[{"id":"1","name":"n","inputs":{},"answers":[{"match":{},"approve":true}]}]`), "an uploaded evaluation has no answers"},
		"mocks with code": {upload("evaluations", `[{"id":"1","name":"n","inputs":{},"evaluationCriterias":{},"mockingStrategy":{"type":"mockito","behaviors":[`+
			`{"function":"f","then":[{"type":"return","value":[{"_target_":"subprocess.Popen","args":["id"]}]}]}]}}]`), "an uploaded eval set brings none"},
		"variable": {upload("name", `"a ${HOME} b"`), "names no variables"},
		"no JSON":  {json.RawMessage(`[1]`), "expected an object"},
	} {
		_, err := w.Start(t.Context(), service.StartRequest{Upload: c.data})
		if !errors.As(err, new(*runner.InputError)) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, not %q", name, err, c.says)
		}
	}
	_, err := w.Start(t.Context(), service.StartRequest{Upload: json.RawMessage(greet), EvalSet: "greet"})
	if !errors.As(err, new(*runner.InputError)) {
		t.Errorf("both: %v", err)
	}
	_, err = w.Start(t.Context(), service.StartRequest{EvalSet: "greet", Agents: []string{filepath.Join(w.dir, "serve.yaml")}})
	if !errors.As(err, new(*runner.InputError)) {
		t.Errorf("a file as an agent: %v", err)
	}
}

func TestRetriesAndTimeArePlanned(t *testing.T) {
	w := newWorld(t)
	two := 2
	started := w.start(t, service.StartRequest{EvalSet: "greet", MaxRetries: &two, RetryOn: []string{"*"}, MaxDuration: time.Minute, Agents: []string{"asker"}})
	plan, err := w.Store().Plan(t.Context(), started.RunID)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"max":2`, `"on":["*"]`, `"timeoutNs":60000000000`, `"asker"`, `"Build"`} {
		if !strings.Contains(string(plan.Data), want) {
			t.Errorf("the plan lacks %s: %s", want, plan.Data)
		}
	}
}

func TestACancelledRunEnds(t *testing.T) {
	w := newWorld(t)
	started := w.start(t, service.StartRequest{EvalSet: "greet"})
	if _, err := w.Cancel(t.Context(), "no-such-run"); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	if n, err := w.Cancel(t.Context(), started.RunID); n != 1 || err != nil {
		t.Error(n, err)
	}
	w.reaches(t, started.RunID, "cancelled")
}
