package storetest

import (
	"fmt"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func jobEndSpecs(s *suite) {
	failed := store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: fault.New(fault.Exit, "exit status 3")}
	finish := func(w *world, by Store) {
		w.Helper()
		c := w.claim(by)
		w.commit(by, c, completed)
		w.must(by.Finish(w.ctx, c.Token, ptr(0.0)))
	}
	refuses := func(w *world, id string) {
		w.Helper()
		_, err := w.a.PostJobEvent(w.ctx, store.JobEvent{JobID: id, Type: "late"}, nil)
		w.refused("an event", err, store.ErrJobEnded)
		_, err = w.a.CancelJob(w.ctx, id, "late", 0)
		w.refused("cancel", err, store.ErrJobEnded)
	}
	due := func(w *world) []string {
		w.Helper()
		ids, err := w.a.EndDueJobs(w.ctx)
		w.must(err)
		return ids
	}

	s.spec("a job completes with its run, whichever process ends that", func(w *world) {
		id, _ := w.create(1, asJob(until(w.Now().Add(time.Hour))))
		w.post(id, "note", `1`)
		w.advance(time.Minute)
		finish(w, w.another())
		j := w.job(id)
		equal(w, "status", j.Status, store.JobCompleted)
		equal(w, "ended", j.EndedAt, w.Now())
		equal(w, "log", w.jobLog(id), []string{"1 note 1", "2 completed "})
		for limit, ended := range []bool{1: false, 2: true, 3: true} {
			if limit > 0 {
				log, err := w.a.JobEvents(w.ctx, id, 0, nil, limit)
				w.must(err)
				equal(w, fmt.Sprint("ended after ", limit), log.Ended, ended)
			}
		}
		refuses(w, id)
		w.advance(2 * time.Hour)
		equal(w, "due", len(due(w)), 0)
	})

	s.spec("a job of which something faulted has failed, and says why", func(w *world) {
		id, _ := w.create(1, asJob())
		w.commit(w.a, w.claim(w.a), failed)
		j := w.job(id)
		equal(w, "job", [2]string{string(j.Status), j.Error}, [2]string{"failed", "exit: exit status 3"})
		equal(w, "log", w.jobLog(id), []string{`1 failed {"error":"exit: exit status 3"}`})
		refuses(w, id)
		id, _ = w.create(2, asJob())
		claims, err := w.a.Claim(w.ctx, id, 2)
		w.must(err)
		w.commit(w.a, claims[0], completed)
		w.must(w.a.Finish(w.ctx, claims[0].Token, nil))
		w.commit(w.a, claims[1], failed)
		equal(w, "one of two", w.job(id).Error, "1 of 2 rollouts faulted; the first: exit: exit status 3")
	})

	s.spec("a job whose run was cancelled is cancelled", func(w *world) {
		id, _ := w.create(1, asJob())
		w.cancel(id)
		equal(w, "status", w.job(id).Status, store.JobCancelled)
		equal(w, "log", w.jobLog(id), []string{`1 cancelled {"reason":""}`})
	})

	s.spec("a job that nobody works on is cancelled with its run at once", func(w *world) {
		id, rollouts := w.create(1, asJob())
		before, err := w.a.CancelJob(w.ctx, id, "not needed", time.Minute)
		w.must(err)
		equal(w, "before", before.Owner, "")
		j := w.job(id)
		equal(w, "job", [2]string{string(j.Status), j.Error}, [2]string{"cancelled", "cancelled: not needed"})
		equal(w, "log", w.jobLog(id), []string{`1 cancelled {"reason":"not needed"}`})
		equal(w, "rollout", w.view(id, rollouts[0]).State, eval.StateCancelled)
		equal(w, "final", w.run(id).Final(), true)
		refuses(w, id)
	})

	s.spec("a job that is running is cancelled at once, its run after the grace", func(w *world) {
		id, _ := w.create(1, asJob(until(w.Now().Add(time.Hour))))
		c := w.claim(w.a)
		before, err := w.a.CancelJob(w.ctx, id, "", time.Second)
		w.must(err)
		equal(w, "owner", before.Owner, w.a.Holder())
		equal(w, "due", before.DueAt, w.Now().Add(time.Second))
		j := w.job(id)
		equal(w, "job", [2]string{string(j.Status), j.Error}, [2]string{"cancelled", ""})
		equal(w, "too early", len(due(w)), 0)
		_, cancelled := w.renew(w.a, c)
		equal(w, "cancelled too early", len(cancelled), 0)
		w.advance(time.Second)
		equal(w, "due", due(w), []string{id})
		_, cancelled = w.renew(w.a, c)
		equal(w, "cancelled", cancelled, []string{c.RolloutID})
		w.commit(w.a, c, completed)
		equal(w, "status", w.job(id).Status, store.JobCancelled)
		equal(w, "log", w.jobLog(id), []string{`1 cancelled {"reason":""}`})
		equal(w, "never again", len(due(w)), 0)
	})

	s.spec("a job fails at its deadline, whatever goes on", func(w *world) {
		soon := asJob(until(w.Now().Add(time.Minute)))
		pending, _ := w.create(1, soon, acceptsFaults)
		suspended, _ := w.suspended(list(external("q")), soon)
		running, _ := w.create(1, soon)
		claims, err := w.a.Claim(w.ctx, running, 1)
		w.must(err)
		next, err := w.another().NextDueJob(w.ctx)
		w.must(err)
		equal(w, "next", next, w.Now().Add(time.Minute))
		equal(w, "too early", len(due(w)), 0)
		w.advance(time.Minute)
		equal(w, "due", len(due(w)), 3)
		for _, id := range []string{pending, suspended, running} {
			j := w.job(id)
			equal(w, "job", [2]string{string(j.Status), j.Error}, [2]string{"failed", "deadline_exceeded"})
			equal(w, "log", w.jobLog(id), []string{`1 failed {"error":"deadline_exceeded"}`})
			refuses(w, id)
		}
		w.commit(w.a, claims[0], completed)
		equal(w, "after its agent has ended", w.job(running).Error, "deadline_exceeded")
		equal(w, "final", w.run(running).Final(), true)
		next, err = w.a.NextDueJob(w.ctx)
		w.must(err)
		equal(w, "next", next, time.Time{})
	})

	s.spec("a job whose deadline has passed before it was submitted starts nothing", func(w *world) {
		id, rollouts := w.create(2, asJob(until(w.Now())))
		j := w.job(id)
		equal(w, "job", [2]string{string(j.Status), j.Error}, [2]string{"failed", "deadline_exceeded"})
		equal(w, "rollout", w.view(id, rollouts[1]).State, eval.StateCancelled)
		w.claimsNothing(w.a)
	})

	s.spec("jobs that have ended are forgotten, their runs are not", func(w *world) {
		old, _ := w.create(1, asJob())
		finish(w, w.a)
		w.advance(time.Hour)
		open, _ := w.create(1, asJob())
		_, _ = w.suspended(list(external("q")), asJob())
		n, err := w.a.ForgetJobs(w.ctx, 0, 10)
		w.must(err)
		equal(w, "forgotten", n, 1)
		_, err = w.a.Job(w.ctx, old)
		w.refused("old", err, store.ErrNotFound)
		w.run(old)
		w.job(open)
	})

	s.spec("a job is removed with its run", func(w *world) {
		id, _ := w.create(1, asJob())
		finish(w, w.a)
		w.must(w.a.Remove(w.ctx, id))
		_, err := w.a.Job(w.ctx, id)
		w.refused("job", err, store.ErrNotFound)
	})
}
