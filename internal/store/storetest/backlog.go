package storetest

import (
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func backlogSpecs(s *suite) {
	backlog := func(w *world, s Store, runID string) store.Backlog {
		w.Helper()
		b, err := s.Backlog(w.ctx, runID)
		w.must(err)
		return b
	}

	nextDue := func(w *world, s Store, runID string) time.Time {
		w.Helper()
		at, err := s.NextDue(w.ctx, runID)
		w.must(err)
		return at
	}

	s.spec("a store without work is idle", func(w *world) {
		b := backlog(w, w.a, "")
		equal(w, "backlog", b, store.Backlog{})
		equal(w, "idle", b.Idle(), true)
		_, _ = w.suspended(list(external("i")))
		equal(w, "with what waits for something outside", backlog(w, w.a, ""), store.Backlog{})
		equal(w, "and nothing is due", nextDue(w, w.a, ""), time.Time{})
	})

	s.spec("rollouts are runnable, delayed or held", func(w *world) {
		runID, _ := w.create(4)
		other, _ := w.create(1)
		claims, err := w.a.Claim(w.ctx, runID, 3)
		w.must(err)
		w.commit(w.a, claims[0], store.SegmentEnd{
			Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}, Retry: true, RetryAfter: time.Minute})
		b := w.another()
		due := w.Now().Add(time.Minute)
		equal(w, "of the run, for its holder", backlog(w, w.a, runID), store.Backlog{
			Runnable: 1, Delayed: 1, Held: 2, NextDue: due})
		equal(w, "of the run, for another: a lease may end before", backlog(w, b, runID), store.Backlog{
			Runnable: 1, Delayed: 1, Held: 2, NextDue: w.Now().Add(lease)})
		equal(w, "of all", backlog(w, w.a, ""), store.Backlog{Runnable: 2, Delayed: 1, Held: 2, NextDue: due})
		equal(w, "of the other", backlog(w, w.a, other), store.Backlog{Runnable: 1})
		equal(w, "what is due next in the run", nextDue(w, w.a, runID), due)
		equal(w, "whatever leases others have", nextDue(w, b, runID), due)
		equal(w, "and in the other", nextDue(w, w.a, other), time.Time{})
		w.advance(lease)
		equal(w, "when the lease has ended", backlog(w, b, runID), store.Backlog{Runnable: 3, Delayed: 1, NextDue: due})
		equal(w, "its holder keeps it", backlog(w, w.a, runID), store.Backlog{Runnable: 1, Delayed: 1, Held: 2, NextDue: due})
		w.advance(lease)
		equal(w, "when the backoff is over", backlog(w, b, runID), store.Backlog{Runnable: 4})
	})

	s.spec("triggers are due when somebody has to look", func(w *world) {
		soon, later := w.Now().Add(time.Second), w.Now().Add(time.Hour)
		_, _ = w.suspended(list(polled("i", soon), polled("j", later), external("k"), startable("l")))
		equal(w, "at first", backlog(w, w.a, ""), store.Backlog{Due: 1, NextDue: soon})
		w.claimTrigger(w.a)
		b := w.another()
		equal(w, "claimed", backlog(w, w.a, ""), store.Backlog{NextDue: soon})
		equal(w, "the next", nextDue(w, w.a, ""), soon)
		w.advance(time.Second)
		equal(w, "for its holder", backlog(w, w.a, ""), store.Backlog{Due: 1, NextDue: later})
		equal(w, "the next after that", nextDue(w, w.a, ""), later)
		equal(w, "for another its claim ends", backlog(w, b, ""), store.Backlog{
			Due: 1, NextDue: w.Now().Add(lease - time.Second)})
		w.advance(lease)
		equal(w, "its claim has ended", backlog(w, b, ""), store.Backlog{Due: 2, NextDue: later})
	})

	s.spec("what a dead process holds can be claimed now", func(w *world) {
		_, _ = w.create(1)
		w.claim(w.as(deadProcess()))
		equal(w, "rollout", backlog(w, w.a, ""), store.Backlog{Runnable: 1})
		w.suspend(w.a, w.claim(w.a), startable("i"))
		w.claimTrigger(w.as(deadProcess()))
		equal(w, "trigger", backlog(w, w.a, ""), store.Backlog{Due: 1})
	})

	s.spec("what was given up is due until it was cancelled", func(w *world) {
		runID, _ := w.suspended(list(polled("i", w.Now().Add(time.Hour))))
		w.cancel(runID)
		equal(w, "backlog", backlog(w, w.a, ""), store.Backlog{Due: 1})
		w.claimTrigger(w.a)
		equal(w, "then", backlog(w, w.a, ""), store.Backlog{})
	})
}
