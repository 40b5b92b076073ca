package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/peers/fakemesh"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

// world is a registry, a source of its jobs, and a clock that goes only when it is told to.
type world struct {
	t        *testing.T
	registry *fakemesh.Registry
	source   wait.Asker
	now      time.Time
	// steps are those of the source's requests.
	steps waittest.Transport
	// before, if not nil, answers a request in place of the registry, if it returns true.
	before func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []string
}

func newWorld(t *testing.T, config string) *world {
	t.Helper()
	w := &world{t: t, now: time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)}
	w.registry = &fakemesh.Registry{Now: func() time.Time { return w.now }}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	jobs := waittest.ParseJobs(t, `{"P":`+strings.ReplaceAll(config, "URL", s.URL)+`}`)
	c := httpcall.Client(&http.Client{Transport: &w.steps})
	t.Cleanup(c.CloseIdleConnections)
	resolve := func(name string) (string, bool) { return "secret", name == "TOKEN" }
	env := wait.Env{HTTP: c, Resolve: resolve, Rand: func() float64 { return 0.5 }, Now: func() time.Time { return w.now }}
	settings := jobs["P"].Settings.(*Config)
	w.source = New(httpcall.Caller{Env: env, Polling: settings.Polling}, *settings).(wait.Asker)
	return w
}

func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.requests = append(w.requests, r.Method+" "+r.URL.Path)
	w.mu.Unlock()
	if w.before == nil || !w.before(out, r) {
		w.registry.ServeHTTP(out, r)
	}
}

func (w *world) count(request string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.requests {
		if r == request {
			n++
		}
	}
	return n
}

// job is a trigger whose agent has said value.
func (w *world) job(value string) wait.Job {
	w.t.Helper()
	specs, err := wait.ParseSpecs(json.RawMessage(value))
	if err != nil {
		w.t.Fatal(err)
	}
	return wait.Job{TriggerID: triggerID, RolloutID: "00000000-aaaa-5bbb-8ccc-dddddddddddd", Spec: specs[0], Since: w.now}
}

func (w *world) started(j wait.Job) (wait.Job, fakemesh.Job) {
	w.t.Helper()
	key, err := w.source.Start(w.t.Context(), j)
	if err != nil {
		w.t.Fatal(err)
	}
	jobs := w.registry.Jobs()
	last := jobs[len(jobs)-1]
	if key != last.ID {
		w.t.Fatalf("the key %q, and the job %q", key, last.ID)
	}
	j.ItemKey = key
	return j, last
}

const (
	triggerID = "0d9cb4d0-1111-5222-8333-444455556666"
	plain     = `{"source":"mesh","url":"URL"}`
	forecast  = `{"type":"MESH_JOB","capability":"forecast","submitted_payload":{"city":"Oslo","n":12345678901234567890}}`
)

func TestSourceKeepsToItsInterface(t *testing.T) {
	w := newWorld(t, plain)
	j := w.job(forecast)
	waittest.Run(t, waittest.Case{
		Source: w.source, Job: j, Starts: func() int { return len(w.registry.Jobs()) }, OnStep: w.steps.OnStep,
		End: func() {
			jobs := w.registry.Jobs()
			w.registry.Change(jobs[len(jobs)-1].ID, func(j *fakemesh.Job) { j.Status, j.Result = "completed", json.RawMessage(`{"sun":true}`) })
		},
	})
}

