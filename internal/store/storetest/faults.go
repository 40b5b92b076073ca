package storetest

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func faultSpecs(s *suite) {
	for _, c := range []struct {
		status store.Status
		state  store.TriggerState
	}{
		{store.StatusFaulted, store.TriggerFaulted}, {store.StatusCancelled, store.TriggerCancelled},
		{store.StatusExpired, store.TriggerExpired}} {
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
			equal(w, "state", o.State, eval.StateFaulted)
			if o.Fault == nil || o.Fault.Category != "job" || o.Fault.Message == "" {
				w.Fatalf("fault %+v", o.Fault)
			}
			equal(w, "triggers", states(o.Triggers), map[string]store.TriggerState{
				"i/0/0": c.state, "j/0/0": store.TriggerAbandoned})
			equal(w, "its other job", w.claimTrigger(w.a).Action, store.ActionCancel)
			again := store.Duplicate
			if c.status == store.StatusExpired {
				again = store.Late
			}
			equal(w, "once more", w.deliver(w.a, payload(id, `1`)), again)
			// and the other one waits as before
			equal(w, "the other", states(w.view(runID, rollouts[1]).Triggers), map[string]store.TriggerState{
				"i/0/0": store.TriggerWaiting, "j/0/0": store.TriggerWaiting})
			equal(w, "state of the other", w.view(runID, rollouts[1]).State, eval.StateSuspended)
		})

		s.spec("an agent that takes faults is resumed with a delivery that is "+string(c.status), func(w *world) {
			runID, rollout := w.suspended(list(external("i")), acceptsFaults)
			id := store.TriggerID(rollout, "i", 0, 0)
			f := fault.New("job", "boom")
			w.deliver(w.a, store.Delivery{TriggerID: id, Status: c.status, Fault: f})
			claim := w.claim(w.a)
			equal(w, "deliveries", len(claim.Deliveries), 1)
			equal(w, "status", claim.Deliveries[0].Status, c.status)
			equal(w, "state", claim.Deliveries[0].State, c.state)
			equal(w, "fault", claim.Deliveries[0].Fault, f)
			w.commit(w.a, claim, completed)
			equal(w, "consumed", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
				"i/0/0": store.TriggerConsumed})
		})
	}

	s.spec("a fault's own category is kept", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		w.deliver(w.a, store.Delivery{
			TriggerID: store.TriggerID(rollout, "i", 0, 0), Status: store.StatusFaulted, Fault: fault.New("start-unknown", "m")})
		equal(w, "fault", w.view(runID, rollout).Fault, fault.New("start-unknown", "m"))
	})

	s.spec("all: one fault is enough for an agent that takes none, and the rest is needed for one that does",
		func(w *world) {
			for _, accepts := range []bool{false, true} {
				runID, rollout := w.suspended(list(external("i"), external("j")), needsAll, func(p *store.Plan) {
					p.Rollouts[0].AcceptsFaults = accepts
				})
				w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "i", 0, 0), Status: store.StatusFaulted})
				if !accepts {
					equal(w, "state", w.view(runID, rollout).State, eval.StateFaulted)
					continue
				}
				w.claimsNothing(w.a)
				w.deliver(w.a, payload(store.TriggerID(rollout, "j", 0, 0), `1`))
				equal(w, "deliveries", len(w.claim(w.a).Deliveries), 2)
			}
		})

	// B6
	s.spec("a fault that the agent cannot take counts only when nothing waits to be taken, whenever the rollout is claimed", func(w *world) {
		for _, claimFirst := range []bool{false, true} {
			runID, rollout := w.suspended(list(external("i"), external("j")))
			var c store.Claim
			w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
			if claimFirst {
				c = w.claim(w.a)
			}
			w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "j", 0, 0), Status: store.StatusFaulted})
			if !claimFirst {
				c = w.claim(w.a)
			}
			equal(w, "deliveries", payloads(c), map[string]string{"i": "successful 1"})
			equal(w, "the agent still waits for it", w.suspend(w.a, c, external("j")), store.Committed{State: eval.StateFaulted})
			equal(w, "state", w.view(runID, rollout).State, eval.StateFaulted)
		}
	})

	s.spec("a fault that the agent does not wait for any more does no harm", func(w *world) { // B6
		runID, rollout := w.suspended(list(external("i"), external("j")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "j", 0, 0), Status: store.StatusFaulted})
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		equal(w, "state", w.view(runID, rollout).State, eval.StateEvaluating)
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed, "j/0/0": store.TriggerAbandoned})
	})

	s.spec("all: a fault that the agent cannot take is the end, in whatever order", func(w *world) { // B6
		for _, order := range []string{"ij", "ji"} {
			runID, rollout := w.suspended(list(external("i"), external("j")), needsAll)
			for _, id := range order {
				d := payload(store.TriggerID(rollout, string(id), 0, 0), `1`)
				if id == 'j' {
					d.Status = store.StatusFaulted
				}
				w.deliver(w.a, d)
			}
			equal(w, "state", w.view(runID, rollout).State, eval.StateFaulted)
		}
	})

	s.spec("a fault that comes while a segment runs counts if the agent still waits for it", func(w *world) {
		for _, waits := range []bool{false, true} {
			runID, rollout := w.suspended(list(external("i"), external("j")))
			w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
			c := w.claim(w.a)
			w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "j", 0, 0), Status: store.StatusFaulted})
			equal(w, "state", w.view(runID, rollout).State, eval.StateRunning)
			if waits {
				equal(w, "committed", w.suspend(w.a, c, external("j")), store.Committed{State: eval.StateFaulted})
			} else {
				equal(w, "committed", w.suspend(w.a, c, external("k")), store.Committed{State: eval.StateSuspended})
			}
		}
	})
}

