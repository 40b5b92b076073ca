package meshprovider_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/peers/fakemesh"
	"github.com/evalrun/evalrun/internal/serve/meshprovider"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

const config = `agents:
  - {type: function, name: echo, command: [cat], env: {PLANTED: "${PLANTED}"}}
  - {type: function, name: bad, command: [sh, -c, "exit 3"]}
  - {type: function, name: flaky, command: [sh, flaky.sh]}
  - {type: function, name: slow, command: [sh, -c, "sleep 600"]}
  - {type: function, name: person, command: [sh, person.sh]}
evalSets: sets
mesh:
  registry: REGISTRY
  capabilities:
    run_eval: {}
    greet: {evalSet: echo}
    flaky: {evalSet: flaky, retryOn: [exit]}
    bad: {evalSet: bad, retryOn: [exit]}
`

// flaky fails the first time.
const flaky = `cat >/dev/null
if [ -e once ]; then echo '{"text": "hello"}'; else touch once; exit 3; fi
`

const person = `case $(cat) in
*'"resume":null'*) echo '{"__interrupt__": [{"id": "q", "value": {"type": "CreateTask", "title": "Go on?"}}]}' ;;
*) echo '{"text": "hello"}' ;;
esac
`

// world is a provider with a registry, a store and an executor.
type world struct {
	*testing.T
	*service.Service
	registry *fakemesh.Registry
	url      string
	log      *buffer
	// stop ends the provider.
	stop func()
}

