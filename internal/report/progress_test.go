package report

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/schemas"
)

func (r *testRun) events(after int64) []schemas.Event {
	r.t.Helper()
	events, err := r.eventLog().Events(r.t.Context(), testRunID, after, 10000)
	r.check(err)
	return events
}

func (r *testRun) eventLog() EventLog { return storeEvents{r.st} }

type storeEvents struct{ st *sqlite.Store }

func (s storeEvents) Events(ctx context.Context, runID string, after int64, limit int) (out []schemas.Event, err error) {
	events, err := s.st.Events(ctx, runID, after, limit)
	for _, e := range events {
		out = append(out, EventOf(e))
	}
	return out, err
}

// eventfulRun has an event of every kind.
func eventfulRun(t *testing.T) *testRun {
	set := setOf([]eval.Definition{exact("exact")}, evaluation("a", "Passes"), evaluation("b", "Suspends"), evaluation("c", "Fails twice"), evaluation("d", "Is cancelled"))
	r := newRun(t, set)
	r.claim(3)
	r.complete("a", `1`, "", score("exact", 1))
	r.suspend("b", "", time.Hour, jobValue, `{"message":"hello"}`)
	f := fault.New("exit", "exit status 1")
	r.commit("c", store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: f, Retry: true, RetryAfter: time.Second}, nil)
	r.wait(time.Second)
	_, err := r.st.Cancel(t.Context(), store.RolloutID(testRunID, "d", "calculator", 1))
	r.check(err)
	r.claim(1)
	r.commit("c", store.SegmentEnd{Outcome: store.OutcomeInterrupted, Retry: true}, nil)
	r.claim(1)
	r.commit("c", store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: f}, nil)
	r.deliver("b", `{}`)
	r.claim(1)
	r.complete("b", `2`, "", score("exact", 0.5))
	return r
}