func deadlineSpecs(s *suite) {
	suspendFor := func(w *world, timeout time.Duration, triggers ...store.NewTrigger) (rollout string) {
		_, rollouts := w.create(1)
		w.commit(w.a, w.claim(w.a), store.SegmentEnd{
			Outcome: store.OutcomeSuspended, Triggers: triggers, SuspendTimeout: timeout})
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
			w.must(w.a.TriggerPending(w.ctx, c.TriggerToken, time.Minute))
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
		equal(w, "expired", w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(rollout, "i", 0, 0),
			Status: store.StatusExpired, Fence: claims[0].Fence}), store.Accepted)
		equal(w, "state", w.trigger(store.TriggerID(rollout, "i", 0, 0)).State, store.TriggerExpired)
	})

	s.spec("a trigger that is checked without a next time is due again at its deadline", func(w *world) {
		_ = suspendFor(w, time.Hour, polled("i", w.Now()))
		w.must(w.a.TriggerPending(w.ctx, w.claimTrigger(w.a).TriggerToken, store.Never))
		w.advance(time.Hour - time.Second)
		w.noTriggerDue(w.a)
		w.advance(time.Second)
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionExpire)
	})

	s.spec("a delivery counts by the time at which the store took it", func(w *world) { // B4
		rollout := suspendFor(w, time.Hour, external("i"), external("j"))
		i, j := store.TriggerID(rollout, "i", 0, 0), store.TriggerID(rollout, "j", 0, 0)
		w.advance(time.Hour - time.Microsecond)
		equal(w, "in time", w.deliver(w.a, payload(i, `1`)), store.Accepted)
		w.advance(time.Microsecond)
		equal(w, "at the deadline, though nobody has claimed it", w.deliver(w.a, payload(j, `1`)), store.Late)
		equal(w, "by key", w.deliver(w.a, byKey("key-j", `1`)), store.Late)
		equal(w, "it waits to be expired", w.trigger(j).State, store.TriggerWaiting)
		c := w.claimTrigger(w.a)
		equal(w, "while it is claimed", w.deliver(w.another(), payload(j, `1`)), store.Late)
		equal(w, "expiry", w.deliver(w.a, store.Delivery{TriggerID: j, Status: store.StatusExpired, Fence: c.Fence}),
			store.Accepted)
		equal(w, "once it has expired", w.deliver(w.a, payload(j, `1`)), store.Late)
		equal(w, "of the one that was answered", w.deliver(w.a, payload(i, `1`)), store.Duplicate)
		all, err := w.a.Deliveries(w.ctx, j)
		w.must(err)
		equal(w, "kept", len(all), 5)
	})

	s.spec("the answer of a source that is asked once more after the deadline counts", func(w *world) {
		rollout := suspendFor(w, time.Hour, polled("i", w.Now().Add(2*time.Hour)))
		w.advance(2 * time.Hour)
		c := w.claimTrigger(w.a)
		d := payload(c.TriggerID, `1`)
		d.Fence = c.Fence
		equal(w, "disposition", w.deliver(w.a, d), store.Accepted)
		equal(w, "resumed", w.claim(w.a).RolloutID, rollout)
	})

	// B4
	s.spec("a parked delivery that came in time counts when the key of the job is known, however late that is",
		func(w *world) {
			_ = suspendFor(w, time.Minute, startable("i"))
			c := w.claimTrigger(w.a)
			d := byKey("job-7", `1`)
			d.Source = "http"
			equal(w, "disposition", w.deliver(w.a, d), store.Parked)
			w.advance(time.Minute)
			d.Payload = []byte(`2`)
			equal(w, "disposition", w.deliver(w.a, d), store.Parked)
			w.must(w.a.TriggerStarted(w.ctx, c.TriggerToken, "job-7", time.Second))
			all, err := w.a.Deliveries(w.ctx, c.TriggerID)
			w.must(err)
			equal(w, "dispositions", []store.Disposition{all[0].Disposition, all[1].Disposition},
				[]store.Disposition{store.Accepted, store.Duplicate})
			equal(w, "fired", w.trigger(c.TriggerID).State, store.TriggerFired)
		})

	// B1
	s.spec("a start that keeps failing is never due in the past, and after its deadline when it is told to",
		func(w *world) {
			_ = suspendFor(w, time.Minute, startable("i"))
			for range 20 {
				c := w.claimTrigger(w.a)
				w.must(w.a.TriggerFailed(w.ctx, c.TriggerToken, 10*time.Second, store.TriggerFailure{Error: "boom"}))
				w.noTriggerDue(w.a)
				equal(w, "due", w.trigger(c.TriggerID).NextDue, w.Now().Add(10*time.Second))
				w.advance(10 * time.Second)
			}
		})

	s.spec("a failure is counted and its error kept until a call succeeds", func(w *world) {
		_ = suspendFor(w, time.Hour, startable("i"))
		for n := 1; n <= 3; n++ {
			c := w.claimTrigger(w.a)
			equal(w, "failures", c.Failures, n-1)
			w.must(w.a.TriggerFailed(w.ctx, c.TriggerToken, 0, store.TriggerFailure{Error: "boom"}))
		}
		c := w.claimTrigger(w.a)
		equal(w, "error", c.LastError, "boom")
		w.must(w.a.TriggerStarted(w.ctx, c.TriggerToken, "job-1", 0))
		c = w.claimTrigger(w.a)
		equal(w, "after a success", [2]any{c.Failures, c.LastError}, [2]any{0, ""})
	})

	s.spec("what is put back untried is as it was", func(w *world) { // R21
		_ = suspendFor(w, time.Hour, startable("i"))
		c := w.claimTrigger(w.a)
		w.must(w.a.TriggerFailed(w.ctx, c.TriggerToken, 0, store.TriggerFailure{Error: "boom", NotStarted: true}))
		was := w.trigger(c.TriggerID)
		w.must(w.a.TriggerFailed(w.ctx, w.claimTrigger(w.a).TriggerToken, 0, store.TriggerFailure{
			Error: "not this", NotStarted: true, NotTried: true}))
		equal(w, "not started", w.trigger(c.TriggerID), was)
		w.must(w.a.TriggerFailed(w.ctx, w.claimTrigger(w.a).TriggerToken, 0, store.TriggerFailure{NotTried: true}))
		c = w.claimTrigger(w.another())
		equal(w, "perhaps started", []any{c.Action, c.Failures, c.LastError}, []any{store.ActionResolve, 1, "boom"})
	})

	s.spec("a trigger says when its source was asked last, whether or not it could be", func(w *world) {
		runID, rollout := w.suspended(list(startable("i")))
		at := func(what string, want time.Time) {
			equal(w, what, w.trigger(store.TriggerID(rollout, "i", 0, 0)).CheckedAt, want)
		}
		w.must(w.a.TriggerFailed(w.ctx, w.claimTrigger(w.a).TriggerToken, 0, store.TriggerFailure{
			Error: "boom", NotStarted: true}))
		w.must(w.a.TriggerStarted(w.ctx, w.claimTrigger(w.a).TriggerToken, "job-1", 0))
		at("a start", time.Time{})
		w.advance(time.Second)
		w.must(w.a.TriggerPending(w.ctx, w.claimTrigger(w.a).TriggerToken, 0))
		at("it goes on", w.Now())
		w.advance(time.Second)
		w.must(w.a.TriggerFailed(w.ctx, w.claimTrigger(w.a).TriggerToken, 0, store.TriggerFailure{Error: "boom"}))
		at("it could not be asked", w.Now())
		w.advance(time.Second)
		c := w.claimTrigger(w.a)
		_, err := w.a.Deliver(w.ctx, store.Delivery{
			TriggerID: c.TriggerID, Fence: c.Fence, Status: store.StatusSuccessful, Payload: json.RawMessage(`1`), By: "http"})
		w.must(err)
		at("it was done", w.Now())
		equal(w, "who", w.view(runID, rollout).Triggers[0].DeliveredBy, "http")
	})

	s.spec("a run changes when a source begins to fail, fails, and fails no more", func(w *world) {
		runID, _ := w.suspended(list(startable("i")))
		w.must(w.a.TriggerStarted(w.ctx, w.claimTrigger(w.a).TriggerToken, "job-1", 0))
		before := w.run(runID).Revision
		changes := func(what string, want int64) {
			after := w.run(runID).Revision
			equal(w, what, after-before, want)
			before = after
		}
		w.must(w.a.TriggerPending(w.ctx, w.claimTrigger(w.a).TriggerToken, 0))
		changes("it goes on", 0)
		w.must(w.a.TriggerFailed(w.ctx, w.claimTrigger(w.a).TriggerToken, 0, store.TriggerFailure{Error: "boom"}))
		changes("it fails", 1)
		w.must(w.a.TriggerPending(w.ctx, w.claimTrigger(w.a).TriggerToken, 0))
		changes("it fails no more", 1)
	})

	s.spec("an overdue trigger says since when, and may be asked again", func(w *world) { // B5
		_ = suspendFor(w, time.Hour, polled("i", w.Now()))
		c := w.claimTrigger(w.a)
		equal(w, "overdue", c.OverdueSince, time.Time{})
		w.must(w.a.TriggerFailed(w.ctx, c.TriggerToken, 24*time.Hour, store.TriggerFailure{Error: "boom"}))
		w.noTriggerDue(w.a)
		w.advance(2 * time.Hour) // nobody was there at the deadline
		since := w.Now()
		for range 3 {
			c = w.claimTrigger(w.a)
			equal(w, "action", c.Action, store.ActionExpire)
			equal(w, "overdue", c.OverdueSince, since)
			w.must(w.a.TriggerFailed(w.ctx, c.TriggerToken, time.Second, store.TriggerFailure{Error: "boom"}))
			w.noTriggerDue(w.a)
			w.advance(time.Second)
		}
	})

	s.spec("a job is cancelled once its trigger has expired", func(w *world) { // B9
		_ = suspendFor(w, time.Hour, polled("i", w.Now().Add(2*time.Hour)), startable("j"), external("k"))
		w.must(w.a.TriggerStarted(w.ctx, w.claimTrigger(w.a).TriggerToken, "job-7", 2*time.Hour))
		w.advance(time.Hour)
		claims, err := w.a.ClaimTriggers(w.ctx, "", 10)
		w.must(err)
		for _, c := range claims {
			_, err := w.a.Deliver(w.ctx, store.Delivery{TriggerID: c.TriggerID, Status: store.StatusExpired, Fence: c.Fence})
			w.must(err)
		}
		claims, err = w.another().ClaimTriggers(w.ctx, "", 10)
		w.must(err)
		cancelled := map[string]store.Action{}
		for _, c := range claims {
			cancelled[c.ItemKey] = c.Action
		}
		equal(w, "cancelled", cancelled, map[string]store.Action{"key-i": store.ActionCancel, "job-7": store.ActionCancel})
		w.noTriggerDue(w.a)
	})

	s.spec("a job whose wait is over already is not started any more; one that may have been is looked for first",
		func(w *world) {
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

	// B10
	s.spec("a suspension has its own deadline, which does not move those of the triggers that it kept", func(w *world) {
		rollout := suspendFor(w, time.Hour, external("i"), external("j"))
		kept := w.trigger(store.TriggerID(rollout, "j", 0, 0)).Deadline
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		w.advance(time.Minute)
		w.commit(w.a, w.claim(w.a), store.SegmentEnd{
			Outcome: store.OutcomeSuspended, Triggers: list(external("j"), external("k")), SuspendTimeout: time.Hour})
		equal(w, "kept", w.trigger(store.TriggerID(rollout, "j", 0, 0)).Deadline, kept)
		equal(w, "new", w.trigger(store.TriggerID(rollout, "k", 0, 0)).Deadline, kept.Add(time.Minute))
	})

	s.spec("a trigger whose deadline passes while its source is asked is due when that is over", func(w *world) {
		rollout := suspendFor(w, time.Minute, polled("j", w.Now()))
		held := w.claimTrigger(w.a)
		w.advance(20 * time.Second)
		w.renew(w.a, held)
		w.advance(time.Minute - 20*time.Second - time.Microsecond)
		w.renew(w.a, held)
		w.advance(time.Second)
		w.noTriggerDue(w.another()) // it is still being asked
		w.must(w.a.TriggerPending(w.ctx, held.TriggerToken, time.Hour))
		equal(w, "due", w.trigger(store.TriggerID(rollout, "j", 0, 0)).NextDue, w.Now())
		equal(w, "action", w.claimTrigger(w.another()).Action, store.ActionExpire)
	})
}
