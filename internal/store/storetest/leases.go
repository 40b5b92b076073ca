package storetest

import (
	"slices"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func leaseSpecs(s *suite) {
	s.spec("a lease that is not renewed is void when it ends, not before", func(w *world) {
		_, _ = w.create(1)
		first := w.claim(w.a)
		b := w.another()
		w.advance(lease - time.Microsecond)
		w.claimsNothing(b)
		w.advance(time.Microsecond)
		c := w.claim(b)
		if !c.TakenOver || !c.Repeats || c.Fence <= first.Fence {
			w.Fatalf("%+v after %+v", c, first)
		}
		equal(w, "segment and attempt", [2]int{c.Segment, c.Attempt}, [2]int{1, 2})
	})

	s.spec("a renewed lease lasts from its renewal", func(w *world) {
		_, rollouts := w.create(2)
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		b := w.another()
		for range 5 {
			w.advance(lease - time.Second)
			held, cancelled := w.renew(w.a, claims)
			slices.Sort(held)
			slices.Sort(rollouts)
			equal(w, "held", held, rollouts)
			equal(w, "cancelled", len(cancelled), 0)
			w.claimsNothing(b)
		}
		w.commit(w.a, claims[0], completed)
		w.advance(lease)
		claims, err = b.Claim(w.ctx, "", 10)
		w.must(err)
		equal(w, "claims", len(claims), 2)
	})

	s.spec("one who has lost a rollout does not get it back by renewing", func(w *world) {
		_, _ = w.create(1)
		first := w.claim(w.a)
		b := w.another()
		w.advance(lease)
		second := w.claim(b)
		held, _ := w.renew(w.a, first, second)
		equal(w, "held by the first", len(held), 0)
		held, _ = w.renew(b, first)
		equal(w, "held by the second with the token of the first", len(held), 0)
		held, _ = w.renew(b, second)
		equal(w, "held by the second", len(held), 1)
	})

	s.spec("a process keeps what it holds, however late it renews, as long as nobody takes it", func(w *world) {
		// given a machine that slept
		_, _ = w.create(1)
		c := w.claim(w.a)
		w.advance(time.Hour)
		// when it goes on
		w.claimsNothing(w.a)
		held, _ := w.renew(w.a, c)
		// then nothing was lost
		equal(w, "held", held, []string{c.RolloutID})
		w.claimsNothing(w.another())
		equal(w, "state", w.commit(w.a, c, completed).State, eval.StateEvaluating)
	})

	s.spec("a lease is still good after the clock was set back", func(w *world) {
		_, _ = w.create(1)
		c := w.claim(w.a)
		w.advance(-time.Hour)
		w.claimsNothing(w.another())
		equal(w, "state", w.commit(w.a, c, completed).State, eval.StateEvaluating)
	})

	s.spec("what is suspended, put back or finished is not held", func(w *world) {
		_, _ = w.create(3)
		claims, err := w.a.Claim(w.ctx, "", 3)
		w.must(err)
		w.suspend(w.a, claims[0], external("i"))
		w.commit(w.a, claims[1], store.SegmentEnd{Outcome: store.OutcomeInterrupted})
		w.commit(w.a, claims[2], store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}})
		held, _ := w.renew(w.a, claims)
		equal(w, "held", len(held), 0)
	})

	s.spec("a claim whose answer was lost is taken again by the process itself, as if it were the first", func(w *world) {
		// given a rollout that was resumed, of which the process knows nothing
		runID, rolloutID := w.suspended(list(external("i")))
		w.deliver(w.a, payload(store.TriggerID(rolloutID, "i", 0, 0), `1`))
		lost := w.claim(w.a)
		w.a.Forget(store.Tokens{Rollouts: []store.Token{lost.Token}})
		w.advance(time.Second)
		b, err := w.a.Backlog(w.ctx, "")
		w.must(err)
		equal(w, "runnable", b.Runnable, 1)
		events := len(w.events(runID))
		// when it claims again
		w.claimsNothing(w.another())
		c := w.claim(w.a)
		// then it is the same attempt, and nobody counts the time in between as work
		equal(w, "segment and attempt", [2]int{c.Segment, c.Attempt}, [2]int{2, 1})
		equal(w, "deliveries", payloads(c), map[string]string{"i": "successful 1"})
		equal(w, "taken over, repeats", [2]bool{c.TakenOver, c.Repeats}, [2]bool{})
		equal(w, "fence", c.Fence, lost.Fence+1)
		equal(w, "clocks", c.Clocks, store.Clocks{Queued: time.Second})
		equal(w, "events", len(w.events(runID)), events)
		_, err = w.a.CommitSegment(w.ctx, lost.Token, completed)
		w.refused("the claim whose answer was lost", err, store.ErrFenced)
		w.commit(w.a, c, completed)
	})

	s.spec("a trigger whose claim was lost is due for the process itself when the claim ends", func(w *world) {
		w.suspended(list(polled("i", time.Time{})))
		lost := w.claimTrigger(w.a)
		w.a.Forget(store.Tokens{Triggers: []store.TriggerToken{lost.TriggerToken}})
		w.noTriggerDue(w.a)
		w.advance(lease)
		b, err := w.a.Backlog(w.ctx, "")
		w.must(err)
		equal(w, "due", b.Due, 1)
		again := w.claimTrigger(w.a)
		w.refused("the lost claim", w.a.TriggerPending(w.ctx, lost.TriggerToken, time.Second), store.ErrFenced)
		w.must(w.a.TriggerPending(w.ctx, again.TriggerToken, time.Second))
	})

	s.spec("a claim that its holder does not name, because it never got the answer with it, runs out", func(w *world) {
		// given a process that knows of one of its claims of each kind
		_, rollouts := w.create(2)
		known, err := w.a.Claim(w.ctx, "", 1)
		w.must(err)
		_, err = w.a.Claim(w.ctx, "", 1)
		w.must(err)
		_, waiting := w.suspended(list(polled("i", time.Time{}), polled("j", time.Time{})))
		checked, err := w.a.ClaimTriggers(w.ctx, "", 1)
		w.must(err)
		_, err = w.a.ClaimTriggers(w.ctx, "", 1)
		w.must(err)
		_, _ = w.create(1)
		judged := w.claim(w.a)
		w.commit(w.a, judged, completed)
		w.waitForScores(w.a, judged, waits("judge", inBatch("k")))
		w.claimBatch(w.a)
		// when it renews what it knows of, and the lease ends
		w.advance(lease - time.Second)
		held, _ := w.renew(w.a, known, checked[0])
		equal(w, "held", held, rollouts[:1])
		w.advance(time.Second)
		// then another process has the rest
		b := w.another()
		equal(w, "rollout", w.claim(b).RolloutID, rollouts[1])
		other := map[string]string{store.TriggerID(waiting, "i", 0, 0): "j", store.TriggerID(waiting, "j", 0, 0): "i"}
		equal(w, "trigger", w.claimTrigger(b).InterruptID, other[checked[0].TriggerID])
		equal(w, "batch", w.claimBatch(b).Action, store.ActionResolve)
	})

	s.spec("a renewal is also one of the triggers that are held", func(w *world) {
		_, _ = w.suspended(list(polled("i", time.Time{})))
		c := w.claimTrigger(w.a)
		b := w.another()
		w.advance(lease - time.Second)
		w.renew(w.a, c)
		w.advance(lease - time.Second)
		w.noTriggerDue(b)
		w.must(w.a.TriggerPending(w.ctx, c.TriggerToken, store.Never))
		w.advance(2 * lease)
		w.noTriggerDue(b)
	})
}