// What is submitted is what the agent or the configuration asks for, with the id of the trigger,
// and not for longer than the wait lasts.
func TestSubmission(t *testing.T) {
	for _, c := range []struct {
		name, config, value string
		deadline            time.Duration
		want                string
		headers             map[string]string
	}{
		{"what an agent asks for", plain, forecast, 0,
			`{"capability":"forecast","max_duration":null,"max_retries":1,"submitted_by":"evalrun:T","submitted_payload":{"city":"Oslo","n":12345678901234567890,"_evalrun":"T"},"total_deadline":null}`,
			map[string]string{"X-Mesh-Job-Id": triggerID, "Traceparent": "00-00000000aaaa5bbb8cccdddddddddddd-d4e8f89b721fd7a1-01", "X-Mesh-Timeout": "", "Idempotency-Key": triggerID}},
		{"a process", `{"source":"mesh","url":"URL/","capability":"forecast.make","token":"${TOKEN}","headers":{"X-Tenant":"t-${TOKEN}"},"payloadToken":"","maxDuration":"10m","maxRetries":0}`,
			`{"name":"P","input_arguments":{"city":"Oslo"}}`, 0,
			`{"capability":"forecast.make","max_duration":600,"max_retries":0,"submitted_by":"evalrun:T","submitted_payload":{"city":"Oslo"},"total_deadline":null}`,
			map[string]string{"Authorization": "Bearer secret", "X-Tenant": "t-secret"}},
		{"the agent asks for less", `{"source":"mesh","url":"URL","maxDuration":"10m"}`, `{"type":"MeshJob","capability":"c","max_duration":60,"max_retries":3}`, 0,
			`{"capability":"c","max_duration":60,"max_retries":3,"submitted_by":"evalrun:T","submitted_payload":{"_evalrun":"T"},"total_deadline":null}`, nil},
		{"the wait ends before", `{"source":"mesh","url":"URL","maxDuration":"10m","payloadToken":"token"}`, `{"type":"MeshJob","capability":"c"}`, 90500 * time.Millisecond,
			`{"capability":"c","max_duration":90,"max_retries":1,"submitted_by":"evalrun:T","submitted_payload":{"token":"T"},"total_deadline":1783339290}`,
			map[string]string{"X-Mesh-Timeout": "90"}},
		{"the wait ends, and nothing is asked for", plain, `{"type":"MeshJob","capability":"c"}`, time.Hour,
			`{"capability":"c","max_duration":null,"max_retries":1,"submitted_by":"evalrun:T","submitted_payload":{"_evalrun":"T"},"total_deadline":1783342800}`,
			map[string]string{"X-Mesh-Timeout": "3600"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, c.config)
			j := w.job(c.value)
			if c.deadline > 0 {
				j.Deadline = w.now.Add(c.deadline)
			}
			_, got := w.started(j)
			text, _ := json.Marshal(map[string]any{"capability": got.Capability, "max_duration": got.MaxDuration, "max_retries": got.MaxRetries,
				"submitted_by": got.SubmittedBy, "submitted_payload": got.SubmittedPayload, "total_deadline": got.TotalDeadline})
			if string(text) != strings.NewReplacer(`"T"`, `"`+triggerID+`"`, "evalrun:T", "evalrun:"+triggerID).Replace(c.want) {
				t.Errorf("submitted %s", text)
			}
			for name, want := range c.headers {
				if value := got.Headers.Get(name); value != want {
					t.Errorf("%s: %q, want %q", name, value, want)
				}
			}
		})
	}
}

// A start is looked for before it is made, by who has submitted a job or by the token in its
// payload, through all pages.
func TestAStartThatWasBrokenOffIsFound(t *testing.T) {
	for name, change := range map[string]func(j *fakemesh.Job){
		"by who has submitted it":    func(j *fakemesh.Job) { j.SubmittedPayload = json.RawMessage(`{}`) },
		"by the token":               func(j *fakemesh.Job) { j.SubmittedBy = "somebody whom a proxy has put there" },
		"although it has ended":      func(j *fakemesh.Job) { j.Status = "completed" },
		"submitted by another clock": func(j *fakemesh.Job) { j.SubmittedAt -= 600 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, plain)
			j := w.job(forecast)
			lost := true
			w.before = func(out http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || !lost {
					return false
				}
				lost = false
				w.registry.ServeHTTP(httptest.NewRecorder(), r) // and its answer is lost
				panic(http.ErrAbortHandler)
			}
			_, err := w.source.Start(t.Context(), j)
			var retry *wait.RetryError
			if !errors.As(err, &retry) || retry.NotStarted {
				t.Fatalf("%v", err)
			}
			id := w.registry.Jobs()[0].ID
			w.registry.Change(id, change)
			for i := range 401 {
				other := j
				other.TriggerID = fmt.Sprintf("other-%d", i)
				body := strings.NewReader(`{"capability":"forecast","submitted_by":"` + other.TriggerID + `","submitted_payload":{"_evalrun":"x"}}`)
				w.registry.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/jobs", body))
			}
			w.requests = nil
			if key, err := w.source.Start(t.Context(), j); key != id || err != nil {
				t.Errorf("%q, %v", key, err)
			}
			if w.count("GET /jobs") != 3 || w.count("POST /jobs") != 0 {
				t.Errorf("%q", w.requests)
			}
		})
	}
}

