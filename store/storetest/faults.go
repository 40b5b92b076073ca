package storetest

import (
	"time"

	"github.com/evalrun/evalrun/store"
)

func faultSpecs(s *suite) {
	for _, c := range []struct {
		status store.Status
		state  store.TriggerState
	}{{store.StatusFaulted, store.TriggerFaulted}, {store.StatusCancelled, store.TriggerCancelled}, {store.StatusExpired, store.TriggerExpired}} {
		s.spec("an agent that takes no faults faults with a delivery that is "+string(c.status), func(w *world) {
			// given two rollouts that wait
			runID, rollouts := w.create(2)
			claims, err := w.a.Claim(w.ctx, "", 2)
			w.must(err)
			for _, c := range claims {
				w.suspend(w.a, c, external("i"), polled("j", w.Now().Add(time.Hour)))
			}
			id := store.TriggerID(rollouts[0], "i", 0, 0)
			// when one gets the delivery
			equal(w, "disposition", w.deliver(w.a, store.Delivery{TriggerID: id, Status: c.status}), store.Accepted)
			// then it is faulted with category job, and what else it waited for is given up
			o := w.view(runID, rollouts[0])
			equal(w, "state", o.State, store.StateFaulted)
			if o.Fault == nil || o.Fault.Category != "job" || o.Fault.Message == "" {
				w.Fatalf("fault %+v", o.Fault)
			}
			equal(w, "triggers", states(o.Triggers), map[string]store.TriggerState{"i/0/0": c.state, "j/0/0": store.TriggerAbandoned})
			equal(w, "its other job", w.claimTrigger(w.a).Action, store.ActionCancel)
			equal(w, "once more", w.deliver(w.a, payload(id, `1`)), store.Duplicate)
			// and the other one waits as before
			equal(w, "the other", states(w.view(runID, rollouts[1]).Triggers), map[string]store.TriggerState{"i/0/0": store.TriggerWaiting, "j/0/0": store.TriggerWaiting})
			equal(w, "state of the other", w.view(runID, rollouts[1]).State, store.StateSuspended)
		})

		s.spec("an agent that takes faults is resumed with a delivery that is "+string(c.status), func(w *world) {
			runID, rollout := w.suspended(list(external("i")), acceptsFaults)
			id := store.TriggerID(rollout, "i", 0, 0)
			fault := &store.Fault{Category: "job", Message: "boom"}
			w.deliver(w.a, store.Delivery{TriggerID: id, Status: c.status, Fault: fault})
			claim := w.claim(w.a)
			equal(w, "deliveries", len(claim.Deliveries), 1)
			equal(w, "status", claim.Deliveries[0].Status, c.status)
			equal(w, "state", claim.Deliveries[0].State, c.state)
			equal(w, "fault", claim.Deliveries[0].Fault, fault)
			w.commit(w.a, claim, completed)
			equal(w, "consumed", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{"i/0/0": store.TriggerConsumed})
		})
	}

	s.spec("a fault's own category is kept", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "i", 0, 0), Status: store.StatusFaulted, Fault: &store.Fault{Category: "start-unknown", Message: "m"}})
		equal(w, "fault", w.view(runID, rollout).Fault, &store.Fault{Category: "start-unknown", Message: "m"})
	})

	s.spec("all: one fault is enough for an agent that takes none, and the rest is needed for one that does", func(w *world) {
		for _, accepts := range []bool{false, true} {
			runID, rollout := w.suspended(list(external("i"), external("j")), needsAll, func(p *store.Plan) { p.Rollouts[0].AcceptsFaults = accepts })
			w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "i", 0, 0), Status: store.StatusFaulted})
			if !accepts {
				equal(w, "state", w.view(runID, rollout).State, store.StateFaulted)
				continue
			}
			w.claimsNothing(w.a)
			w.deliver(w.a, payload(store.TriggerID(rollout, "j", 0, 0), `1`))
			equal(w, "deliveries", len(w.claim(w.a).Deliveries), 2)
		}
	})

	s.spec("a fault that comes while a segment runs counts if the agent still waits for it", func(w *world) {
		for _, waits := range []bool{false, true} {
			runID, rollout := w.suspended(list(external("i"), external("j")))
			w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
			c := w.claim(w.a)
			w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "j", 0, 0), Status: store.StatusFaulted})
			equal(w, "state", w.view(runID, rollout).State, store.StateRunning)
			if waits {
				equal(w, "committed", w.suspend(w.a, c, external("j")), store.Committed{State: store.StateFaulted})
			} else {
				equal(w, "committed", w.suspend(w.a, c, external("k")), store.Committed{State: store.StateSuspended})
			}
		}
	})
}

