package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// asJob submits the run of a plan as a job; change may alter it.
func asJob(change ...func(*store.NewJob)) func(*store.Plan) {
	return func(p *store.Plan) {
		p.Job = &store.NewJob{Capability: "report", SubmittedBy: "ci", Payload: json.RawMessage(`{"epochs": 1}`)}
		for _, f := range change {
			f(p.Job)
		}
	}
}

func until(at time.Time) func(*store.NewJob) { return func(j *store.NewJob) { j.Deadline = at } }

func (w *world) job(id string) store.Job {
	w.Helper()
	j, err := w.a.Job(w.ctx, id)
	w.must(err)
	return j
}

// jobLog is the log of a job, an event a line.
func (w *world) jobLog(id string) (lines []string) {
	w.Helper()
	log, err := w.a.JobEvents(w.ctx, id, 0, nil, 1000)
	w.must(err)
	for _, e := range log.Events {
		lines = append(lines, fmt.Sprintf("%d %s %s", e.Seq, e.Type, e.Payload))
	}
	return lines
}

func (w *world) post(id, typ, text string) store.JobEvent {
	w.Helper()
	e, err := w.a.PostJobEvent(w.ctx, store.JobEvent{JobID: id, Type: typ, Payload: json.RawMessage(text)}, nil)
	w.must(err)
	return e
}