// The transport does not repeat a submission by itself, although it bears an idempotency key: a
// registry does not know such keys.
func TestASubmissionIsSentOnce(t *testing.T) {
	w := newWorld(t, plain)
	w.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	for range 3 { // over a connection that was used before, which is what net/http repeats
		if _, err := w.source.Start(t.Context(), w.job(forecast)); err == nil {
			t.Fatal("it was not answered")
		}
	}
	if n := w.count("POST /jobs"); n != 3 {
		t.Errorf("%d requests", n)
	}
}

func TestAStartThatIsRefused(t *testing.T) {
	for status, tried := range map[int]bool{400: false, 401: false, 404: false, 409: true, 501: true, 429: true, 503: true} {
		w := newWorld(t, plain)
		w.before = func(out http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				out.WriteHeader(status)
			}
			return r.Method == http.MethodPost
		}
		_, err := w.source.Start(t.Context(), w.job(forecast))
		var retry *wait.RetryError
		var f *fault.Fault
		if errors.As(err, &retry) != tried || errors.As(err, &f) == tried {
			t.Errorf("%d: %v", status, err)
		}
	}
	t.Run("too late", func(t *testing.T) {
		w := newWorld(t, plain)
		j := w.job(forecast)
		j.Deadline = w.now
		_, err := w.source.Start(t.Context(), j)
		var retry *wait.RetryError
		if !errors.As(err, &retry) || !retry.NotStarted || !strings.Contains(err.Error(), "has left is over") || len(w.registry.Jobs()) != 0 {
			t.Errorf("%v", err)
		}
	})
}

// Whose fault it is that a job failed is told by what the registry says of it.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		status, err string
		deadline    time.Duration
		category    fault.Category
		message     string
	}{
		{"failed", "the printer burns", 0, fault.Job, "the job failed: the printer burns"},
		{"failed", "", 0, fault.Job, "the job failed"},
		{"failed", "it is stale: really", 0, fault.Job, "it is stale"},
		{"cancelled", "cancelled: by me", 0, fault.Job, "the job was cancelled: by me"},
		{"cancelled", "", 0, fault.Job, "the job was cancelled"},
		{"failed", "deadline_exceeded", 0, fault.JobLost, "deadline_exceeded"},
		{"failed", "deadline_exceeded", time.Hour, fault.JobLost, "deadline_exceeded"},
		{"failed", "deadline_exceeded", -time.Second, fault.SuspendTimeout, "limits.suspendTimeout"},
		{"failed", "stale: no heartbeat", 0, fault.JobLost, "stale: no heartbeat"},
		{"failed", "orphaned: max retries exceeded", 0, fault.JobLost, "orphaned"},
		{"failed", "lease expired: no completion within lease window", 0, fault.JobLost, "lease expired"},
		{"failed", "exhausted (release): OSError", 0, fault.JobLost, "exhausted"},
	} {
		w := newWorld(t, plain)
		j, job := w.started(w.job(forecast))
		w.registry.Change(job.ID, func(j *fakemesh.Job) {
			j.Status = c.status
			if c.err != "" {
				j.Error = &c.err
			}
		})
		if c.deadline != 0 {
			j.Deadline = w.now.Add(c.deadline)
		}
		got, err := w.source.Check(t.Context(), j)
		if err != nil || !got.Done || got.Fault == nil || got.Fault.Category != c.category || !strings.Contains(got.Fault.Message, c.message) {
			t.Errorf("%s %q: %+v, %v", c.status, c.err, got.Fault, err)
		}
	}
}