func deadlineSpecs(s *suite) {
	suspendFor := func(w *world, timeout time.Duration, triggers ...store.NewTrigger) (rollout string) {
		_, rollouts := w.create(1)
		w.commit(w.a, w.claim(w.a), store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: triggers, SuspendTimeout: timeout})
		return rollouts[0]
	}

	s.spec("a deadline counts from the commit of the suspension and does not move", func(w *world) {
		rollout := suspendFor(w, time.Hour, polled("i", w.Now()), external("j"))
		deadline := w.Now().Add(time.Hour)
		for _, id := range []string{"i", "j"} {
			equal(w, "deadline", w.trigger(store.TriggerID(rollout, id, 0, 0)).Deadline, deadline)
		}
		for range 3 {
			w.advance(time.Minute)
			c := w.claimTrigger(w.a)
			equal(w, "action", c.Action, store.ActionCheck)
			w.must(w.a.TriggerPending(w.ctx, c.TriggerToken, w.Now().Add(time.Minute)))
		}
		equal(w, "deadline", w.trigger(store.TriggerID(rollout, "i", 0, 0)).Deadline, deadline)
	})

	s.spec("an overdue trigger is to be expired, once its deadline is there and not before", func(w *world) {
		rollout := suspendFor(w, time.Hour, external("i"), polled("j", w.Now().Add(2*time.Hour)))
		w.advance(time.Hour - time.Microsecond)
		w.noTriggerDue(w.a)
		w.advance(time.Microsecond)
		claims, err := w.a.ClaimTriggers(w.ctx, "", 10)
		w.must(err)
		equal(w, "due", len(claims), 2)
		for _, c := range claims {
			equal(w, "action", c.Action, store.ActionExpire)
		}
		equal(w, "expired", w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "i", 0, 0), Status: store.StatusExpired, Fence: claims[0].Fence}), store.Accepted)
		equal(w, "state", w.trigger(store.TriggerID(rollout, "i", 0, 0)).State, store.TriggerExpired)
	})

	s.spec("a trigger that is checked without a next time is due again at its deadline", func(w *world) {
		_ = suspendFor(w, time.Hour, polled("i", w.Now()))
		w.must(w.a.TriggerPending(w.ctx, w.claimTrigger(w.a).TriggerToken, time.Time{}))
		w.advance(time.Hour - time.Second)
		w.noTriggerDue(w.a)
		w.advance(time.Second)
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionExpire)
	})

	s.spec("a delivery that the store takes before the trigger expires counts", func(w *world) {
		rollout := suspendFor(w, time.Hour, external("i"))
		w.advance(2 * time.Hour)
		c := w.claimTrigger(w.a)
		equal(w, "disposition", w.deliver(w.another(), payload(c.TriggerID, `1`)), store.Accepted)
		equal(w, "expiry", w.deliver(w.a, store.Delivery{TriggerID: c.TriggerID, Status: store.StatusExpired, Fence: c.Fence}), store.Duplicate)
		equal(w, "resumed", w.claim(w.a).RolloutID, rollout)
	})

	s.spec("a job whose wait is over already is not started any more; one that may have been is looked for first", func(w *world) {
		_ = suspendFor(w, time.Minute, startable("i"))
		w.advance(time.Minute)
		equal(w, "never started", w.claimTrigger(w.a).Action, store.ActionExpire)
		_ = suspendFor(w, time.Minute, startable("i"))
		equal(w, "started in time", w.claimTrigger(w.a).Action, store.ActionStart)
		w.advance(time.Minute)
		b := w.another()
		claims, err := b.ClaimTriggers(w.ctx, "", 10)
		w.must(err)
		actions := map[store.Action]bool{}
		for _, c := range claims {
			actions[c.Action] = true
		}
		equal(w, "actions", actions, map[store.Action]bool{store.ActionExpire: true, store.ActionResolve: true})
	})

	s.spec("a suspension has its own deadline, also for a trigger that it kept", func(w *world) {
		rollout := suspendFor(w, time.Hour, external("i"), polled("j", w.Now()))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		held := w.claimTrigger(w.a) // its source is being asked while the segment runs
		w.advance(time.Minute)
		_, _, err := w.a.Renew(w.ctx)
		w.must(err)
		w.commit(w.a, w.claim(w.a), store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: list(external("j")), SuspendTimeout: time.Second})
		equal(w, "deadline", w.trigger(held.TriggerID).Deadline, w.Now().Add(time.Second))
		w.advance(2 * time.Second)
		w.noTriggerDue(w.another()) // it is still being asked
		w.must(w.a.TriggerPending(w.ctx, held.TriggerToken, w.Now().Add(time.Hour)))
		equal(w, "action", w.claimTrigger(w.another()).Action, store.ActionExpire)
	})
}
