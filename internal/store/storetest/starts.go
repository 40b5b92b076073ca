package storetest

import (
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

func startSpecs(s *suite) {
	s.spec("a job is started once it is recorded that it will be", func(w *world) {
		runID, rollout := w.suspended(list(startable("i")))
		id := store.TriggerID(rollout, "i", 0, 0)
		equal(w, "intended", w.trigger(id).State, store.TriggerIntended)
		equal(w, "key", w.trigger(id).ItemKey, "job-"+id)
		revision := w.run(runID).Revision
		c := w.claimTrigger(w.a)
		equal(w, "action", c.Action, store.ActionStart)
		equal(w, "attempts", c.Attempts, 1)
		equal(w, "starting, before anybody calls", w.trigger(id).State, store.TriggerStarting)
		if w.run(runID).Revision <= revision {
			w.Fatal("a document that shows the state would not be made anew")
		}
		w.advance(time.Second)
		w.must(w.a.TriggerStarted(w.ctx, c.TriggerToken, "job-7", time.Minute))
		g := w.trigger(id)
		equal(w, "state, key", [2]string{string(g.State), g.ItemKey}, [2]string{"waiting", "job-7"})
		equal(w, "started, due", [2]time.Time{g.StartedAt, g.NextDue}, [2]time.Time{w.Now(), w.Now().Add(time.Minute)})
		w.noTriggerDue(w.another())
		w.advance(time.Minute)
		equal(w, "then", w.claimTrigger(w.another()).Action, store.ActionCheck)
	})

	s.spec("a start without a key keeps the one that was made", func(w *world) {
		_, rollout := w.suspended(list(startable("i")))
		w.must(w.a.TriggerStarted(w.ctx, w.claimTrigger(w.a).TriggerToken, "", store.Never))
		id := store.TriggerID(rollout, "i", 0, 0)
		equal(w, "key", w.trigger(id).ItemKey, "job-"+id)
	})

	s.spec("a start that was broken off is to be resolved, not begun again", func(w *world) {
		_, _ = w.suspended(list(startable("i")))
		w.claimTrigger(w.as(deadProcess()))
		c := w.claimTrigger(w.a)
		equal(w, "action", c.Action, store.ActionResolve)
		equal(w, "attempts", c.Attempts, 2)
		w.advance(lease)
		c = w.claimTrigger(w.another())
		equal(w, "action", c.Action, store.ActionResolve)
	})

	s.spec("a start that failed is tried again when it is due, as one that may have happened", func(w *world) {
		_, _ = w.suspended(list(startable("i")))
		w.must(w.a.TriggerPending(w.ctx, w.claimTrigger(w.a).TriggerToken, time.Minute))
		w.noTriggerDue(w.a)
		w.advance(time.Minute)
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionResolve)
	})

	s.spec("a start that certainly came to nothing is intended again", func(w *world) { // B2
		runID, rollout := w.suspended(list(startable("i")))
		c := w.claimTrigger(w.a)
		revision := w.run(runID).Revision
		w.must(w.a.TriggerFailed(w.ctx, c.TriggerToken, time.Minute, store.TriggerFailure{
			Error: "refused", NotStarted: true}))
		equal(w, "state", w.trigger(store.TriggerID(rollout, "i", 0, 0)).State, store.TriggerIntended)
		if w.run(runID).Revision <= revision {
			w.Fatal("a document that shows the state would not be made anew")
		}
		w.noTriggerDue(w.a)
		w.advance(time.Minute)
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionStart)
	})

	s.spec("triggers are claimed as they become due, up to the limit and of one run", func(w *world) {
		_, _ = w.suspended(list(polled("a", w.Now().Add(3*time.Second)), polled("b", w.Now().Add(time.Second)),
			polled("c", w.Now().Add(2*time.Second)), external("d")))
		other, _ := w.suspended(list(polled("e", w.Now())))
		w.advance(time.Minute)
		claims, err := w.a.ClaimTriggers(w.ctx, other, 10)
		w.must(err)
		equal(w, "of one run", len(claims), 1)
		equal(w, "its trigger", claims[0].InterruptID, "e")
		var order string
		for _, limit := range []int{0, 1, 2, 10} {
			claims, err := w.a.ClaimTriggers(w.ctx, "", limit)
			w.must(err)
			if len(claims) > limit {
				w.Fatalf("%d claims, limit %d", len(claims), limit)
			}
			for _, c := range claims {
				order += c.InterruptID
			}
		}
		equal(w, "order", order, "bca")
	})

	s.spec("no trigger is claimed twice by those who claim at once", func(w *world) {
		var triggers []store.NewTrigger
		for i := range 40 {
			triggers = append(triggers, startable(string(rune('A'+i))))
		}
		_, _ = w.suspended(triggers)
		stores := []Store{w.a, w.another()}
		var mu sync.Mutex
		seen := map[string]int{}
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				for {
					claims, err := stores[i%2].ClaimTriggers(w.ctx, "", 3)
					if err != nil {
						w.Error(err)
					}
					if len(claims) == 0 {
						return
					}
					mu.Lock()
					for _, c := range claims {
						seen[c.TriggerID]++
					}
					mu.Unlock()
				}
			})
		}
		group.Wait()
		equal(w, "triggers", len(seen), len(triggers))
		for id, n := range seen {
			equal(w, id, n, 1)
		}
	})

	s.spec("what waits can be made due now", func(w *world) {
		_, first := w.suspended(list(polled("i", w.Now().Add(time.Hour)), external("j")))
		runID, second := w.suspended(list(polled("i", w.Now().Add(time.Hour)), external("j")))
		w.must(w.a.CheckTrigger(w.ctx, store.TriggerID(first, "i", 0, 0)))
		c := w.claimTrigger(w.a)
		equal(w, "one", c.RolloutID, first)
		w.must(w.a.TriggerPending(w.ctx, c.TriggerToken, store.Never)) // never again by itself
		w.must(w.a.CheckNow(w.ctx, runID))
		c = w.claimTrigger(w.a)
		equal(w, "of a run", c.RolloutID, second)
		w.must(w.a.CheckNow(w.ctx, "")) // spares what is claimed
		equal(w, "of all", w.claimTrigger(w.a).RolloutID, first)
	})
}