// A job that is not there is lost. A registry that does not answer is asked again.
func TestCheckOfARegistryThatDoesNotTell(t *testing.T) {
	w := newWorld(t, plain)
	j, _ := w.started(w.job(forecast))
	status := 0
	w.before = func(out http.ResponseWriter, _ *http.Request) bool {
		out.WriteHeader(status)
		_, _ = out.Write([]byte(`{}`))
		return true
	}
	for _, status = range []int{200, 401, 403, 500, 503} {
		if got, err := w.source.Check(t.Context(), j); err == nil || got.Done {
			t.Errorf("%d: %+v, %v", status, got, err)
		}
	}
	status = http.StatusNotFound
	if got, err := w.source.Check(t.Context(), j); err != nil || !got.Done || got.Fault.Category != fault.JobLost {
		t.Errorf("%+v, %v", got, err)
	}
}

// A job that asks something is told the answer once, as an event, however often that is tried.
func TestAnswer(t *testing.T) {
	w := newWorld(t, `{"source":"mesh","url":"URL","answer":{"type":"user input","payload":{"text":"{answer}"}}}`)
	j, job := w.started(w.job(forecast))
	w.registry.Change(job.ID, func(j *fakemesh.Job) {
		text := "for which day?"
		j.Status, j.ProgressMessage = "input_required", &text
	})
	got, err := w.source.Check(t.Context(), j)
	if err != nil || got.Done || got.Question == nil || *got.Question != (wait.Question{Title: "for which day?", Job: job.ID, Process: "forecast"}) {
		t.Fatalf("%+v, %v", got, err)
	}
	answer := wait.Answer{ID: "q1", Payload: json.RawMessage(`{"day":1.50}`)}
	lost := true
	w.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && lost {
			lost = false
			w.registry.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		return false
	}
	if err := w.source.Answer(t.Context(), j, answer); err == nil {
		t.Fatal("it was not answered")
	}
	for range 2 {
		if err := w.source.Answer(t.Context(), j, answer); err != nil {
			t.Fatal(err)
		}
	}
	events := w.registry.Jobs()[0].Events
	if len(events) != 1 || events[0].Type != "user input" || string(events[0].Payload) != `{"text":{"day":1.50}}` {
		t.Errorf("%+v", events)
	}
	if err := w.source.Answer(t.Context(), j, wait.Answer{ID: "q2", Payload: json.RawMessage(`1`)}); err != nil || len(w.registry.Jobs()[0].Events) != 2 {
		t.Errorf("another answer: %v", err)
	}
	w.registry.Change(job.ID, func(j *fakemesh.Job) { j.Status = "completed" })
	if err := w.source.Answer(t.Context(), j, wait.Answer{ID: "q3", Payload: json.RawMessage(`1`)}); !errors.Is(err, wait.ErrNotTaken) {
		t.Errorf("of a job that has ended: %v", err)
	}
}

// A job is cancelled, with 200 for one that goes on and 409 for one that has ended.
func TestCancel(t *testing.T) {
	w := newWorld(t, plain)
	j, _ := w.started(w.job(forecast))
	for range 2 {
		if err := w.source.Cancel(t.Context(), j); err != nil {
			t.Error(err)
		}
	}
	if got := w.registry.Jobs()[0]; got.Status != "cancelled" || *got.Error != "cancelled: nobody waits for it any more" || len(got.Events) != 1 {
		t.Errorf("%+v", got)
	}
	w.requests = nil
	unknown := w.job(forecast)
	unknown.ItemKey = unknown.OwnKey()
	if err := w.source.Cancel(t.Context(), unknown); err != nil || len(w.requests) != 0 {
		t.Errorf("%v, %q", err, w.requests)
	}
}
