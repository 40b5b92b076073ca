package engine_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/engine"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
)

// Invariant: A start that keeps failing costs a bounded number of requests and
// ends at its deadline.
func TestAStartThatKeepsFailing(t *testing.T) {
	testenv.NeedSlow(t)
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

// The same without a connection, when nobody can count requests: what is due is never due in
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

// One refused connection is no reason to give up, also where a job must not be started twice.
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

// What could not be started in time is not started any more, also if its source is well again.
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

// A job whose start was broken off is looked for after the deadline, where its source can be
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
	if err := os.MkdirAll(filepath.Join(files.Of(w.store).Work(claims[0].RolloutID), "workspace"), 0o700); err != nil {
		w.t.Fatal(err)
	}
}

// At the deadline an error of the source is not an answer.
func TestASourceThatCannotBeAskedAtTheDeadline(t *testing.T) {
	testenv.NeedSlow(t)
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

// A job whose trigger has expired is cancelled, once; likewise one that somebody has answered
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

// A question that is asked again in other words is another question. One whose members only
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

// A rollout that has used up limits.timeout is not tried again, as nothing is left for another
// attempt; one that has only used up its segment's is.
func TestATimeoutIsRepeatedOnlyIfTimeIsLeft(t *testing.T) {
	testenv.NeedSlow(t)
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
			if o := p.rollouts(s, runID)[0]; o.State != eval.StateFaulted || o.Fault.Category != "timeout" || o.Attempt != test.attempts {
				t.Errorf("%s after attempt %d: %+v; expected attempt %d", o.State, o.Attempt, o.Fault, test.attempts)
			}
		})
	}
}