func jobSpecs(s *suite) {
	s.spec("a job is there with its run, as it was submitted", func(w *world) {
		deadline := w.Now().Add(time.Hour)
		want := store.NewJob{
			Capability: "c", SubmittedBy: "me", Payload: json.RawMessage(`{"inputs": {"a": 1}}`), MaxRetries: ptr(0),
			MaxDuration: time.Minute, Deadline: deadline}
		runID, _ := w.create(2, func(p *store.Plan) { p.Job = &want })
		got, err := w.another().Job(w.ctx, runID)
		w.must(err)
		equal(w, "job", got, store.Job{
			NewJob: want, ID: runID, SubmittedAt: w.Now(), Status: store.JobWorking, DueAt: deadline, Total: 2})
	})

	s.spec("a run that was not submitted as a job is none", func(w *world) {
		runID, _ := w.create(1)
		_, err := w.a.Job(w.ctx, runID)
		w.refused("job", err, store.ErrNotFound)
		_, err = w.a.JobEvents(w.ctx, runID, 0, nil, 1)
		w.refused("events", err, store.ErrNotFound)
		_, err = w.a.CancelJob(w.ctx, runID, "", 0)
		w.refused("cancel", err, store.ErrNotFound)
	})

	s.spec("a run that is there already keeps its job", func(w *world) {
		p := plan(1, asJob())
		_, err := w.a.CreateRun(w.ctx, p)
		w.must(err)
		p.Job.Capability = "other"
		created, err := w.a.CreateRun(w.ctx, p)
		w.must(err)
		equal(w, "created", created, false)
		equal(w, "capability", w.job(p.RunID).Capability, "report")
	})

	s.spec("a job shows the lease under which it runs; suspended it holds none and burns no attempt", func(w *world) {
		runID, _ := w.create(1, asJob())
		c := w.claim(w.a)
		j := w.job(runID)
		equal(w, "owner", j.Owner, w.a.Holder())
		equal(w, "lease", j.LeaseUntil, w.Now().Add(lease))
		equal(w, "renewed", j.RenewedAt, w.Now())
		equal(w, "fence and attempts", [2]int64{j.Fence, int64(j.Attempts)}, [2]int64{1, 1})
		for i := range 3 {
			w.suspend(w.a, c, external(fmt.Sprint("i", i)))
			j = w.job(runID)
			equal(w, "owner", j.Owner, "")
			equal(w, "lease", j.LeaseUntil, time.Time{})
			equal(w, "attempts", j.Attempts, 1)
			w.deliver(w.a, payload(store.TriggerID(c.RolloutID, fmt.Sprint("i", i), 0, 0), `1`))
			c = w.claim(w.a)
		}
		equal(w, "attempts", w.job(runID).Attempts, 1)
	})

	s.spec("an attempt counts when it begins", func(w *world) {
		runID, _ := w.create(1, asJob())
		retried := store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: fault.New(fault.Exit, "exit status 1"), Retry: true}
		for attempt := 1; attempt <= 3; attempt++ {
			c := w.claim(w.a)
			equal(w, "running", w.job(runID).Attempts, attempt)
			if attempt == 3 {
				w.commit(w.a, c, completed)
			} else {
				w.commit(w.a, c, retried)
			}
			equal(w, "committed", w.job(runID).Attempts, attempt)
		}
	})

	s.spec("input is required while a person is asked and nothing goes on", func(w *world) {
		question := external("q")
		question.Spec = json.RawMessage(`{"payload": {"title": "Go on?"}}`)
		runID, rollouts := w.create(2, asJob())
		claims, err := w.a.Claim(w.ctx, runID, 2)
		w.must(err)
		w.suspend(w.a, claims[0], question)
		equal(w, "while another runs", w.job(runID).Status, store.JobWorking)
		job := polled("j", w.Now().Add(time.Hour))
		w.suspend(w.a, claims[1], job)
		j := w.job(runID)
		equal(w, "asked", j.Status, store.JobInputRequired)
		equal(w, "question", string(j.Question), string(question.Spec))
		equal(w, "suspended", j.Suspended, 2)
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "q", 0, 0), `1`))
		j = w.job(runID)
		equal(w, "answered", j.Status, store.JobWorking)
		equal(w, "question", string(j.Question), "")
		c := w.claim(w.a)
		equal(w, "going on", w.job(runID).Status, store.JobWorking)
		w.suspend(w.a, c, job)
		equal(w, "waits for a job", w.job(runID).Status, store.JobWorking)
	})

	s.spec("a rollout of any run is shown as a job", func(w *world) {
		runID, rollouts := w.create(1)
		show := func() store.Job {
			j, err := w.a.RolloutJob(w.ctx, rollouts[0])
			w.must(err)
			equal(w, "run", j.RolloutOf, runID)
			return j
		}
		equal(w, "pending", show().Status, store.JobWorking)
		question := external("q")
		question.Spec = json.RawMessage(`{"payload": 1}`)
		w.suspend(w.a, w.claim(w.a), question)
		j := show()
		equal(w, "asked", j.Status, store.JobInputRequired)
		equal(w, "question", string(j.Question), string(question.Spec))
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "q", 0, 0), `1`))
		c := w.claim(w.a)
		equal(w, "running", [2]string{string(show().Status), show().Owner}, [2]string{"working", w.a.Holder()})
		w.commit(w.a, c, completed)
		w.must(w.a.Finish(w.ctx, c.Token, ptr(0.5)))
		j = show()
		equal(w, "completed", j.Status, store.JobCompleted)
		equal(w, "ended", j.EndedAt, w.Now())
		equal(w, "result", string(j.Result), `{"output":{"answer":42},"score":0.5}`)
		_, err := w.a.RolloutJob(w.ctx, runID)
		w.refused("a run", err, store.ErrNotFound)
	})

	s.spec("jobs are listed the newest first, by pages, those submitted at one time by id", func(w *world) {
		var ids []string
		for i := range 7 {
			id, _ := w.create(1, asJob())
			ids = append(ids, id)
			if i%3 == 2 {
				w.advance(time.Second)
			}
		}
		_, _ = w.create(1) // no job
		slices.Reverse(ids)
		var got []string
		f := store.JobFilter{Limit: 2}
		for {
			page, err := w.a.ListJobs(w.ctx, f)
			w.must(err)
			if len(page) == 0 {
				break
			}
			for _, j := range page {
				got = append(got, j.ID)
				f.BeforeTime, f.BeforeID = j.SubmittedAt, j.ID
			}
		}
		if !slices.IsSortedFunc(got, func(a, b string) int { return w.job(b).SubmittedAt.Compare(w.job(a).SubmittedAt) }) {
			w.Fatalf("not by time: %v", got)
		}
		slices.Sort(got)
		slices.Sort(ids)
		equal(w, "all of them once", got, ids)
	})

	s.spec("a list of jobs ends after the job that is too much for a page", func(w *world) {
		for range 4 {
			w.create(1, asJob(func(j *store.NewJob) {
				j.Payload = json.RawMessage(`{"inputs": {"x": "` + strings.Repeat("x", store.MaxPage*2/5) + `"}}`)
			}))
		}
		found, err := w.a.ListJobs(w.ctx, store.JobFilter{Limit: 100})
		w.must(err)
		equal(w, "found", len(found), 3)
	})

	s.spec("jobs are listed by status, capability, owner, submitter and time", func(w *world) {
		names := map[string]string{}
		add := func(name string, change ...func(*store.NewJob)) store.Claim {
			id, _ := w.create(1, asJob(change...))
			names[id] = name
			claims, err := w.a.Claim(w.ctx, id, 1)
			w.must(err)
			if name == "pending" {
				w.must(w.a.Release(w.ctx, claims[0].Token, 0))
			}
			return claims[0]
		}
		add("pending", func(j *store.NewJob) { j.Capability, j.SubmittedBy = "other", "somebody" })
		w.advance(time.Minute)
		later := w.Now()
		add("running")
		c := add("asked")
		w.suspend(w.a, c, external("q"))
		c = add("completed")
		w.commit(w.a, c, completed)
		w.must(w.a.Finish(w.ctx, c.Token, nil))
		list := func(f store.JobFilter) (out []string) {
			f.Limit = 100
			found, err := w.a.ListJobs(w.ctx, f)
			w.must(err)
			for _, j := range found {
				out = append(out, names[j.ID])
			}
			slices.Sort(out)
			return out
		}
		equal(w, "working", list(store.JobFilter{Statuses: []store.JobStatus{store.JobWorking}}),
			[]string{"pending", "running"})
		equal(w, "submitter", list(store.JobFilter{SubmittedBy: "somebody"}), []string{"pending"})
		equal(w, "asked", list(store.JobFilter{Statuses: []store.JobStatus{store.JobInputRequired, store.JobFailed}}),
			[]string{"asked"})
		equal(w, "completed", list(store.JobFilter{Statuses: []store.JobStatus{store.JobCompleted}}), []string{"completed"})
		equal(w, "capability", list(store.JobFilter{Capability: "other"}), []string{"pending"})
		equal(w, "owner", list(store.JobFilter{Owner: w.a.Holder()}), []string{"running"})
		equal(w, "since", list(store.JobFilter{Since: later}), []string{"asked", "completed", "running"})
		equal(w, "nothing", list(store.JobFilter{Statuses: []store.JobStatus{"unknown"}}), []string(nil))
	})
}

