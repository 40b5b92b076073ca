package engine_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
)

// workUntilStopped works as w.play does, until the service calls stop.
func (w *jobWorld) workUntilStopped(grace time.Duration, while func(stop func())) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	w.change(func() { while(cancel) })
	for range 10 {
		r := engine.New(engine.Options{Store: w.store, RunID: w.runID, Concurrency: 1, WorkDir: w.dir, Resolve: os.LookupEnv, Now: w.Now, StopGrace: grace})
		if err := r.Run(ctx, engine.UntilIdle); err != nil {
			w.t.Fatal(err)
		}
		if ctx.Err() != nil {
			return
		}
		w.advance(time.Second)
	}
	w.t.Fatalf("nothing has stopped it: %s", w.requests)
}

// found is a service whose job is done as soon as it was started.
func found(started *bool) func(string) (int, string) {
	return func(request string) (int, string) {
		switch {
		case strings.HasPrefix(request, "POST"):
			*started = true
		case strings.HasPrefix(request, "GET /find") && !*started:
			return http.StatusOK, `{"id": null}`
		}
		return http.StatusOK, `{"id": 7, "done": true}`
	}
}

// R21: a stop at any request never makes a fault, spends no attempt, and no job is started twice.
func TestAStopSaysNothingOfASource(t *testing.T) {
	testenv.NeedSlow(t)
	for kind, jobs := range map[string]string{"idempotent": idempotentJobs, "searchable": searchableJobs, "at most once": atMostOnceJobs} {
		for _, at := range []string{"GET /find", "POST", "GET /jobs/7"} {
			if at == "GET /find" && kind != "searchable" {
				continue
			}
			t.Run(kind+", "+at, func(t *testing.T) {
				started := false
				w := newJobWorld(t, jobs, callsJob, time.Minute, nil)
				w.workUntilStopped(time.Minute, func(stop func()) {
					w.answer = func(request string) (int, string) {
						if strings.HasPrefix(request, at) {
							stop()
						}
						return found(&started)(request)
					}
				})
				if g := w.rollout().Triggers[0]; g.Fault != nil || g.Failures != 0 || g.LastError != "" || g.Attempts > 1 {
					t.Errorf("after the stop: %s, %d failures (%s), %d attempts, %+v", g.State, g.Failures, g.LastError, g.Attempts, g.Fault)
				}
				w.change(func() { w.answer = found(&started) })
				w.play(10 * time.Second)
				w.completed()
				if n := w.count("POST /jobs"); n != 1 {
					t.Errorf("the job was started %d times: %s", n, w.requests)
				}
			})
		}
	}
}

// R21: nothing is begun at a source once the process is to stop: the trigger is as it was.
func TestAStopBeforeTheRequest(t *testing.T) {
	started := false
	w := newJobWorld(t, atMostOnceJobs, callsJob, time.Minute, found(&started))
	w.suspendOnly()
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	claims, err := w.store.ClaimTriggers(t.Context(), w.runID, 1)
	if err != nil || len(claims) != 1 {
		t.Fatalf("%+v, %v", claims, err)
	}
	r := engine.New(engine.Options{Store: w.store, RunID: w.runID, Resolve: os.LookupEnv, Now: w.Now})
	r.HandleTrigger(stopped, claims[0])
	if g := w.rollout().Triggers[0]; g.State != store.TriggerIntended || g.Attempts != 0 || g.Failures != 0 {
		t.Errorf("after the stop: %s, %d attempts, %d failures", g.State, g.Attempts, g.Failures)
	}
	w.play(10 * time.Second)
	w.completed()
}

// R21: a start that is not answered holds a stop up for the grace only. Whoever comes next finds out
// what has become of it.
func TestAStartThatIsNotAnsweredIsLeftAtAStop(t *testing.T) {
	for kind, jobs := range map[string]string{"idempotent": idempotentJobs, "searchable": searchableJobs} {
		t.Run(kind, func(t *testing.T) {
			started, over := false, make(chan struct{})
			w := newJobWorld(t, jobs, callsJob, time.Minute, nil)
			w.workUntilStopped(time.Millisecond, func(stop func()) {
				w.answer = func(request string) (int, string) {
					status, body := found(&started)(request)
					if strings.HasPrefix(request, "POST") {
						stop()
						<-over
					}
					return status, body
				}
			})
			close(over)
			if g := w.rollout().Triggers[0]; g.State != store.TriggerStarting || g.Failures != 0 || g.LastError != "" {
				t.Errorf("after the stop: %s, %d failures: %s", g.State, g.Failures, g.LastError)
			}
			w.change(func() { w.answer = found(&started) })
			w.play(10 * time.Second)
			w.completed()
			if n := w.count("POST"); kind == "searchable" && n != 1 {
				t.Errorf("the job was started %d times: %s", n, w.requests)
			}
		})
	}
}

// R21: what a job that has failed is said to have failed with is not made of the stop.
func TestAFaultAtAStopIsAskedForAgain(t *testing.T) {
	started := false
	jobs := strings.Replace(idempotentJobs, `"done": ".done"`, `"done": ".done", "failed": ".failed", "error": ".why"`, 1)
	failed := func(request string) (int, string) {
		if status, body := found(&started)(request); strings.HasPrefix(request, "POST") {
			return status, body
		}
		return http.StatusOK, `{"failed": true, "why": "out of paper"}`
	}
	w := newJobWorld(t, jobs, callsJob, time.Minute, nil)
	w.workUntilStopped(time.Minute, func(stop func()) {
		w.answer = func(request string) (int, string) {
			if strings.HasPrefix(request, "GET") {
				stop()
			}
			return failed(request)
		}
	})
	w.change(func() { w.answer = failed })
	w.play(10 * time.Second)
	if o := w.rollout(); o.Fault == nil || !strings.HasSuffix(o.Fault.Message, "the job failed: out of paper") {
		t.Errorf("the rollout is %s: %+v", o.State, o.Fault)
	}
}
