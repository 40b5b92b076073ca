package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/workspace"
)

// jobWorld is a run of one rollout that waits for a job behind an HTTP API, and a clock that goes
// only when it is told to.
type jobWorld struct {
	*project
	store *store.SQLite
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
func (w *jobWorld) openAs() *store.SQLite {
	w.t.Helper()
	s, err := store.Open(filepath.Join(w.dir, ".evalrun"), store.Options{Now: w.Now})
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
	entry := agent.FromCommand([]string{"sh", "-ec", "in=$(cat)\n" + script})
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
	if o.State != store.StateFaulted || o.Fault.Category != "suspend-timeout" || !strings.Contains(o.Fault.Message, message) {
		w.t.Fatalf("the rollout is %s: %+v; expected the fault suspend-timeout with %q\n%s", o.State, o.Fault, message, w.requests)
	}
	if took := o.FinishedAt.Sub(o.CreatedAt); took > after {
		w.t.Errorf("it ended after %v, expected at most %v", took, after)
	}
}

func (w *jobWorld) completed() {
	w.t.Helper()
	if o := w.rollout(); o.State != store.StateCompleted {
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

// B1, invariant 12 of the design: a start that keeps failing costs a bounded number of requests and
// ends at its deadline.
func TestAStartThatKeepsFailing(t *testing.T) {
	for _, test := range []struct {
		name, jobs string
		answer     func(string) (int, string)
		within     time.Duration // the deadline is after 20 s; a source that cannot be asked has as much grace
	}{
		{"idempotent, 500", idempotentJobs, always(500, "out of order"), 21 * time.Second},
		{"searchable, not there, 500", searchableJobs, notFound, 21 * time.Second},
		{"searchable, everything is 500", searchableJobs, always(500, "out of order"), 41 * time.Second},
		{"at most once, 503", atMostOnceJobs, always(503, "out of order"), 21 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newJobWorld(t, test.jobs, callsJob, 20*time.Second, test.answer)
			w.play(time.Minute)
			if n := w.count(""); n > 10 {
				t.Errorf("%d requests in 60 s: %s", n, w.requests)
			}
			w.expired("out of order", test.within)
		})
		t.Run(test.name+", without a deadline", func(t *testing.T) {
			w := newJobWorld(t, test.jobs, callsJob, 0, test.answer)
			w.play(time.Minute)
			if n := w.count(""); n > 10 || n < 4 {
				t.Errorf("%d requests in 60 s: %s", n, w.requests)
			}
		})
	}
}

// B1: the same without a connection, when nobody can count requests: what is due is never due in
// the past.
func TestAStartThatIsRefusedExpires(t *testing.T) {
	url, _ := refused(t)
	w := newJobWorld(t, strings.ReplaceAll(atMostOnceJobs, "URL", url), callsJob, 20*time.Second, nil)
	w.play(time.Minute)
	w.expired("its job was not started: POST", 21*time.Second)
	if g := w.rollout().Triggers[0]; g.Attempts > 5 {
		t.Errorf("%d attempts", g.Attempts)
	}
}

// B2: one refused connection is no reason to give up, also where a job must not be started twice.
func TestARefusedStartIsTriedAgain(t *testing.T) {
	url, up := refused(t)
	w := newJobWorld(t, strings.ReplaceAll(atMostOnceJobs, "URL", url), callsJob, time.Minute, always(200, `{"id": 7, "done": true}`))
	w.work()
	if g := w.rollout().Triggers[0]; g.State != store.TriggerIntended || g.Failures != 1 || !strings.Contains(g.LastError, "refused") {
		t.Fatalf("the trigger is %s after %d failures: %s", g.State, g.Failures, g.LastError)
	}
	up(w)
	w.play(10 * time.Second)
	w.completed()
	if n := w.count("POST"); n != 1 {
		t.Errorf("the job was started %d times", n)
	}
}

// B3: what could not be started in time is not started any more, also if its source is well again.
func TestNoJobIsStartedAfterItsDeadline(t *testing.T) {
	for _, jobs := range []string{idempotentJobs, searchableJobs, atMostOnceJobs} {
		w := newJobWorld(t, jobs, callsJob, 20*time.Second, func(request string) (int, string) {
			if strings.HasPrefix(request, "POST") {
				return http.StatusServiceUnavailable, "not yet"
			}
			return http.StatusOK, `{"id": null}`
		})
		w.play(19 * time.Second)
		before := w.count("POST")
		w.change(func() {
			w.answer = func(request string) (int, string) {
				if strings.HasPrefix(request, "GET /find") {
					return http.StatusOK, `{"id": null}`
				}
				return http.StatusOK, `{"id": 7, "done": true}`
			}
		})
		w.advance(5 * time.Second)
		w.play(time.Minute)
		if n := w.count("POST"); n != before {
			t.Errorf("a job was started after the deadline: %s", w.requests)
		}
		w.expired("", 25*time.Second)
	}
}

// B3: a job whose start was broken off is looked for after the deadline, where its source can be
// asked. One that is found is asked after.
func TestABrokenOffStartIsLookedForAfterItsDeadline(t *testing.T) {
	for _, test := range []struct {
		name, jobs, found string
		completed         bool
	}{
		{"it is found", searchableJobs, `{"id": 7, "done": true}`, true},
		{"it is not found", searchableJobs, `{"id": null}`, false},
		{"it cannot be looked for", idempotentJobs, `{"id": 7, "done": true}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newJobWorld(t, test.jobs, callsJob, 20*time.Second, always(200, test.found))
			other := w.openAs()
			w.suspendOnly()
			if claims, err := other.ClaimTriggers(t.Context(), w.runID, 1); err != nil || len(claims) != 1 || claims[0].Action != store.ActionStart {
				t.Fatalf("%+v, %v", claims, err)
			}
			w.advance(40 * time.Second) // its lease is over, and so is the wait
			w.play(10 * time.Second)
			if n := w.count("POST"); n != 0 {
				t.Errorf("a job was started after the deadline: %s", w.requests)
			}
			if test.completed {
				w.completed()
			} else {
				w.expired("", time.Minute)
			}
		})
	}
}

// suspendOnly runs the agent and leaves its trigger alone.
func (w *jobWorld) suspendOnly() {
	w.t.Helper()
	claims, err := w.store.Claim(w.t.Context(), w.runID, 1)
	if err != nil || len(claims) != 1 {
		w.t.Fatalf("%+v, %v", claims, err)
	}
	spec, err := wait.ParseSpecs(json.RawMessage(`{"name": "P", "input_arguments": {}}`))
	if err != nil {
		w.t.Fatal(err)
	}
	data, err := json.Marshal(spec[0])
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.store.CommitSegment(w.t.Context(), claims[0].Token, store.SegmentEnd{Outcome: store.OutcomeSuspended, SuspendTimeout: 20 * time.Second, Triggers: []store.NewTrigger{
		{InterruptID: "i", Type: "JOB", Name: "JOB", Source: wait.SourceHTTP, KeyPrefix: "job-", Spec: data, Start: true, Checked: true},
	}}); err != nil {
		w.t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(workspace.WorkDir(w.store.Dir(), claims[0].RolloutID), "workspace"), 0o700); err != nil {
		w.t.Fatal(err)
	}
}

// B5: at the deadline an error of the source is not an answer.
func TestASourceThatCannotBeAskedAtTheDeadline(t *testing.T) {
	for _, test := range []struct {
		name  string
		fails int // requests after the deadline that fail
	}{{"once", 1}, {"three times", 3}, {"for ever", 1 << 30}} {
		t.Run(test.name, func(t *testing.T) {
			over := false // the deadline
			w := newJobWorld(t, idempotentJobs, callsJob, time.Minute, func(request string) (int, string) {
				switch {
				case !strings.HasPrefix(request, "GET"):
					return http.StatusOK, `{"id": 7}`
				case over && test.fails > 0:
					test.fails--
					return http.StatusServiceUnavailable, "later"
				default:
					return http.StatusOK, fmt.Sprintf(`{"done": %v}`, over)
				}
			})
			w.play(59 * time.Second)
			before := w.count("GET")
			w.advance(24 * time.Hour) // nobody is there at the deadline itself
			w.change(func() { over = true })
			w.play(5 * time.Minute)
			if test.name != "for ever" {
				w.completed()
				return
			}
			w.expired("its source could not be asked: GET", 25*time.Hour)
			if n := w.count("GET") - before; n < 3 || n > 10 {
				t.Errorf("asked %d times after the deadline", n)
			}
		})
	}
}

// B9: a job whose trigger has expired is cancelled, once; likewise one that somebody has answered
// by hand.
func TestAJobThatNobodyWaitsForIsCancelled(t *testing.T) {
	for _, byHand := range []bool{false, true} {
		w := newJobWorld(t, idempotentJobs, callsJob, time.Minute, always(200, `{"id": 7, "done": false}`))
		w.play(10 * time.Second)
		if byHand {
			d := store.Delivery{TriggerID: w.rollout().Triggers[0].ID, Status: store.StatusSuccessful, Payload: json.RawMessage(`{}`)}
			if receipt, err := w.store.Deliver(t.Context(), d); err != nil || receipt.Disposition != store.Accepted {
				t.Fatalf("%+v, %v", receipt, err)
			}
		}
		w.play(2 * time.Minute)
		if n := w.count("POST /jobs/7/cancel"); n != 1 {
			t.Errorf("by hand %v: the job was cancelled %d times: %s", byHand, n, w.requests)
		}
		if byHand {
			w.completed()
		} else {
			w.expired("nothing arrived for JOB 7 until", 61*time.Second)
		}
	}
}

// B10: a question that is asked again in other words is another question. One whose members only
// stand in another order is the same.
func TestAChangedInterruptSupersedes(t *testing.T) {
	script := `case $in in
		*'"resume":null'*) echo '{"__interrupt__": [{"id": "first", "value": "?"}, {"id": "same", "value": {"a": 1, "b": 2}}, {"id": "changes", "value": "old"}]}' ;;
		*) echo '{"__interrupt__": [{"id": "same", "value": {"b": 2, "a": 1}}, {"id": "changes", "value": "new"}]}' ;;
	esac`
	w := newJobWorld(t, idempotentJobs, script, time.Minute, nil)
	w.work()
	first := w.rollout().Triggers[0]
	if _, err := w.store.Deliver(t.Context(), store.Delivery{TriggerID: first.ID, Status: store.StatusSuccessful, Payload: json.RawMessage(`1`)}); err != nil {
		t.Fatal(err)
	}
	w.advance(10 * time.Second)
	w.work()
	var got []string
	for _, g := range w.rollout().Triggers {
		got = append(got, fmt.Sprintf("%s %d %s %v", g.InterruptID, g.Occurrence, g.State, g.Deadline.Sub(first.CreatedAt)))
	}
	want := []string{"first 0 consumed 1m0s", "same 0 waiting 1m0s", "changes 0 superseded 1m0s", "changes 1 waiting 1m10s"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// B8: a rollout that has used up limits.timeout is not tried again, as nothing is left for another
// attempt; one that has only used up its segment's is.
func TestATimeoutIsRepeatedOnlyIfTimeIsLeft(t *testing.T) {
	for _, test := range []struct {
		name     string
		limits   eval.Limits
		attempts int
	}{
		{"the rollout's", eval.Limits{Timeout: 200 * time.Millisecond}, 1},
		{"the segment's", eval.Limits{SegmentTimeout: 100 * time.Millisecond}, 3},
		{"both", eval.Limits{Timeout: 2 * time.Second, SegmentTimeout: 1200 * time.Millisecond}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newProject(t)
			s := p.open()
			runID := p.plan(s, 1, "exec sleep 60", func(set *eval.Set) {
				set.Limits.Timeout, set.Limits.SegmentTimeout = test.limits.Timeout, test.limits.SegmentTimeout
				set.Retry = eval.Retry{Max: 2, On: []string{"timeout"}, Backoff: time.Millisecond, MaxBackoff: time.Millisecond}
			})
			if err := p.runner(s, runID).Run(t.Context(), engine.UntilFinal); err != nil {
				t.Fatal(err)
			}
			if o := p.rollouts(s, runID)[0]; o.State != store.StateFaulted || o.Fault.Category != "timeout" || o.Attempt != test.attempts {
				t.Errorf("%s after attempt %d: %+v; expected attempt %d", o.State, o.Attempt, o.Fault, test.attempts)
			}
		})
	}
}