func givenUpSpecs(s *suite) {
	// starting makes a rollout that waits for i and for a job that is being started at this moment.
	starting := func(w *world) (runID, rollout string, c store.TriggerClaim) {
		runID, rollout = w.suspended(list(external("i"), startable("job")))
		return runID, rollout, w.claimTrigger(w.a)
	}

	s.spec("a job that is being started when it is given up is cancelled when its key is known", func(w *world) {
		runID, _, c := starting(w)
		b := w.another()
		w.cancel(runID)
		equal(w, "state", w.trigger(c.TriggerID).State, store.TriggerCancelled)
		w.noTriggerDue(b)
		w.must(w.a.TriggerStarted(w.ctx, c.TriggerToken, "job-7", time.Hour))
		again := w.claimTrigger(b)
		equal(w, "action, key", [2]string{string(again.Action), again.ItemKey}, [2]string{"cancel", "job-7"})
		equal(w, "state", w.trigger(c.TriggerID).State, store.TriggerCancelled)
		w.advance(2 * time.Hour)
		w.noTriggerDue(w.a)
	})

	s.spec("a start that failed and is given up is cancelled all the same: it may have happened", func(w *world) {
		_, rollout, c := starting(w)
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		w.commit(w.a, w.claim(w.a), completed)
		w.must(w.a.TriggerPending(w.ctx, c.TriggerToken, time.Hour))
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionCancel)
	})

	s.spec("a job whose starter says that it failed after it was given up is cancelled", func(w *world) {
		runID, _, c := starting(w)
		w.cancel(runID)
		equal(w, "disposition", w.deliver(w.a, store.Delivery{TriggerID: c.TriggerID, Fence: c.Fence,
			Status: store.StatusFaulted}), store.Late)
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionCancel)
	})

	s.spec("a job whose starter died after it was given up is cancelled by another", func(w *world) {
		runID, _ := w.suspended(list(startable("job")))
		stale := w.as(deadProcess())
		c := w.claimTrigger(stale)
		w.cancel(runID)
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionCancel)
		w.refused("its start", stale.TriggerStarted(w.ctx, c.TriggerToken, "job-7", store.Never), store.ErrFenced)
		w.noTriggerDue(w.a)
	})

	s.spec("a start that certainly came to nothing after it was given up needs no cancelling", func(w *world) { // B2
		runID, _, c := starting(w)
		w.cancel(runID)
		w.must(w.a.TriggerFailed(w.ctx, c.TriggerToken, 0, store.TriggerFailure{NotStarted: true}))
		w.advance(time.Hour)
		w.noTriggerDue(w.a)
	})

	s.spec("a job that is answered by hand is cancelled", func(w *world) { // B9
		_, rollout := w.suspended(list(polled("i", w.Now().Add(time.Hour))))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		equal(w, "action", w.claimTrigger(w.another()).Action, store.ActionCancel)
		w.noTriggerDue(w.a)
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 1"})
	})

	s.spec("a job whose source has told its end is not cancelled", func(w *world) { // B9
		_, rollout := w.suspended(list(polled("i", w.Now())))
		d := payload(store.TriggerID(rollout, "i", 0, 0), `1`)
		d.Fence = w.claimTrigger(w.a).Fence
		w.deliver(w.a, d)
		w.noTriggerDue(w.a)
	})

	// B9
	s.spec("a job that is answered by hand while it is being started is cancelled when its key is known", func(w *world) {
		_, _, c := starting(w)
		equal(w, "disposition", w.deliver(w.another(), payload(c.TriggerID, `1`)), store.Accepted)
		equal(w, "again", w.deliver(w.another(), payload(c.TriggerID, `2`)), store.Duplicate)
		w.noTriggerDue(w.a)
		w.must(w.a.TriggerStarted(w.ctx, c.TriggerToken, "job-7", time.Hour))
		again := w.claimTrigger(w.a)
		equal(w, "action, key", [2]string{string(again.Action), again.ItemKey}, [2]string{"cancel", "job-7"})
		equal(w, "state", w.trigger(c.TriggerID).State, store.TriggerFired)
		w.noTriggerDue(w.a)
	})

	s.spec("a job that delivers itself is not cancelled, and what its source tells then is a duplicate", func(w *world) {
		_, rollout := w.suspended(list(polled("i", w.Now())))
		c := w.claimTrigger(w.a)
		d := payload(store.TriggerID(rollout, "i", 0, 0), `1`)
		d.ByJob = true
		equal(w, "disposition", w.deliver(w.another(), d), store.Accepted)
		polled := payload(c.TriggerID, `2`)
		polled.Fence = c.Fence
		equal(w, "asked", w.deliver(w.a, polled), store.Duplicate)
		w.advance(time.Hour)
		w.noTriggerDue(w.a)
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 1"})
	})

	s.spec("a job that delivers while it is being started is not cancelled", func(w *world) {
		_, _, c := starting(w)
		d := payload(c.TriggerID, `1`)
		d.ByJob = true
		equal(w, "disposition", w.deliver(w.another(), d), store.Accepted)
		w.refused("the start", w.a.TriggerStarted(w.ctx, c.TriggerToken, "job-7", time.Hour), store.ErrFenced)
		w.advance(time.Hour)
		w.noTriggerDue(w.a)
		equal(w, "state", w.trigger(c.TriggerID).State, store.TriggerFired)
	})

	s.spec("what a job delivers after the deadline is late", func(w *world) {
		_, rollouts := w.create(1)
		w.commit(w.a, w.claim(w.a), store.SegmentEnd{
			Outcome: store.OutcomeSuspended, Triggers: list(polled("i", w.Now().Add(time.Hour))), SuspendTimeout: time.Minute})
		w.advance(time.Minute)
		d := payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`)
		d.ByJob = true
		equal(w, "disposition", w.deliver(w.a, d), store.Late)
	})

	s.spec("a job that was never started needs no cancelling", func(w *world) {
		runID, _ := w.suspended(list(startable("job"), external("i")))
		w.cancel(runID)
		w.noTriggerDue(w.a)
	})
}
