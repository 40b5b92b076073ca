package jobs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/serve/servetest"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// planted is the value of ${PLANTED}, which agents have and some show.
const planted = "planted-value-7c1d2e"

// The eval sets of a world are called as their agent is; each has one evaluation, and is scored by
// whether the output contains "yes".
var agents = map[string]string{
	"done":  `echo '{"answer":"yes","key":"'$PLANTED'"}'`,
	"wrong": `echo '{"answer":"no"}'`,
	"fails": `echo "out of paper, $PLANTED" >&2; exit 3`,
	// asks a person, and says what was answered.
	"asks": `in=$(cat); case "$in" in *'"resume":null'*) echo '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask","title":"Go on?","data":{}}}]}';; *) echo "$in";; esac`,
	// asks two persons at once.
	"asks-two": `in=$(cat); case "$in" in *'"resume":null'*) echo '{"__interrupt__":[{"id":"q1","value":{"type":"CreateTask","title":"One?","data":{}}},{"id":"q2","value":{"type":"CreateTask","title":"Two?","data":{}}}]}';; *) echo '{"answer":"yes"}';; esac`,
	// waits until the file go is there, which no test needs longer than it lives.
	"waits": `while [ ! -e go ]; do read -t 0.02 x </dev/zero; done; echo '{"answer":"yes"}'`,
	// fails twice.
	"third-time": `n=$(cat n 2>/dev/null || echo 0); n=$((n+1)); echo $n >n; [ $n -gt 2 ] || exit 1; echo '{"answer":"yes"}'`,
}

// world is a server of jobs over a store of its own.
type world struct {
	testing.TB
	dir       string
	service   *service.Service
	server    *httptest.Server
	variables runner.Variables
	// caller is who calls.
	caller access.Identity
}

func newWorld(t testing.TB, change ...func(*jobs.Options)) *world {
	t.Helper()
	w := &world{TB: t, dir: t.TempDir(), caller: access.Identity{Scopes: []access.Scope{access.Admin}}}
	w.write("variables", "PLANTED="+planted)
	config := "agents:\n"
	for _, name := range slices.Sorted(maps.Keys(agents)) {
		script := agents[name]
		w.write(name+"/agent.sh", script+"\n")
		config += fmt.Sprintf("  - {type: function, name: %s, command: [bash, agent.sh], cwd: %s, env: {PLANTED: \"${PLANTED}\"}}\n", name, name)
	}
	w.write("serve.yaml", config+"evalSets: sets\n")
	for name := range agents {
		w.addSet(name, name)
	}
	cfg, err := service.ReadConfig(filepath.Join(w.dir, "serve.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := runner.Open(filepath.Join(w.dir, "store"), runner.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if w.variables, err = runner.ReadVariables(nil, []string{filepath.Join(w.dir, "variables")}); err != nil {
		t.Fatal(err)
	}
	w.service = service.New(st, cfg, service.Options{Variables: w.variables})
	secrets := servetest.Watch(t, st.Dir())
	secrets.Plant("the value of a variable", planted)
	o := jobs.Options{Service: w.service, Grace: jobs.DefaultGrace, Log: slog.New(slog.NewTextHandler(secrets.Writer("the log", t.Output()), nil))}
	for _, f := range change {
		f(&o)
	}
	h := jobs.New(o)
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(out, r.WithContext(access.With(r.Context(), w.caller)))
	}))
	w.server.Listener = secrets.Listener(w.server.Listener)
	w.server.Start()
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) write(name, text string) {
	w.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// addSet adds an eval set that an agent runs.
func (w *world) addSet(name, agent string) {
	w.Helper()
	w.write("sets/"+name+".json", fmt.Sprintf(`{"version": "1.0", "id": %[1]q, "name": %[1]q, "agent": %[2]q, "retry": {"max": 1, "backoff": "1ms"},
 "evaluators": [{"version": "1.0", "id": "contains", "evaluatorTypeId": "uipath-contains", "evaluatorConfig": {"name": "C", "targetOutputKey": "answer"}}],
 "thresholds": {"score": 1},
 "evaluations": [{"id": "one", "name": "One", "inputs": {}, "evaluationCriterias": {"contains": {"searchText": "yes"}}}]}`, name, agent))
}

// execute runs an executor beside the test, and what keeps jobs, until the test ends or stop is
// called.
func (w *world) execute() (stop func()) {
	w.Helper()
	keep := w.keep()
	execute := w.beside(func(ctx context.Context) error {
		return w.service.Runner().Execute(ctx, runner.ExecuteOptions{Options: runner.Options{Variables: w.variables}})
	})
	return func() {
		execute()
		keep()
	}
}

// keep runs only what keeps jobs.
func (w *world) keep() (stop func()) { return w.keepFor(0) }

// keepFor also forgets jobs after some time.
func (w *world) keepFor(retention time.Duration) (stop func()) {
	w.Helper()
	return w.beside(func(ctx context.Context) error {
		jobs.Keep(ctx, w.service, retention, slog.New(slog.DiscardHandler))
		return nil
	})
}

func (w *world) beside(f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(stop)
	return stop
}

// reply is an answer of the server.
type reply struct {
	status int
	body   string
}

func (r reply) decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%v in %s", err, r.body)
	}
}

