package jobs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// These are tests of the registry, under its names, with evalrun's executor in the place of a
// worker; those of executors have no counterpart.

func TestUc21Tc01SubmitAndWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	j := w.reaches(w.submit("done", ""), store.JobCompleted)
	if j.Result["verdict"] != "passed" || j.Error != nil || *j.Progress != 1 || j.AttemptCount != 1 {
		t.Errorf("%+v", j)
	}
	// A gate that is not met is no failure of the job.
	j = w.reaches(w.submit("wrong", ""), store.JobCompleted)
	if j.Result["verdict"] != "failed" || !strings.Contains(fmt.Sprint(j.Result["reason"]), "score") {
		t.Errorf("%+v", j)
	}
}

func TestUc21Tc05FailIsFinalAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	id := w.submit("fails", `,"max_retries":3`)
	j := w.reaches(id, store.JobFailed)
	const reason = "exit: the agent ended with exit status 3; stderr ends with:\nout of paper, [redacted:PLANTED]"
	if j.AttemptCount != 1 || j.reason() != reason {
		t.Errorf("%d attempts, %q", j.AttemptCount, j.reason())
	}
	if got := w.lastEvent(id); got != fmt.Sprintf(`failed {"error":%q}`, reason) {
		t.Error(got)
	}
}

// running submits a job whose agent waits, and returns when it runs.
func (w *world) running(more string) string {
	w.Helper()
	id := w.submit("waits", more)
	if !testenv.Eventually(func() bool { return w.get(id).Owner != nil }) {
		w.Fatal("it does not run")
	}
	return id
}

// stops waits until nothing of a run goes on.
func (w *world) stops(id string) store.Run {
	w.Helper()
	var run store.Run
	if !testenv.Eventually(func() bool {
		var err error
		if run, err = w.service.Store().Run(w.Context(), id); err != nil {
			w.Fatal(err)
		}
		return run.Final()
	}) {
		w.Fatalf("the run goes on: %+v", run.Counts)
	}
	return run
}

func TestUc21Tc06CancelRunning(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	id := w.running("")
	r := w.send("POST", "/jobs/"+id+"/cancel", `{"reason":"enough"}`)
	if r.status != 200 || !strings.Contains(r.body, w.service.Runner().Internal().Holder()) {
		t.Errorf("%+v", r)
	}
	if j := w.get(id); j.Status != store.JobCancelled || j.reason() != "cancelled: enough" {
		t.Errorf("%+v", j)
	}
	if run := w.stops(id); run.Counts.Cancelled != 1 {
		t.Errorf("%+v", run.Counts)
	}
	if e := w.log(id, ""); len(e.Events) != 1 {
		t.Errorf("%+v", e)
	}
}

func TestUc21Tc07CancelUnowned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	if r := w.send("POST", "/jobs/"+id+"/cancel", ""); r.status != 200 || r.body != `{"forwarded_to_instance_id":null,"status":"cancelled"}` {
		t.Errorf("%+v", r)
	}
}

func TestUc21Tc08CancelTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	id := w.submit("done", "")
	w.reaches(id, store.JobCompleted)
	if r := w.send("POST", "/jobs/"+id+"/cancel", ""); r.status != 409 || !strings.Contains(r.body, "already in a terminal state") {
		t.Errorf("%+v", r)
	}
	if j := w.get(id); j.Status != store.JobCompleted {
		t.Errorf("%+v", j)
	}
}

func TestUc21Tc13TotalDeadline(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	w.execute()
	deadline := time.Now().Add(10 * time.Second).Truncate(time.Second) // enough for a busy machine to start it
	id := w.running(fmt.Sprintf(`,"max_retries":10,"total_deadline":%d`, deadline.Unix()))
	j := w.reaches(id, store.JobFailed)
	if late := time.Since(deadline); late < 0 || late > 3*time.Second {
		t.Errorf("it ended %v after its deadline", late)
	}
	if j.reason() != "deadline_exceeded" || j.AttemptCount != 1 {
		t.Errorf("%+v", j)
	}
	w.stops(id)
}

