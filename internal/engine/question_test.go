package engine_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/peers/fakemesh"
	"github.com/evalrun/evalrun/internal/store"
)

// meshWorld is a run of one rollout that waits for a job of MCP Mesh.
type meshWorld struct {
	*jobWorld
	registry *fakemesh.Registry
}

func newMeshWorld(t *testing.T, suspendTimeout time.Duration) *meshWorld {
	registry := &fakemesh.Registry{}
	server := httptest.NewServer(registry)
	t.Cleanup(server.Close)
	w := &meshWorld{newJobWorld(t, `{"source": "mesh", "url": "`+server.URL+`"}`, callsJob, suspendTimeout, nil), registry}
	registry.Now = w.Now
	w.play(time.Second)
	return w
}

// asks has the worker of the job ask something. The job's status tells only what it is at the
// moment.
func (w *meshWorld) asks(text string) {
	w.worker(func(j *fakemesh.Job) { j.Status, j.ProgressMessage = "input_required", &text })
}

func (w *meshWorld) worker(f func(j *fakemesh.Job)) {
	w.t.Helper()
	jobs := w.registry.Jobs()
	if len(jobs) != 1 {
		w.t.Fatalf("%d jobs were submitted", len(jobs))
	}
	w.registry.Change(jobs[0].ID, f)
}

// questions are the questions of the job so far, in order.
func (w *meshWorld) questions() []store.Trigger {
	w.t.Helper()
	return slices.DeleteFunc(w.rollout().Triggers, func(g store.Trigger) bool { return g.AskedBy == "" })
}

// last is the last question, which is in the state given.
func (w *meshWorld) last(state store.TriggerState, count int) store.Trigger {
	w.t.Helper()
	asked := w.questions()
	if len(asked) != count || asked[len(asked)-1].State != state {
		w.t.Fatalf("expected %d questions, the last %s: %+v", count, state, asked)
	}
	return asked[len(asked)-1]
}

func (w *meshWorld) deliver(d store.Delivery) {
	w.t.Helper()
	if r, err := w.store.Deliver(w.t.Context(), d); err != nil || r.Disposition != store.Accepted {
		w.t.Fatalf("%+v, %v", r, err)
	}
}

func (w *meshWorld) events() []fakemesh.Event { return w.registry.Jobs()[0].Events }

// What a job asks, a person answers, once for each question; then the job goes on, and its result
// resumes the rollout.
func TestAJobAsksAPerson(t *testing.T) {
	w := newMeshWorld(t, time.Hour)
	w.asks("for which day?")
	w.play(2 * time.Minute)
	q := w.last(store.TriggerWaiting, 1)
	if q.Type != "TASK" || !strings.Contains(string(q.Spec), "for which day?") || q.Deadline.IsZero() {
		t.Errorf("%+v", q)
	}
	w.deliver(store.Delivery{TriggerID: q.ID, Status: store.StatusSuccessful, Payload: json.RawMessage(`"Monday"`), By: "approve"})
	w.play(30 * time.Second) // the worker has not noticed the answer yet
	if e := w.events(); len(e) != 1 || e[0].Type != "answer" || string(e[0].Payload) != `{"value":"Monday"}` {
		t.Fatalf("%+v", e)
	}
	w.last(store.TriggerFired, 1)
	w.asks("for which city?")
	w.play(time.Minute)
	q = w.last(store.TriggerWaiting, 2)
	w.deliver(store.Delivery{TriggerID: q.ID, Status: store.StatusSuccessful, Payload: json.RawMessage(`"Oslo"`), By: "approve"})
	w.play(time.Second)
	w.worker(func(j *fakemesh.Job) { j.Status = "working" })
	w.play(time.Minute)
	w.last(store.TriggerConsumed, 2)
	w.asks("for which city?") // the same, but it has worked in between
	w.play(time.Minute)
	w.last(store.TriggerWaiting, 3)
	w.worker(func(j *fakemesh.Job) { j.Status, j.Result = "completed", json.RawMessage(`{"sun":true}`) })
	w.play(time.Minute)
	w.completed()
	w.last(store.TriggerSuperseded, 3)
	if o := w.rollout(); o.Suspensions != 1 || len(w.events()) != 2 {
		t.Errorf("%d suspensions, %+v", o.Suspensions, w.events())
	}
}

// A job that does not take the answer, but seems to ask the same, is asked for once more.
func TestAnAnswerThatIsNotNoticedIsAskedForAgain(t *testing.T) {
	w := newMeshWorld(t, time.Hour)
	w.asks("for which day?")
	w.play(time.Minute)
	w.deliver(store.Delivery{TriggerID: w.last(store.TriggerWaiting, 1).ID, Status: store.StatusSuccessful, Payload: json.RawMessage(`1`), By: "approve"})
	w.play(50 * time.Second)
	w.last(store.TriggerFired, 1)
	w.play(time.Minute)
	w.last(store.TriggerWaiting, 2)
}

// A question that somebody delivers a failure for ends the job, since nobody will answer it.
func TestAQuestionThatIsRefused(t *testing.T) {
	w := newMeshWorld(t, time.Hour)
	w.asks("may I?")
	w.play(time.Minute)
	w.deliver(store.Delivery{TriggerID: w.last(store.TriggerWaiting, 1).ID, Status: store.StatusFaulted, Fault: fault.New(fault.Job, "never"), By: "deliver"})
	w.play(time.Minute)
	o := w.rollout()
	if o.Fault == nil || o.Fault.Category != fault.Job || !strings.Contains(o.Fault.Message, "never") {
		t.Errorf("%s %+v", o.State, o.Fault)
	}
	if got := w.registry.Jobs()[0].Status; got != "cancelled" {
		t.Errorf("the job is %s", got)
	}
}

// At the deadline of the suspension the question ends with the wait, and the job is cancelled. It
// was told the deadline.
func TestAQuestionThatNobodyAnswers(t *testing.T) {
	w := newMeshWorld(t, time.Minute)
	w.asks("may I?")
	w.play(2 * time.Minute)
	w.expired("nothing arrived", 61*time.Second)
	w.last(store.TriggerSuperseded, 1)
	job := w.registry.Jobs()[0]
	if job.Status != "cancelled" || job.TotalDeadline == nil || job.Headers.Get("X-Mesh-Timeout") != "59" && job.Headers.Get("X-Mesh-Timeout") != "60" {
		t.Errorf("%+v", job)
	}
}