// send sends a request; header are names and values.
func (w *world) send(method, path, body string, header ...string) reply {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.server.URL+path, bytes.NewReader([]byte(body)))
	if err != nil {
		w.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.server.Client().Do(r)
	if err != nil {
		w.Error(err)
		return reply{}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.Error(err)
	}
	return reply{resp.StatusCode, string(data)}
}

// job is a job as a client reads it.
type job struct {
	AttemptCount    int              `json:"attempt_count"`
	Error           *string          `json:"error"`
	ID              string           `json:"id"`
	Owner           *string          `json:"owner_instance_id"`
	Lease           *int64           `json:"lease_expires_at"`
	Progress        *float64         `json:"progress"`
	ProgressMessage *string          `json:"progress_message"`
	Result          map[string]any   `json:"result"`
	Status          store.JobStatus  `json:"status"`
	MaxDuration     *int64           `json:"max_duration"`
	TotalDeadline   *int64           `json:"total_deadline"`
	Payload         *json.RawMessage `json:"submitted_payload"`
}

func (j job) reason() string {
	if j.Error == nil {
		return ""
	}
	return *j.Error
}

// submit submits a job; more are further members of the body.
func (w *world) submit(capability, more string, header ...string) string {
	w.Helper()
	r := w.send("POST", "/jobs", fmt.Sprintf(`{"capability":%q,"submitted_by":"test","submitted_payload":{}%s}`, capability, more), header...)
	var j job
	r.decode(w, &j)
	if r.status != http.StatusCreated {
		w.Fatalf("submit: %+v", r)
	}
	return j.ID
}

func (w *world) get(id string) (j job) {
	w.Helper()
	w.send("GET", "/jobs/"+id, "").decode(w, &j)
	return j
}

// reaches waits until a job has a status.
func (w *world) reaches(id string, status store.JobStatus) (j job) {
	w.Helper()
	for range 20 {
		r := w.send("GET", "/jobs/"+id+"?wait=5", "")
		r.decode(w, &j)
		if j.Status == status {
			return j
		}
		if j.Status.IsTerminal() {
			break
		}
	}
	w.Fatalf("the job is %s (%s), not %s", j.Status, j.reason(), status)
	return j
}

type events struct {
	Events []struct {
		Seq     int64           `json:"seq"`
		Type    string          `json:"type"`
		Payload json.RawMessage `json:"payload"`
		By      *string         `json:"posted_by"`
	} `json:"events"`
	Next int64 `json:"next_after"`
}

func (w *world) log(id, query string) (e events) {
	w.Helper()
	w.send("GET", "/jobs/"+id+"/events"+query, "").decode(w, &e)
	return e
}

func (w *world) post(id, body string) reply {
	w.Helper()
	return w.send("POST", "/jobs/"+id+"/events", body)
}

// lastEvent is the last event of a job that has ended.
func (w *world) lastEvent(id string) string {
	w.Helper()
	e := w.log(id, "").Events
	if len(e) == 0 {
		w.Fatal("there is no event")
	}
	return fmt.Sprintf("%s %s", e[len(e)-1].Type, e[len(e)-1].Payload)
}