func deadProcessSpecs(s *suite) {
	dead := deadProcess()
	otherBoot, otherNamespace := dead, dead
	otherBoot.BootID = "00000000-0000-0000-0000-000000000000"
	otherNamespace.PIDNamespace = "pid:[1]"
	unknown := dead
	unknown.BootID, unknown.PIDNamespace = "", ""

	s.spec("a dead process's lease is void at once", func(w *world) {
		_, _ = w.create(1)
		w.claim(w.as(dead))
		c := w.claim(w.a)
		equal(w, "taken over", c.TakenOver, true)
	})

	s.spec("a dead process's trigger is claimable at once", func(w *world) {
		_, _ = w.suspended(list(polled("i", time.Time{})))
		w.claimTrigger(w.as(dead))
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionCheck)
		w.noTriggerDue(w.another())
	})

	s.spec("a process id that came again is not taken for its predecessor", func(w *world) {
		again := store.ThisProcess()
		again.StartTime = "1"
		_, _ = w.create(1)
		w.claim(w.as(again))
		w.claim(w.a)
	})

	s.spec("a process that lives keeps its lease", func(w *world) {
		_, _ = w.create(1)
		w.claim(w.as(store.ThisProcess()))
		w.advance(lease - time.Second)
		w.claimsNothing(w.a)
	})

	for name, p := range map[string]store.Process{"another boot": otherBoot, "another PID namespace": otherNamespace,
		"nobody knows where": unknown} {
		s.spec("nothing can be said of a process of "+name+": its lease must run out", func(w *world) {
			_, _ = w.create(1)
			b := w.as(p)
			w.claim(b)
			w.advance(lease - time.Second)
			w.claimsNothing(w.a)
			w.advance(time.Second)
			w.claim(w.a)
		})
	}

	s.spec("processes that are gone are forgotten only when they hold nothing", func(w *world) {
		_, _ = w.create(10)
		for range 5 {
			b := w.as(dead)
			_, err := b.Claim(w.ctx, "", 1)
			w.must(err)
		}
		// every claim but the first takes over what the one before left; the last must see that its
		// predecessor is dead
		claims, err := w.a.Claim(w.ctx, "", 1)
		w.must(err)
		equal(w, "taken over", claims[0].TakenOver, true)
	})
}
