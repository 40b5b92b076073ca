package jobs_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

func TestAQuestionIsAnsweredByAnEvent(t *testing.T) {
	t.Parallel()
	var answered []string
	w := newWorld(t, func(o *jobs.Options) {
		o.Changed = func(_ context.Context, action, object string) {
			if action == "deliver" {
				answered = append(answered, object)
			}
		}
	})
	w.execute()
	id := w.submit("asks", "")
	j := w.reaches(id, store.JobInputRequired)
	if *j.ProgressMessage != "Go on?" || j.Owner != nil || j.Lease != nil || j.AttemptCount != 1 {
		t.Errorf("%+v", j)
	}
	if r := w.post(id, `{"type":"answer","payload":{"triggerId":"other","value":1}}`); r.status != 409 {
		t.Errorf("%+v", r)
	}
	w.caller = access.Identity{Name: "runs", Scopes: []access.Scope{access.Run}}
	if r := w.post(id, `{"type":"answer","payload":{"value":1}}`); r.status != 403 || !strings.Contains(r.body, "scope deliver") {
		t.Errorf("%+v", r)
	}
	w.caller = access.Identity{ID: "7", Scopes: []access.Scope{access.Deliver}}
	if r := w.post(id, `{"type":"note"}`); r.status != 403 || !strings.Contains(r.body, "scope run") {
		t.Errorf("%+v", r)
	}
	if r := w.post(id, `{"type":"answer","payload":{"value":{"ok":"yes"}}}`); r.status != 200 || !regexp.MustCompile(`"created_at":\d+,`).MatchString(r.body) {
		t.Errorf("%+v", r)
	}
	j = w.reaches(id, store.JobCompleted)
	if j.AttemptCount != 1 {
		t.Errorf("a suspension burned an attempt: %+v", j)
	}
	e := w.log(id, "")
	if len(e.Events) != 2 || e.Events[0].Type != "answer" || e.Events[0].By == nil || *e.Events[0].By != "token 7" || e.Events[1].Type != "completed" {
		t.Errorf("%+v", e)
	}
	if len(answered) != 1 {
		t.Fatalf("what was answered is told as %q", answered)
	}
	kept, err := w.service.Store().Deliveries(t.Context(), answered[0])
	if err != nil || len(kept) != 1 || kept[0].By != "token 7" {
		t.Errorf("%+v, %v", kept, err)
	}
	if r := w.post(id, `{"type":"answer","payload":{"value":1}}`); r.status != 409 || !strings.Contains(r.body, "terminal") {
		t.Errorf("%+v", r)
	}
}

func TestOneOfSeveralQuestionsIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	id := w.submit("asks-two", "")
	w.reaches(id, store.JobInputRequired)
	r := w.post(id, `{"type":"answer","payload":{"value":1}}`)
	if r.status != 409 || !strings.Contains(r.body, "2 questions of the job are open") {
		t.Fatalf("%+v", r)
	}
	if n := len(w.log(id, "").Events); n != 0 {
		t.Errorf("%d events", n)
	}
	var trigger string
	if err := w.service.Triggers(t.Context(), id, false, func(g runner.Trigger) error {
		trigger = g.TriggerID
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if r := w.post(id, fmt.Sprintf(`{"type":"answer","payload":{"triggerId":%q,"value":1}}`, trigger)); r.status != 200 {
		t.Errorf("%+v", r)
	}
	w.reaches(id, store.JobCompleted)
}

func TestASubmitMayBeRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.submit("done", "", "Idempotency-Key", "k")
	// The caller has less time left by then.
	if again := w.submit("done", "", "Idempotency-Key", "k", "X-Mesh-Timeout", "500"); again != first {
		t.Errorf("%s and %s", first, again)
	}
	if j := w.get(first); j.MaxDuration != nil || j.TotalDeadline != nil {
		t.Errorf("the repetition has changed it: %+v", j)
	}
	body := `{"capability":"done","submitted_by":"somebody else","submitted_payload":{}}`
	if r := w.send("POST", "/jobs", body, "Idempotency-Key", "k"); r.status != 409 || !strings.Contains(r.body, first) {
		t.Errorf("%+v", r)
	}
	w.caller.ID = "another caller"
	if other := w.submit("done", "", "Idempotency-Key", "k"); other == first {
		t.Error("another caller has the job of the first")
	}
	var wg sync.WaitGroup
	ids := make([]string, 10)
	for i := range ids {
		wg.Go(func() { ids[i] = w.submit("done", "", "Idempotency-Key", "many") })
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("%v", ids)
		}
	}
}

func TestTheCallersTimeBoundsTheJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now().Unix()
	for _, one := range []struct {
		more, header string
		duration     int64
		deadline     int64
	}{
		{"", "60", 60, now + 60},
		{`,"max_duration":30`, "60", 30, now + 60},
		{`,"max_duration":300`, "60", 60, now + 60},
		{fmt.Sprintf(`,"total_deadline":%d`, now+10), "60", 60, now + 10},
		{fmt.Sprintf(`,"total_deadline":%d`, now+1000), "60", 60, now + 60},
	} {
		j := w.get(w.submit("done", one.more, "X-Mesh-Timeout", one.header))
		if j.MaxDuration == nil || *j.MaxDuration != one.duration {
			t.Errorf("%+v: max_duration %v", one, j.MaxDuration)
		}
		if j.TotalDeadline == nil || *j.TotalDeadline < one.deadline || *j.TotalDeadline > one.deadline+30 {
			t.Errorf("%+v: total_deadline %v", one, *j.TotalDeadline)
		}
	}
	w.execute()
	for _, expired := range []string{"0", "-1"} {
		id := w.submit("done", "", "X-Mesh-Timeout", expired)
		if j := w.get(id); j.Status != store.JobFailed || j.reason() != "deadline_exceeded" || j.AttemptCount != 0 {
			t.Errorf("%+v", j)
		}
	}
}

func TestMaxDurationEndsARollout(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	w.execute()
	if j := w.reaches(w.submit("waits", `,"max_duration":1`), store.JobFailed); !strings.HasPrefix(j.reason(), "timeout: ") {
		t.Errorf("%+v", j)
	}
}

func TestADeadlineIsKeptAcrossARestart(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	stop := w.execute()
	deadline := time.Now().Add(10 * time.Second).Truncate(time.Second) // enough for a busy machine to ask
	id := w.submit("asks", fmt.Sprintf(`,"total_deadline":%d`, deadline.Unix()))
	w.reaches(id, store.JobInputRequired)
	stop() // the job is a row now
	w.execute()
	j := w.reaches(id, store.JobFailed)
	if late := time.Since(deadline); late < 0 || late > 3*time.Second || j.reason() != "deadline_exceeded" {
		t.Errorf("%v late: %+v", late, j)
	}
	w.stops(id)
}

// A run that is ended by another process ends its job, and wakes who waits here.
func TestAnotherProcessEndsAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	polled := w.poll(id, "?wait=30")
	other, err := runner.Open(filepath.Join(w.dir, "store"), runner.OpenOptions{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Run(t.Context(), id, runner.RunOptions{Options: runner.Options{Variables: w.variables}}); err != nil {
		t.Fatal(err)
	}
	if e := <-polled; len(e.Events) != 1 || e.Events[0].Type != "completed" {
		t.Errorf("%+v", e)
	}
	if j := w.get(id); j.Status != store.JobCompleted {
		t.Errorf("%+v", j)
	}
	// Nothing can follow, so that nobody waits for it.
	began := time.Now()
	if e := w.log(id, "?types=never&wait=60"); len(e.Events) != 0 || e.Next != 1 || time.Since(began) > 30*time.Second {
		t.Errorf("%+v after %v", e, time.Since(began))
	}
}

func TestARunThatIsCancelledOtherwiseCancelsItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	if _, err := w.service.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if j := w.get(id); j.Status != store.JobCancelled || j.Error != nil {
		t.Errorf("%+v", j)
	}
	if got := w.lastEvent(id); got != `cancelled {"reason":""}` {
		t.Error(got)
	}
}

func TestARolloutIsAJobThatCanOnlyBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	run := w.submit("asks", "")
	w.reaches(run, store.JobInputRequired)
	ids, err := w.service.Store().RolloutIDs(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	if j := w.get(ids[0]); j.Status != store.JobInputRequired || *j.ProgressMessage != "Go on?" || string(*j.Payload) != `{"agent":"asks","epoch":1,"evalIds":["one"]}` {
		t.Errorf("%+v", j)
	}
	for _, r := range []reply{w.send("POST", "/jobs/"+ids[0]+"/cancel", ""), w.post(ids[0], `{"type":"x"}`), w.post(ids[0], `{"type":"answer","payload":{"value":1}}`),
		w.send("GET", "/jobs/"+ids[0]+"/events", "")} {
		if r.status != 409 || !strings.Contains(r.body, run) {
			t.Errorf("%+v", r)
		}
	}
	done := make(chan job, 1)
	go func() { done <- w.reaches(ids[0], store.JobCompleted) }()
	w.post(run, `{"type":"answer","payload":{"value":"yes"}}`)
	if j := <-done; j.Result["score"] == nil || j.Result["output"] == nil {
		t.Errorf("%+v", j)
	}
	var page struct{ Jobs []job }
	w.send("GET", "/jobs", "").decode(t, &page)
	if len(page.Jobs) != 1 {
		t.Errorf("%+v", page)
	}
}

func TestProgressOfSeveralRollouts(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	w.execute()
	id := w.submit("asks", `,"ignored":true`)
	var submitted struct{ ID string }
	w.send("POST", "/jobs", `{"capability":"asks","submitted_by":"x","submitted_payload":{"epochs":3}}`).decode(t, &submitted)
	w.reaches(id, store.JobInputRequired)
	w.reaches(submitted.ID, store.JobInputRequired)
	var open []string
	if err := w.service.Triggers(t.Context(), submitted.ID, false, func(g runner.Trigger) error {
		open = append(open, g.TriggerID)
		return nil
	}); err != nil || len(open) != 3 {
		t.Fatal(open, err)
	}
	rollout := func() string {
		g, err := w.service.Store().Trigger(t.Context(), open[0])
		if err != nil {
			t.Fatal(err)
		}
		return g.RolloutID
	}()
	w.post(submitted.ID, fmt.Sprintf(`{"type":"answer","payload":{"triggerId":%q,"value":"yes"}}`, open[0]))
	w.reaches(rollout, store.JobCompleted)
	j := w.reaches(submitted.ID, store.JobInputRequired)
	if j.Progress == nil || *j.Progress < 0.33 || *j.Progress > 0.34 {
		t.Errorf("%+v", j)
	}
}

func TestJobsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "", "Idempotency-Key", "k")
	w.send("POST", "/jobs/"+id+"/cancel", "")
	stop := w.keepFor(time.Nanosecond)
	defer stop()
	for range 20 {
		changed := w.service.Store().Changed("")
		if r := w.send("GET", "/jobs/"+id, ""); r.status == 404 {
			break
		}
		select {
		case <-changed:
		case <-time.After(time.Second):
		}
	}
	if r := w.send("GET", "/jobs/"+id, ""); r.status != 404 {
		t.Errorf("%+v", r)
	}
	if _, err := w.service.Run(t.Context(), id); err != nil {
		t.Error(err)
	}
	r := w.send("POST", "/jobs", `{"capability":"done","submitted_by":"test","submitted_payload":{}}`, "Idempotency-Key", "k")
	if r.status != 409 || !strings.Contains(r.body, "was forgotten; its run is "+id) {
		t.Errorf("%+v", r)
	}
}

func TestPayloadsKeepTheirNumbers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const payload = `{"inputs":{"n":9007199254740993,"x":1.10}}`
	var j job
	w.send("POST", "/jobs", `{"capability":"done","submitted_by":"x","submitted_payload":`+payload+`}`).decode(t, &j)
	if got := string(*w.get(j.ID).Payload); got != payload {
		t.Error(got)
	}
	w.post(j.ID, `{"type":"n","payload":9007199254740993}`)
	if got := string(w.log(j.ID, "").Events[0].Payload); got != "9007199254740993" {
		t.Error(got)
	}
}

func TestWhoWaitsIsAnsweredWhenTheServerEnds(t *testing.T) {
	t.Parallel()
	draining := make(chan struct{})
	w := newWorld(t, func(o *jobs.Options) { o.Draining = draining })
	id := w.submit("done", "")
	polled := w.poll(id, "?wait=60")
	status := make(chan job, 1)
	go func() {
		var j job
		w.send("GET", "/jobs/"+id+"?wait=60", "").decode(t, &j)
		status <- j
	}()
	began := time.Now()
	close(draining)
	if e := <-polled; len(e.Events) != 0 || e.Next != 0 {
		t.Errorf("%+v", e)
	}
	if j := <-status; j.Status != store.JobWorking {
		t.Errorf("%+v", j)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("they waited %v", took)
	}
}