func jobEventSpecs(s *suite) {
	s.spec("events are numbered from 1 in each job, whoever posts them", func(w *world) {
		first, _ := w.create(1, asJob())
		other, _ := w.create(1, asJob())
		stores := []Store{w.a, w.another()}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := stores[i%2].PostJobEvent(w.ctx, store.JobEvent{JobID: first, Type: "tick"}, nil); err != nil {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		equal(w, "of the other", w.post(other, "tick", `1`).Seq, 1)
		log, err := w.a.JobEvents(w.ctx, first, 0, nil, 100)
		w.must(err)
		equal(w, "read", log.Read, 20)
		for i, e := range log.Events {
			equal(w, "seq", e.Seq, int64(i+1))
		}
	})

	s.spec("an event is kept as it was posted", func(w *world) {
		id, _ := w.create(1, asJob())
		want := store.JobEvent{
			JobID: id, Type: "note", Payload: json.RawMessage(`{"n": 9007199254740993}`),
			TraceContext: json.RawMessage(`{"traceparent":"00"}`), PostedBy: "ci"}
		posted, err := w.a.PostJobEvent(w.ctx, want, nil)
		w.must(err)
		want.Seq, want.CreatedAt = 1, w.Now()
		log, err := w.another().JobEvents(w.ctx, id, 0, nil, 10)
		w.must(err)
		equal(w, "events", log.Events, []store.JobEvent{want})
		equal(w, "posted", posted, want)
	})

	s.spec("the log is read from a number, by type, and says how far it was read", func(w *world) {
		id, _ := w.create(1, asJob())
		for i := range 6 {
			w.post(id, []string{"a", "b"}[i%2], fmt.Sprint(i))
		}
		for _, one := range []struct {
			after int64
			types []string
			limit int
			seqs  []int64
			read  int64
		}{
			{0, nil, 10, []int64{1, 2, 3, 4, 5, 6}, 6}, {2, nil, 2, []int64{3, 4}, 4},
			{0, []string{"b"}, 10, []int64{2, 4, 6}, 6}, {0, []string{"a"}, 10, []int64{1, 3, 5}, 6},
			{0, []string{"a"}, 2, []int64{1, 3}, 3}, {3, []string{"none"}, 10, nil, 6}, {999, nil, 10, nil, 999},
		} {
			log, err := w.a.JobEvents(w.ctx, id, one.after, one.types, one.limit)
			w.must(err)
			var seqs []int64
			for _, e := range log.Events {
				seqs = append(seqs, e.Seq)
			}
			equal(w, fmt.Sprintf("%+v", one), seqs, one.seqs)
			equal(w, "read", log.Read, one.read)
			equal(w, "ended", log.Ended, false)
		}
	})

	s.spec("the log is read by pages of a bounded size, and one event always fits", func(w *world) {
		id, _ := w.create(1, asJob())
		large := `"` + strings.Repeat("x", store.MaxPage/2) + `"`
		// the second is larger than a page
		for _, text := range []string{large, `"` + large[1:len(large)-1] + large[1:], large, `1`, `2`} {
			w.post(id, "x", text)
		}
		var got [][2]int64
		for after := int64(0); after < 5; {
			log, err := w.a.JobEvents(w.ctx, id, after, nil, 100)
			w.must(err)
			got = append(got, [2]int64{int64(len(log.Events)), log.Read})
			if len(log.Events) == 0 {
				break
			}
			after = log.Read
		}
		equal(w, "pages", got, [][2]int64{{1, 1}, {1, 2}, {3, 5}})
	})

	s.spec("an answer is delivered with its event, or there is no event", func(w *world) {
		runID, rollouts := w.create(1, asJob())
		w.suspend(w.a, w.claim(w.a), external("q"))
		answer := payload(store.TriggerID(rollouts[0], "q", 0, 0), `"yes"`)
		_, err := w.a.PostJobEvent(w.ctx, store.JobEvent{JobID: runID, Type: "answer"}, &answer)
		w.must(err)
		equal(w, "resumes with", payloads(w.claim(w.a)), map[string]string{"q": `successful "yes"`})
		_, err = w.a.PostJobEvent(w.ctx, store.JobEvent{JobID: runID, Type: "answer"}, &answer)
		w.refused("again", err, store.ErrNotAsked)
		equal(w, "log", len(w.jobLog(runID)), 1)
	})

	s.spec("nothing is posted to a job that is not there", func(w *world) {
		_, err := w.a.PostJobEvent(w.ctx, store.JobEvent{JobID: "unknown", Type: "x"}, nil)
		w.refused("unknown", err, store.ErrNotFound)
	})
}