func TestEventsFitTheirSchema(t *testing.T) {
	r := eventfulRun(t)
	seen := map[schemas.EventType]bool{}
	for _, e := range r.events(0) {
		seen[e.Type] = true
		line, err := json.Marshal(e)
		r.check(err)
		if err := schemas.Validate("event", line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	for _, typ := range []schemas.EventType{schemas.EventRunCreated, schemas.EventRolloutStarted, schemas.EventRolloutSuspended, schemas.EventTriggerDelivered, schemas.EventRolloutResumed,
		schemas.EventRolloutRetried, schemas.EventRolloutEvaluated, schemas.EventRolloutFinished, schemas.EventRunFinished} {
		if !seen[typ] {
			t.Errorf("there was no %s", typ)
		}
	}
}

func TestLog(t *testing.T) {
	for name, verbose := range map[string]bool{"log.txt": false, "log-verbose.txt": true} {
		t.Run(name, func(t *testing.T) {
			r := eventfulRun(t)
			var b bytes.Buffer
			l := NewLog(&b, NewExecution("", 0, store.Counts{}), ProgressOptions{Verbose: verbose})
			for _, e := range r.events(0) {
				r.check(l.Event(e))
			}
			golden(t, name, b.Bytes())
		})
	}
}

func TestLogIsHarmless(t *testing.T) {
	for _, text := range hostile {
		quoted, _ := json.Marshal(text)
		var b bytes.Buffer
		l := NewLog(&b, NewExecution("", 0, store.Counts{}), ProgressOptions{Redact: redact.New(map[string]string{"TOKEN": "hush-hush"})})
		if err := l.Event(schemas.Event{Type: schemas.EventRolloutFinished, RolloutID: "o",
			Data: json.RawMessage(`{"state":"faulted","fault":{"category":"exit","message":` + string(quoted) + `}}`)}); err != nil {
			t.Fatal(err)
		}
		if strings.Count(b.String(), "\n") != 1 {
			t.Errorf("%q made more than one line: %s", text, &b)
		}
		checkForm(t, "log.txt", b.String())
	}
	var b bytes.Buffer
	l := NewLog(&b, NewExecution("", 0, store.Counts{}), ProgressOptions{Redact: redact.New(map[string]string{"TOKEN": "hush-hush"})})
	_ = l.Event(schemas.Event{Type: schemas.EventRolloutFinished, RolloutID: "o", Data: json.RawMessage(`{"state":"faulted","fault":{"category":"exit","message":"hush-hush"}}`)})
	if !strings.Contains(b.String(), "[redacted:TOKEN]") {
		t.Errorf("got %s", &b)
	}
}

// However a display joins a run, it counts the same in the end.
func TestExecution(t *testing.T) {
	r := eventfulRun(t)
	events := r.events(0)
	want := Execution{Total: 4, Completed: 2, Faulted: 1, Cancelled: 1}
	counts := func(x *Execution) Execution {
		return Execution{Total: x.Total, Running: x.Running, Suspended: x.Suspended, Completed: x.Completed, Faulted: x.Faulted, Cancelled: x.Cancelled}
	}
	x := NewExecution("", 0, store.Counts{})
	for i, e := range events {
		x.Add(e)
		if sum := x.Running + x.Suspended + x.Finished(); sum > 4 || x.Running < 0 || x.Suspended < 0 {
			t.Errorf("after event %d (%s): %+v", i, e.Type, counts(x))
		}
	}
	if diff := cmp.Diff(want, counts(x), cmp.AllowUnexported(Execution{})); diff != "" || len(x.open) != 0 {
		t.Error(diff, len(x.open))
	}
	run, err := r.st.Run(t.Context(), testRunID)
	r.check(err)
	late := NewExecution(run.ID, run.Seq, run.Counts)
	r.check(late.Load(t.Context(), r.eventLog()))
	if diff := cmp.Diff(want, counts(late), cmp.AllowUnexported(Execution{})); diff != "" || len(late.open) != 0 {
		t.Error(diff, len(late.open))
	}
}

func TestAnExecutionThatJoinsLateKnowsNames(t *testing.T) {
	r := newRun(t, setOf(nil, evaluation("a", "First"), evaluation("b", "Second")))
	r.claim(2)
	r.suspend("a", "", 0, jobValue)
	run, err := r.st.Run(t.Context(), testRunID)
	r.check(err)
	var b bytes.Buffer
	x := NewExecution(run.ID, run.Seq, run.Counts)
	r.check(x.Load(t.Context(), r.eventLog()))
	l := NewLog(&b, x, ProgressOptions{})
	r.deliver("a", `1`)
	r.claim(1)
	r.suspend("b", "", 0, jobValue)
	for _, e := range r.events(run.Seq) {
		r.check(l.Event(e))
	}
	if !strings.Contains(b.String(), "resumed    First") || !strings.Contains(b.String(), "suspended  Second") || x.Running != 1 || x.Suspended != 1 {
		t.Errorf("got %s, %+v", &b, x)
	}
}

// A line says how many have passed and failed, what is worked on, how fast and how long still (P2).
func TestLive(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	x := NewExecution("", 0, store.Counts{Total: 10, Pending: 10})
	x.SetPass("r", 0.5)
	standing, columns := Standing{Running: 1}, 60
	l := NewLive(&b, x, ProgressOptions{Now: func() time.Time { return now }, Width: func() int { return columns }, Look: func() (Standing, error) { return standing, nil }})
	shown := func(want string) {
		t.Helper()
		if b.String() != want {
			t.Errorf("got %q, want %q", &b, want)
		}
		b.Reset()
	}
	event := func(typ schemas.EventType, id, data string) {
		t.Helper()
		if err := l.Event(schemas.Event{RunID: "r", RolloutID: id, Type: typ, Data: json.RawMessage(data)}); err != nil {
			t.Fatal(err)
		}
	}
	event(schemas.EventRolloutStarted, "1", `{"evaluationName":"One"}`)
	shown("\r\x1b[K[0/10]  1 running")
	event(schemas.EventRolloutStarted, "2", `{"evaluationName":"Two"}`)
	shown("") // too soon
	now = now.Add(900 * time.Millisecond)
	_, _ = l.Tick()
	shown("\r\x1b[K[0/10]  1 running")
	standing = Standing{Running: 1, Scoring: 1} // which events do not say
	now = now.Add(100 * time.Millisecond)
	_, _ = l.Tick()
	shown("") // nothing has changed
	now = now.Add(900 * time.Millisecond)
	_, _ = l.Tick()
	shown("\r\x1b[K[0/10]  1 running  1 scoring")
	_, _ = l.Write([]byte("a log line\n"))
	shown("\r\x1b[Ka log line\n\r\x1b[K[0/10]  1 running  1 scoring")
	for i, end := range []string{`{"state":"completed","score":1}`, `{"state":"completed","score":0.5}`, `{"state":"completed","score":null}`} {
		id := string(rune('a' + i))
		event(schemas.EventRolloutStarted, id, `{"evaluationName":"x"}`)
		event(schemas.EventRolloutFinished, id, end)
	}
	shown("")
	event(schemas.EventRolloutStarted, "f", `{"evaluationName":"\u001b[31mA very long name that does not fit on the terminal at all"}`)
	event(schemas.EventRolloutFinished, "f", `{"state":"completed","score":0.25}`)
	shown("\r\x1b[K✗ A very long name that does not fit on the terminal at al…\n\r\x1b[K[4/10] ✓2 ✗1 ?1  1 running  1 scoring  2.1/s  3 s left")
	event(schemas.EventRolloutFinished, "2", `{"state":"faulted","fault":{"category":"exit","message":"it ended; stderr ends with:\nfirst\nlast"}}`)
	shown("\r\x1b[K⚠ Two: exit: last; it ended\n\r\x1b[K[5/10] ✓2 ✗1 ?1 ⚠1  1 running  1 scoring  2.6/s  2 s left")
	event(schemas.EventRolloutSuspended, "1", `{"segment":1,"triggers":[]}`)
	b.Reset()

	// While nothing runs it says what is waited for, and counts down.
	standing = Standing{Runs: 1, Awaited: Awaited{Jobs: 2, People: 1}, NextCheck: now.Add(13 * time.Second)}
	now = now.Add(time.Second)
	_, _ = l.Tick()
	shown("\r\x1b[K[5/10] ✓2 ✗1 ?1 ⏸1 ⚠1  waiting: 2 jobs, 1 person")
	columns = 100
	now = now.Add(time.Second)
	_, _ = l.Tick()
	shown("\r\x1b[K[5/10] ✓2 ✗1 ?1 ⏸1 ⚠1  waiting: 2 jobs, 1 person; next check in 11 s")
	_ = l.Close()
	shown("\r\x1b[K")
	event(schemas.EventRolloutFinished, "1", `{"state":"completed","score":0}`)
	_, _ = l.Tick()
	shown("")
}

// Where no line can be redrawn, there is one after a minute in which nothing else happens, and then ever
// more rarely.
func TestHeartbeat(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	standing := Standing{Runs: 1, Awaited: Awaited{Jobs: 2, People: 1}, NextCheck: now.Add(72 * time.Second)}
	l := NewLog(&b, NewExecution("r", 0, store.Counts{Total: 3, Completed: 1, Suspended: 2}), ProgressOptions{Now: func() time.Time { return now }, Look: func() (Standing, error) { return standing, nil }})
	after := func(d time.Duration, want string) {
		t.Helper()
		now = now.Add(d)
		if _, err := l.Tick(); err != nil || b.String() != want {
			t.Errorf("got %q, want %q; %v", &b, want, err)
		}
		b.Reset()
	}
	after(59*time.Second, "")
	after(time.Second, "[1/3] waiting: 2 jobs, 1 person; next check in 12 s\n")
	after(time.Second, "")
	if err := l.Event(schemas.Event{RolloutID: "o", Type: schemas.EventRolloutResumed, Data: json.RawMessage(`{"segment":2}`)}); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	after(59*time.Second, "")
	standing = Standing{Running: 1, Runs: 1, Awaited: Awaited{Timers: 1}}
	after(time.Second, "[1/3] 1 running, waiting: 1 timer\n")
	standing = Standing{Scoring: 2}
	after(time.Minute, "")
	after(time.Minute, "[1/3] 2 scoring\n")
	after(4*time.Minute, "[1/3] 2 scoring\n")
	after(8*time.Minute, "[1/3] 2 scoring\n")
	after(8*time.Minute-time.Second, "")
	after(time.Second, "[1/3] 2 scoring\n")

	// An executor says what it watches.
	standing = Standing{Runs: 2, Awaited: Awaited{People: 2}}
	l = NewLog(&b, NewExecution("", 0, store.Counts{}), ProgressOptions{Now: func() time.Time { return now }, Look: func() (Standing, error) { return standing, nil }})
	after(time.Minute, "watching 2 runs: 2 people\n")
	standing = Standing{}
	after(2*time.Minute, "watching: no run waits for anything\n")
}