// buffer may be written and read by several goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, registry: &fakemesh.Registry{}, log: &buffer{}}
	server := httptest.NewServer(w.registry)
	t.Cleanup(server.Close)
	w.url = server.URL
	dir := t.TempDir()
	files := map[string]string{"serve.yaml": strings.Replace(config, "REGISTRY", w.url, 1), "flaky.sh": flaky, "person.sh": person, "variables": "PLANTED=planted-value-7c1d2e"}
	for _, name := range []string{"echo", "bad", "flaky", "slow", "person"} {
		files["sets/"+name+".json"] = `{"version": "1.0", "id": "` + name + `", "name": "` + name + `", "agent": "` + name + `",
			"evaluators": [{"version": "1.0", "id": "c", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "C"}}],
			"evaluations": [{"id": "one", "name": "One", "inputs": {"text": "hello"}, "evaluationCriterias": {"c": {"searchText": "hello"}}}]}`
	}
	for name, text := range files {
		testenv.Mkdir(t, dir, filepath.Dir(name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := service.ReadConfig(filepath.Join(dir, "serve.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	variables, err := runner.ReadVariables(nil, []string{filepath.Join(dir, "variables")})
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
	w.Service = service.New(st, cfg, service.Options{Variables: variables})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- st.Execute(ctx, runner.ExecuteOptions{Options: runner.Options{Variables: variables, Log: w.log}})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	w.provide()
	return w
}

// provide begins to provide.
func (w *world) provide() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		meshprovider.Run(ctx, meshprovider.Options{Service: w.Service, Mesh: *w.Config().Mesh, Interval: 10 * time.Millisecond, Log: log})
	}()
	w.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	w.Cleanup(w.stop)
}

// send sends the registry a request as a consumer does.
func (w *world) send(path, body string) string {
	w.Helper()
	a, err := http.Post(w.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	defer a.Body.Close()
	var said struct{ ID string }
	if err := json.NewDecoder(a.Body).Decode(&said); err != nil || a.StatusCode >= 300 {
		w.Fatalf("%s: %s %v", path, a.Status, err)
	}
	return said.ID
}

func (w *world) submit(capability, payload, more string) (id string) {
	w.Helper()
	return w.send("/jobs", `{"capability": "`+capability+`", "submitted_by": "consumer", "submitted_payload": `+payload+more+`}`)
}

func (w *world) job(id string) (found fakemesh.Job) {
	for _, j := range w.registry.Jobs() {
		if j.ID == id {
			found = j
		}
	}
	return found
}

// reaches waits until a job has a status.
func (w *world) reaches(id, status string) (j fakemesh.Job) {
	w.Helper()
	if !testenv.Eventually(func() bool { j = w.job(id); return j.Status == status }) {
		w.Fatalf("the job is %s, not %s\n%s", j.Status, status, w.log)
	}
	return j
}

// runs are the runs of the store.
func (w *world) runs() []service.Run {
	w.Helper()
	found, err := w.ListRuns(w.Context(), store.RunQuery{Limit: 100})
	if err != nil {
		w.Fatal(err)
	}
	return found
}

func types(j fakemesh.Job) (out []string) {
	for _, e := range j.Events {
		out = append(out, e.Type)
	}
	return out
}

// TestAJobOfAMeshIsARun is G22: what a consumer submits is claimed, run and ended with the verdict.
func TestAJobOfAMeshIsARun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("run_eval", `{"evalSet": "echo", "inputs": {"text": "hello planted-value-7c1d2e"}}`, "")
	j := w.reaches(id, "completed")
	var result struct{ RunID, Status, Verdict string }
	if err := json.Unmarshal(j.Result, &result); err != nil || result.Verdict != "finished" || result.Status != "successful" {
		t.Fatalf("%s: %v", j.Result, err)
	}
	if j.AttemptCount != 1 || j.Progress == nil || *j.Progress != 1 {
		t.Errorf("%+v", j)
	}
	if got := types(j); !slices.Equal(got, []string{"run.created", "run.finished"}) {
		t.Errorf("its events are %v", got)
	}
	if j := w.reaches(w.submit("greet", `{}`, ""), "completed"); j.AttemptCount != 1 {
		t.Errorf("%+v", j)
	}
	if j := w.reaches(w.submit("run_eval", `{"evalSet": "bad"}`, ""), "failed"); *j.Error != "exit: the agent ended with exit status 3" || j.AttemptCount != 1 {
		t.Errorf("%s, attempt %d", *j.Error, j.AttemptCount)
	}
	if n := len(w.runs()); n != 3 {
		t.Errorf("there are %d runs", n)
	}
	for _, one := range w.registry.Jobs() {
		if data, _ := json.Marshal(one.Events); bytes.Contains(data, []byte("planted-value")) || bytes.Contains(one.Result, []byte("planted-value")) {
			t.Errorf("the registry was told a secret: %s %s", one.Result, data)
		}
	}
	w.stop()
	if ids := w.registry.Agents(); len(ids) != 0 {
		t.Errorf("the agents %v are still there", ids)
	}
}

// TestPayloadsThatCannotBeRun says to whoever has submitted a job what was wrong.
func TestPayloadsThatCannotBeRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct{ capability, payload, want string }{
		{"run_eval", `{}`, "submitted_payload: expected evalSet, and agent, epochs, evalIds and inputs, or some of them"},
		{"run_eval", `{"evalSet": "ech"}`, `there is no eval set "ech"; there are: bad, echo, flaky, person, slow; did you mean "echo"?`},
		{"run_eval", `{"evalSet": "echo", "who": 1}`, `submitted_payload: unknown field "who"; expected evalSet, and agent`},
		{"run_eval", `{"evalSet": 1}`, "submitted_payload: evalSet: expected a string, got a JSON number"},
		{"run_eval", `{"evalSet": "echo", "evalIds": []}`, "submitted_payload: evalIds names no evaluation"},
		{"run_eval", `{"evalSet": "echo", "epochs": 0}`, "submitted_payload: epochs must be at least 1"},
		{"greet", `{"evalSet": "bad"}`, `submitted_payload: unknown field "evalSet": the job runs the eval set echo; expected agent`},
		{"greet", `{"agent": "nobody"}`, "nobody"},
	} {
		if j := w.reaches(w.submit(c.capability, c.payload, ""), "failed"); !strings.Contains(*j.Error, c.want) {
			t.Errorf("%s: %s lacks %s", c.payload, *j.Error, c.want)
		}
	}
	if n := len(w.runs()); n != 0 {
		t.Errorf("there are %d runs", n)
	}
}

// TestFaultsAreTriedAgain has a job given back when its run fails of what is to be tried again: each
// attempt is a run of its own.
func TestFaultsAreTriedAgain(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	j := w.reaches(w.submit("flaky", `{}`, ""), "completed")
	if j.AttemptCount != 2 || len(w.runs()) != 2 {
		t.Errorf("attempt %d, %d runs", j.AttemptCount, len(w.runs()))
	}
	j = w.reaches(w.submit("bad", `{}`, `, "max_retries": 2`), "failed")
	if j.AttemptCount != 3 || len(w.runs()) != 5 || *j.Error != "exit: the agent ended with exit status 3" {
		t.Errorf("attempt %d, %d runs, %s", j.AttemptCount, len(w.runs()), *j.Error)
	}
}

// TestAPersonAnswersAJob has a question shown as input_required, and answered by an event.
func TestAPersonAnswersAJob(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	id := w.submit("run_eval", `{"evalSet": "person"}`, "")
	if j := w.reaches(id, "input_required"); j.ProgressMessage == nil || *j.ProgressMessage != "Go on?" {
		t.Errorf("%+v", j)
	}
	w.send("/jobs/"+id+"/events", `{"type": "answer", "payload": {"nothing": 1}}`)
	w.send("/jobs/"+id+"/events", `{"type": "answer", "payload": {"value": {"approved": true}}}`)
	j := w.reaches(id, "completed")
	if got := types(j); !slices.Equal(got, []string{"run.created", "rollout.suspended", "answer", "answer", "rollout.resumed", "run.finished"}) {
		t.Errorf("its events are %v", got)
	}
	if !strings.Contains(w.log.String(), `an answer of the mesh is not taken`) {
		t.Errorf("the log does not tell of the answer that was none:\n%s", w.log)
	}
}

// TestWhatEndsAJobEndsItsRun cancels the run of a job that was cancelled, claimed by another agent,
// or whose deadline has passed; also if that happened while nobody listened.
func TestWhatEndsAJobEndsItsRun(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	other := "other-agent"
	cancelled, asleep := w.submit("run_eval", `{"evalSet": "slow"}`, ""), w.submit("run_eval", `{"evalSet": "slow"}`, "")
	taken := w.submit("run_eval", `{"evalSet": "slow"}`, `, "max_duration": 3`)
	late := w.submit("run_eval", `{"evalSet": "slow"}`, `, "total_deadline": 1`)
	if j := w.reaches(late, "failed"); *j.Error != "deadline_exceeded" {
		t.Errorf("%s", *j.Error)
	}
	open := func() (n int) {
		for _, r := range w.runs() {
			if !r.Final() {
				n++
			}
		}
		return n
	}
	until := func(n int) {
		t.Helper()
		if !testenv.Eventually(func() bool { return open() == n && len(w.runs()) == 4 }) {
			t.Fatalf("%d runs of %d go on, not %d\n%s", open(), len(w.runs()), n, w.log)
		}
	}
	until(3)
	w.send("/jobs/"+cancelled+"/cancel", `{"reason": "enough"}`)
	until(2)
	w.registry.Change(taken, func(j *fakemesh.Job) { j.OwnerInstanceID = &other; j.ClaimEpoch++ })
	until(1)
	w.stop()
	if ids := w.registry.Agents(); len(ids) != 1 {
		t.Errorf("the agents are %v: one goes on with its job", ids)
	}
	w.send("/jobs/"+asleep+"/cancel", `{}`)
	w.provide()
	until(0)
}

// TestALeaseThatHasLapsed has its job claimed again, and gone on with: there is one run.
func TestALeaseThatHasLapsed(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	id := w.submit("run_eval", `{"evalSet": "person"}`, `, "max_retries": 3, "max_duration": 3`)
	w.reaches(id, "input_required")
	w.registry.Sweep(time.Now().Add(time.Hour))
	if !testenv.Eventually(func() bool { j := w.job(id); return j.ClaimEpoch == 2 && j.Status == "input_required" }) {
		t.Fatalf("%+v\n%s", w.job(id), w.log)
	}
	w.send("/jobs/"+id+"/events", `{"type": "answer", "payload": {"value": 1}}`)
	if j := w.reaches(id, "completed"); j.AttemptCount != 2 || len(w.runs()) != 1 {
		t.Errorf("attempt %d, %d runs", j.AttemptCount, len(w.runs()))
	}
}

// TestAJobThatComesBack runs a job again that another agent has claimed and given back: nobody has
// cancelled it.
func TestAJobThatComesBack(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	id := w.submit("run_eval", `{"evalSet": "person"}`, `, "max_retries": 5`)
	w.reaches(id, "input_required")
	other := "other-agent"
	w.registry.Change(id, func(j *fakemesh.Job) { j.OwnerInstanceID = &other; j.ClaimEpoch++ })
	if !testenv.Eventually(func() bool { return len(w.runs()) == 1 && w.runs()[0].Final() }) {
		t.Fatalf("the run goes on\n%s", w.log)
	}
	w.registry.Change(id, func(j *fakemesh.Job) { j.OwnerInstanceID, j.Status = nil, "working" })
	w.reaches(id, "input_required")
	w.send("/jobs/"+id+"/events", `{"type": "answer", "payload": {"value": 1}}`)
	w.reaches(id, "completed")
	if n := len(w.runs()); n != 2 {
		t.Errorf("there are %d runs", n)
	}
}
