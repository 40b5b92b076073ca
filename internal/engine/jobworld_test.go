package engine_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/wait"
)

// jobWorld is a run of one rollout that waits for a job behind an HTTP API, and a clock that goes
// only when it is told to.
type jobWorld struct {
	*project
	store *sqlite.Store
	runID string

	mu       sync.Mutex
	now      time.Time
	requests []string

	// serving is held while the service answers; answer is what it says to a request, by method and
	// path.
	serving sync.Mutex
	answer  func(request string) (status int, body string)
}

// The kinds of job sources. POST /jobs starts a job, GET /find looks for it, GET /jobs/ID tells of
// it, POST /jobs/ID/cancel ends it.
const (
	idempotentJobs = `{"source": "http", "interval": "10ms", "start": {"url": "URL/jobs"}, "itemKey": ".id", "idempotencyHeader": "Key",
		"status": {"url": "URL/jobs/{itemKey}", "done": ".done"}, "cancel": {"url": "URL/jobs/{itemKey}/cancel"}}`
	searchableJobs = `{"source": "http", "interval": "10ms", "start": {"url": "URL/jobs"}, "itemKey": ".id", "find": {"url": "URL/find", "itemKey": ".id"},
		"status": {"url": "URL/jobs/{itemKey}", "done": ".done"}, "cancel": {"url": "URL/jobs/{itemKey}/cancel"}}`
	atMostOnceJobs = `{"source": "http", "interval": "10ms", "start": {"url": "URL/jobs"}, "itemKey": ".id", "status": {"url": "URL/jobs/{itemKey}", "done": ".done"}}`
)

// callsJob is an agent that starts a job and gives out its result.
const callsJob = `case $in in *'"resume":null'*) echo '{"__interrupt__": {"name": "P", "input_arguments": {}}}' ;; *) echo '{}' ;; esac`

// newJobWorld stores the run. The agent has not been started.
func newJobWorld(t *testing.T, jobs, script string, suspendTimeout time.Duration, answer func(string) (int, string)) *jobWorld {
	w := &jobWorld{project: newProject(t), now: time.Now(), answer: answer}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	w.store = w.openAs()
	w.plan(strings.ReplaceAll(jobs, "URL", server.URL), script, suspendTimeout)
	return w
}

// openAs opens the store as another process would.
func (w *jobWorld) openAs() *sqlite.Store {
	w.t.Helper()
	s, err := sqlite.Open(filepath.Join(w.dir, ".evalrun"), store.Options{Now: w.Now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return s
}

func (w *jobWorld) plan(jobs, script string, suspendTimeout time.Duration) {
	w.t.Helper()
	node, err := input.Parse("jobs.json", []byte(`{"P": `+jobs+`}`))
	if err != nil {
		w.t.Fatal(err)
	}
	reader := &input.Reader{}
	parsed := wait.ParseJobs(reader, node)
	if len(reader.Problems) > 0 {
		w.t.Fatal(reader.Problems)
	}
	entry := function.FromCommand([]string{"sh", "-ec", "in=$(cat)\n" + script})
	plan, err := plans.New(plans.Request{Jobs: parsed, Agents: []agent.Entry{entry}, BaseDir: w.dir, WorkDir: w.dir, Set: &eval.Set{
		ID: "set", Name: "Set", Epochs: 1, Limits: eval.Limits{Suspensions: 100, OutputBytes: 1 << 20, SuspendTimeout: suspendTimeout},
		Evaluations: []eval.Evaluation{{ID: "e", Name: "E", Inputs: json.RawMessage(`{}`), Criteria: map[string]json.RawMessage{}}},
	}}, w.store.Dir())
	if err != nil {
		w.t.Fatal(err)
	}
	w.runID = plan.RunID
	if _, err := w.store.CreateRun(w.t.Context(), plan); err != nil {
		w.t.Fatal(err)
	}
}

// ServeHTTP is the job service.
func (w *jobWorld) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	request := r.Method + " " + r.URL.Path
	w.mu.Lock()
	w.requests = append(w.requests, request)
	w.mu.Unlock()
	w.serving.Lock()
	status, body := w.answer(request)
	w.serving.Unlock()
	out.WriteHeader(status)
	_, _ = io.WriteString(out, body)
}

// change changes what the service answers.
func (w *jobWorld) change(f func()) {
	w.serving.Lock()
	defer w.serving.Unlock()
	f()
}

// Now is the time of the store, the runner and the sources.
func (w *jobWorld) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *jobWorld) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// count counts the requests so far, or those that begin with a prefix.
func (w *jobWorld) count(prefix string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// work does what is due now.
func (w *jobWorld) work() {
	w.t.Helper()
	r := engine.New(engine.Options{Store: w.store, RunID: w.runID, Concurrency: 1, WorkDir: w.dir, Resolve: os.LookupEnv, Now: w.Now})
	if err := r.Run(w.t.Context(), engine.UntilIdle); err != nil {
		w.t.Fatal(err)
	}
}

// play works for a time of the clock, as an executor would.
func (w *jobWorld) play(d time.Duration) {
	w.t.Helper()
	end := w.Now().Add(d)
	for {
		w.work()
		left := end.Sub(w.Now())
		if left <= 0 {
			return
		}
		b, err := w.store.Backlog(w.t.Context(), w.runID)
		if err != nil {
			w.t.Fatal(err)
		}
		step := left
		if !b.NextDue.IsZero() || b.Due > 0 {
			step = min(max(b.NextDue.Sub(w.Now()), 100*time.Millisecond), left) // what is due again at once is not due for ever
		}
		w.advance(step)
	}
}

func (w *jobWorld) rollout() store.RolloutView {
	w.t.Helper()
	return w.rollouts(w.store, w.runID)[0]
}

// expired checks that the rollout ended with the fault suspend-timeout, and how long after it was
// planned.
func (w *jobWorld) expired(message string, after time.Duration) {
	w.t.Helper()
	o := w.rollout()
	if o.State != eval.StateFaulted || o.Fault.Category != "suspend-timeout" || !strings.Contains(o.Fault.Message, message) {
		w.t.Fatalf("the rollout is %s: %+v; expected the fault suspend-timeout with %q\n%s", o.State, o.Fault, message, w.requests)
	}
	if took := o.FinishedAt.Sub(o.CreatedAt); took > after {
		w.t.Errorf("it ended after %v, expected at most %v", took, after)
	}
}

func (w *jobWorld) completed() {
	w.t.Helper()
	if o := w.rollout(); o.State != eval.StateCompleted {
		w.t.Fatalf("the rollout is %s: %+v, expected completed\n%s", o.State, o.Fault, w.requests)
	}
}

// refused is a URL where nobody listens until up is called.
func refused(t *testing.T) (url string, up func(http.Handler)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return "http://" + addr, func(h http.Handler) {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewUnstartedServer(h)
		server.Listener = l
		server.Start()
		t.Cleanup(server.Close)
	}
}

func always(status int, body string) func(string) (int, string) {
	return func(string) (int, string) { return status, body }
}

// notFound answers that there is no such job, and fails every start.
func notFound(request string) (int, string) {
	if strings.HasPrefix(request, "GET /find") {
		return http.StatusOK, `{"id": null}`
	}
	return http.StatusInternalServerError, "out of order"
}