func TestUc21Tc14TheSameFromAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	id := w.submit("done", "")
	w.reaches(id, store.JobCompleted)
	st, err := runner.Open(filepath.Join(w.dir, "store"), runner.OpenOptions{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	other := httptest.NewServer(jobs.New(jobs.Options{Service: service.New(st, service.Config{}, service.Options{})}))
	defer other.Close()
	there := *w
	there.server = other
	if a, b := w.send("GET", "/jobs/"+id, ""), there.send("GET", "/jobs/"+id, ""); a != b {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestUc21Tc15UnknownID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"", "/events", "/events?wait=1", "?wait=1"} {
		if r := w.send("GET", "/jobs/nobody"+path, ""); r.status != 404 || !strings.Contains(r.body, `"job not found: nobody"`) {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

func TestUc21Tc16ThirdPartiesMayRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.caller = access.Identity{ID: "1", Name: "owner", Scopes: []access.Scope{access.Run}}
	id := w.submit("done", "")
	w.caller = access.Identity{ID: "2", Name: "other", Scopes: []access.Scope{access.Read}}
	if j := w.get(id); j.ID != id {
		t.Errorf("%+v", j)
	}
}

func TestUc21Tc23RetryOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	if j := w.reaches(w.submit("third-time", `,"max_retries":2,"retry_on":["exit"]`), store.JobCompleted); j.AttemptCount != 3 {
		t.Errorf("%+v", j)
	}
}

func TestUc21Tc24PostWakesReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	got := w.poll(id, "?wait=30")
	w.post(id, `{"type":"approved","payload":{"by":"x"}}`)
	if e := <-got; len(e.Events) != 1 || e.Events[0].Seq != 1 || e.Events[0].Type != "approved" || e.Next != 1 {
		t.Errorf("%+v", e)
	}
}

// poll reads a log in the background.
func (w *world) poll(id, query string) <-chan events {
	got := make(chan events, 1)
	go func() { got <- w.log(id, query) }()
	return got
}

func TestUc21Tc25TypeFilter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	got := w.poll(id, "?types=gate&wait=30")
	for _, typ := range []string{"noise", "noise", "gate"} {
		w.post(id, fmt.Sprintf(`{"type":%q}`, typ))
	}
	if e := <-got; len(e.Events) != 1 || e.Events[0].Seq != 3 || e.Next != 3 {
		t.Errorf("%+v", e)
	}
}

func TestUc21Tc26CancelIsSeenBeforeTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *jobs.Options) { o.Grace = time.Minute })
	w.execute()
	id := w.running("")
	got := w.poll(id, "?wait=30")
	w.send("POST", "/jobs/"+id+"/cancel", `{"reason":"wrap up"}`)
	if e := <-got; len(e.Events) != 1 || e.Events[0].Type != "cancelled" || string(e.Events[0].Payload) != `{"reason":"wrap up"}` {
		t.Errorf("%+v", e)
	}
	if j := w.get(id); j.Status != store.JobCancelled || j.Owner == nil {
		t.Errorf("its agent should go on: %+v", j)
	}
	w.write("waits/go", "") // its agent returns by itself
	if run := w.stops(id); run.Counts.Completed != 1 {
		t.Errorf("%+v", run.Counts)
	}
	if j := w.get(id); j.Status != store.JobCancelled || j.Result != nil {
		t.Errorf("%+v", j)
	}
}

func TestCancelEventGrace(t *testing.T) {
	t.Parallel()
	for _, grace := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run(grace.String(), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(o *jobs.Options) { o.Grace = grace })
			w.execute()
			id := w.running("")
			began := time.Now()
			w.send("POST", "/jobs/"+id+"/cancel", "")
			run := w.stops(id)
			if took := run.FinishedAt.Sub(began); took < grace || took > grace+5*time.Second {
				t.Errorf("its agent was ended after %v", took)
			}
		})
	}
}

func TestUc21Tc27SubscribersSeeTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var seen []string
			for after := int64(0); len(seen) < 3; {
				e := w.log(id, fmt.Sprintf("?after=%d&wait=30", after))
				for _, one := range e.Events {
					seen = append(seen, one.Type)
				}
				after = e.Next
			}
			if !slices.Equal(seen, []string{"a", "b", "c"}) {
				t.Errorf("%v", seen)
			}
		})
	}
	for _, typ := range []string{"a", "b", "c"} {
		w.post(id, fmt.Sprintf(`{"type":%q}`, typ))
	}
	wg.Wait()
}

func TestPaginationTieBreak(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want, got []string
	for range 7 { // in one second, mostly
		want = append(want, w.submit("done", ""))
	}
	for cursor := ""; ; {
		var page struct {
			Jobs []job   `json:"jobs"`
			Next *string `json:"next_cursor"`
		}
		w.send("GET", "/jobs?limit=2&cursor="+cursor, "").decode(t, &page)
		for _, j := range page.Jobs {
			got = append(got, j.ID)
		}
		if page.Next == nil {
			break
		}
		cursor = *page.Next
	}
	slices.Reverse(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

func TestPostJobEvent_AssignsMonotonicSeq(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	const posts = 64
	seqs := make(chan int64, posts)
	for range posts {
		go func() {
			var posted struct{ Seq int64 }
			w.post(id, `{"type":"tick"}`).decode(t, &posted)
			seqs <- posted.Seq
		}()
	}
	var got []int64
	for range posts {
		got = append(got, <-seqs)
	}
	slices.Sort(got)
	for i, seq := range got {
		if seq != int64(i+1) {
			t.Fatalf("%v", got)
		}
	}
	for i, e := range w.log(id, "").Events {
		if e.Seq != int64(i+1) {
			t.Fatalf("%d is number %d in the log", e.Seq, i+1)
		}
	}
}

func TestLongPollWakesOnPost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	const waiters = 20
	var polls []<-chan events
	for range waiters {
		polls = append(polls, w.poll(id, "?wait=30"))
	}
	began := time.Now()
	if r := w.post(id, `{"type":"wake"}`); r.status != http.StatusOK {
		t.Fatalf("%+v", r)
	}
	for _, got := range polls {
		if e := <-got; len(e.Events) != 1 || e.Events[0].Type != "wake" {
			t.Errorf("%+v", e)
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("they waited %v", took)
	}
}
