package storetest

import (
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func suspensionSpecs(s *suite) {
	s.spec("a suspension makes a trigger of each interrupt, with ids that could be known before", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		w.advance(time.Minute)
		n := polled("job", w.Now().Add(time.Second))
		n.FolderPath, n.FolderKey, n.Spec = "Shared", "folder", []byte(`{"a":1}`)
		keyless := external("task")
		keyless.ItemKey, keyless.KeyPrefix = "", "task-"
		done := w.suspend(w.a, c, n, keyless)
		equal(w, "committed", done, store.Committed{State: eval.StateSuspended})
		o := w.view(runID, rollouts[0])
		taskID := store.TriggerID(rollouts[0], "task", 0, 0)
		equal(w, "triggers", o.Triggers, []store.Trigger{
			{
				ID: store.TriggerID(rollouts[0], "job", 0, 0), RunID: runID, RolloutID: rollouts[0], EvaluationID: "e0",
				EvaluationName: "Ee0", Agent: "agent", Epoch: 1, InterruptID: "job", Type: "JOB", Name: "JOB", Source: "http",
				ItemKey: "key-job", FolderPath: "Shared", FolderKey: "folder", Spec: []byte(`{"a":1}`), State: store.TriggerWaiting,
				Segment: 1, CreatedAt: w.Now(), NextDue: w.Now().Add(time.Second)},
			{
				ID: taskID, RunID: runID, RolloutID: rollouts[0], EvaluationID: "e0", EvaluationName: "Ee0", Agent: "agent",
				Epoch: 1, InterruptID: "task", Type: "TASK", Name: "TASK", Source: "inbox", ItemKey: "task-" + taskID,
				Spec: []byte(`{}`), State: store.TriggerWaiting, Segment: 1, CreatedAt: w.Now()},
		})
		equal(w, "suspensions", o.Suspensions, 1)
		equal(w, "segments", o.Segments, []store.Segment{{RolloutID: rollouts[0], Number: 1, Attempt: 1,
			Outcome: store.OutcomeSuspended, StartedAt: w.Now().Add(-time.Minute), EndedAt: w.Now()}})
		equal(w, "one by its id", w.trigger(taskID), o.Triggers[1])
		equal(w, "one by a prefix", w.trigger(taskID[:20]).ID, taskID)
		equal(w, "one by its end", w.trigger(taskID[30:]).ID, taskID)
		_, err := w.a.Trigger(w.ctx, taskID[14:20])
		w.refused("one by its middle", err, store.ErrNotFound)
	})

	s.spec("a suspended rollout has no results and nobody may claim it", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		w.advance(time.Hour)
		w.claimsNothing(w.another())
		o := w.view(runID, rollout)
		equal(w, "results", len(o.Results), 0)
		if o.Score != nil {
			w.Fatal("it has a score")
		}
	})

	s.spec("a suspension that waits for nothing is refused", func(w *world) {
		_, _ = w.create(1)
		c := w.claim(w.a)
		if _, err := w.a.CommitSegment(w.ctx, c.Token, store.SegmentEnd{Outcome: store.OutcomeSuspended}); err == nil {
			w.Fatal("it would never be resumed")
		}
		equal(w, "state", w.commit(w.a, c, completed).State, eval.StateEvaluating)
	})

	s.spec("a delivery resumes with its payload, and the commit of the segment consumes it", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		id := store.TriggerID(rollout, "i", 0, 0)
		w.advance(time.Minute)
		equal(w, "disposition", w.deliver(w.a, payload(id, `{"ok":true}`)), store.Accepted)
		g := w.trigger(id)
		equal(w, "fired", g.State, store.TriggerFired)
		equal(w, "delivered at", g.DeliveredAt, w.Now())
		c := w.claim(w.another())
		equal(w, "segment and attempt", [2]int{c.Segment, c.Attempt}, [2]int{2, 1})
		equal(w, "deliveries", payloads(c), map[string]string{"i": `successful {"ok":true}`})
		if c.Repeats || c.TakenOver {
			w.Fatalf("%+v", c)
		}
		equal(w, "taken by", w.trigger(id).TakenBy, 2)
		equal(w, "not consumed yet", w.trigger(id).State, store.TriggerFired)
		w.advance(lease)
		c = w.claim(w.a)
		w.commit(w.a, c, completed)
		equal(w, "consumed", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed})
	})

	s.spec("an id that was consumed and comes again is a new occurrence", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		for occurrence := range 3 {
			id := store.TriggerID(rollout, "i", occurrence, 0)
			equal(w, "disposition", w.deliver(w.a, payload(id, `1`)), store.Accepted)
			c := w.claim(w.a)
			equal(w, "segment", c.Segment, occurrence+2)
			equal(w, "trigger", c.Deliveries[0].ID, id)
			equal(w, "not ready: the consumed payload does not answer it", w.suspend(w.a, c, external("i")).Ready, false)
		}
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed, "i/1/0": store.TriggerConsumed, "i/2/0": store.TriggerConsumed,
			"i/3/0": store.TriggerWaiting})
	})

	s.spec("an id that was not consumed and comes again is the same trigger", func(w *world) {
		runID, rollout := w.suspended(list(external("i"), external("j")))
		before := w.trigger(store.TriggerID(rollout, "j", 0, 0))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		changed := external("j")
		changed.ItemKey = "another"
		w.suspend(w.a, w.claim(w.a), changed)
		equal(w, "trigger", w.trigger(before.ID), before)
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed, "j/0/0": store.TriggerWaiting})
	})

	// B10
	s.spec("an id that was not consumed and comes again for something else supersedes its triggers", func(w *world) {
		for _, answered := range []bool{false, true} {
			before := polled("j", w.Now().Add(time.Hour))
			before.Digest = "before"
			runID, rollout := w.suspended(list(external("i"), before))
			w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
			c := w.claim(w.a)
			if answered { // the answer is not one to what is asked now
				g := w.trigger(store.TriggerID(rollout, "j", 0, 0))
				w.deliver(w.a, payload(g.ID, `1`))
			}
			after := external("j")
			after.Digest, after.ItemKey = "after", "other"
			equal(w, "ready", w.suspend(w.a, c, after).Ready, false)
			equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
				"i/0/0": store.TriggerConsumed, "j/0/0": store.TriggerSuperseded, "j/1/0": store.TriggerWaiting})
			equal(w, "its job", w.claimTrigger(w.a).Action, store.ActionCancel)
			w.noTriggerDue(w.a)
			w.cancel(runID)
		}
	})

	s.spec("an id that was not consumed and comes again for the same keeps its triggers", func(w *world) { // B10
		j := external("j")
		j.Digest = "same"
		runID, rollout := w.suspended(list(external("i"), j))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		w.suspend(w.a, w.claim(w.a), j)
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed, "j/0/0": store.TriggerWaiting})
	})

	s.spec("an id that is missing is abandoned, and its job cancelled once where it can be", func(w *world) {
		later := w.Now().Add(time.Hour)
		runID, rollout := w.suspended(list(external("i"), polled("job", later), external("task"), startable("never")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		w.suspend(w.a, w.claim(w.a), external("k"))
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed, "k/0/0": store.TriggerWaiting,
			"job/0/0": store.TriggerAbandoned, "task/0/0": store.TriggerAbandoned, "never/0/0": store.TriggerAbandoned})
		c := w.claimTrigger(w.a)
		equal(w, "to be cancelled", c.InterruptID, "job")
		equal(w, "action", c.Action, store.ActionCancel)
		w.advance(2 * time.Hour)
		w.noTriggerDue(w.another())
		equal(w, "a delivery for it", w.deliver(w.a, payload(c.TriggerID, `1`)), store.Late)
	})

	s.spec("an abandoned id that comes again is a new occurrence", func(w *world) {
		runID, rollout := w.suspended(list(external("i"), external("j")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		w.suspend(w.a, w.claim(w.a), external("i"))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 1, 0), `1`))
		w.suspend(w.a, w.claim(w.a), external("j"))
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed, "i/1/0": store.TriggerConsumed,
			"j/0/0": store.TriggerAbandoned, "j/1/0": store.TriggerWaiting})
	})

	s.spec("a rollout that completes abandons what it still waits for", func(w *world) {
		runID, rollout := w.suspended(list(external("i"), external("j"), external("k")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		c := w.claim(w.a)
		w.deliver(w.a, payload(store.TriggerID(rollout, "k", 0, 0), `1`)) // too late for this segment, and there is no other
		w.commit(w.a, c, completed)
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed, "j/0/0": store.TriggerAbandoned, "k/0/0": store.TriggerAbandoned})
	})
}

func severalSpecs(s *suite) {
	s.spec("any: the first delivery resumes, and a claim takes all that are there", func(w *world) {
		_, rollout := w.suspended(list(external("i"), external("j"), external("k")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "k", 0, 0), `"k"`))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `"i"`))
		c := w.claim(w.a)
		equal(w, "deliveries", payloads(c), map[string]string{"i": `successful "i"`, "k": `successful "k"`})
	})

	s.spec("all: only the last delivery resumes", func(w *world) {
		_, rollout := w.suspended(list(external("i"), external("j"), external("k")), needsAll)
		for _, id := range []string{"k", "i"} {
			w.deliver(w.a, payload(store.TriggerID(rollout, id, 0, 0), `1`))
			w.claimsNothing(w.a)
		}
		w.deliver(w.a, payload(store.TriggerID(rollout, "j", 0, 0), `1`))
		equal(w, "deliveries", len(w.claim(w.a).Deliveries), 3)
	})

	s.spec("all: a delivery in the mailbox is not enough while others are missing", func(w *world) {
		equal(w, "disposition", w.deliver(w.a, store.Delivery{Source: "inbox", ItemKey: "key-i",
			Status: store.StatusSuccessful}), store.Parked)
		_, rollouts := w.create(1, needsAll)
		done := w.suspend(w.a, w.claim(w.a), external("i"), external("j"))
		equal(w, "committed", done, store.Committed{State: eval.StateSuspended})
		w.claimsNothing(w.a)
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "j", 0, 0), `1`))
		equal(w, "deliveries", len(w.claim(w.a).Deliveries), 2)
	})

	s.spec("what comes while a segment runs waits for the next one", func(w *world) {
		_, rollout := w.suspended(list(external("i"), external("j")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		c := w.claim(w.a)
		equal(w, "disposition", w.deliver(w.a, payload(store.TriggerID(rollout, "j", 0, 0), `2`)), store.Accepted)
		done := w.suspend(w.a, c, external("j"))
		equal(w, "committed", done, store.Committed{State: eval.StateSuspended, Ready: true})
		c = w.claim(w.a)
		equal(w, "segment", c.Segment, 3)
		equal(w, "deliveries", payloads(c), map[string]string{"j": "successful 2"})
	})

	s.spec("every attempt of a segment gets the same deliveries", func(w *world) {
		_, rollout := w.suspended(list(external("i"), external("j")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		want := map[string]string{"i": "successful 1"}
		c := w.claim(w.a)
		equal(w, "first", payloads(c), want)
		w.deliver(w.a, payload(store.TriggerID(rollout, "j", 0, 0), `2`))
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}, Retry: true})
		c = w.claim(w.a)
		equal(w, "after a failure", payloads(c), want)
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeInterrupted})
		equal(w, "after an interruption", payloads(w.claim(w.a)), want)
		w.advance(lease)
		c = w.claim(w.another())
		equal(w, "after a take-over", payloads(c), want)
		equal(w, "segment and attempt", [2]int{c.Segment, c.Attempt}, [2]int{2, 4})
	})
}

func siblingSpecs(s *suite) {
	siblings := func(w *world) []store.NewTrigger {
		first, second, third := polled("i", w.Now().Add(time.Hour)), external("i"), startable("i")
		first.ItemKey, second.ItemKey = "one", "two"
		return list(first, second, third)
	}

	s.spec("the first of an interrupt's siblings wins, the others are superseded and cancelled once", func(w *world) {
		runID, rollout := w.suspended(siblings(w))
		equal(w, "the other's start", w.claimTrigger(w.a).Action, store.ActionStart)
		equal(w, "disposition", w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 1), `2`)), store.Accepted)
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerSuperseded, "i/0/1": store.TriggerFired, "i/0/2": store.TriggerSuperseded})
		c := w.claimTrigger(w.a)
		equal(w, "to be cancelled", [2]string{c.ItemKey, string(c.Action)}, [2]string{"one", string(store.ActionCancel)})
		equal(w, "later", w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`)), store.Late)
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 2"})
		w.noTriggerDue(w.another())
	})

	s.spec("siblings count once for all", func(w *world) {
		_, rollout := w.suspended(append(siblings(w), external("j")), needsAll)
		w.deliver(w.a, payload(store.TriggerID(rollout, "j", 0, 0), `1`))
		w.claimsNothing(w.a)
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 2), `1`))
		equal(w, "deliveries", len(w.claim(w.a).Deliveries), 2)
	})

	s.spec("a delivery in the mailbox supersedes also those siblings that come after it", func(w *world) {
		w.deliver(w.a, store.Delivery{Source: "http", ItemKey: "one", Status: store.StatusSuccessful})
		runID, rollouts := w.create(1)
		done := w.suspend(w.a, w.claim(w.a), siblings(w)...)
		equal(w, "ready", done.Ready, true)
		equal(w, "triggers", states(w.view(runID, rollouts[0]).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerFired, "i/0/1": store.TriggerSuperseded, "i/0/2": store.TriggerSuperseded})
		equal(w, "cancelled: it runs, and somebody else has answered", w.claimTrigger(w.a).ItemKey, "one")
		w.noTriggerDue(w.a) // the other job was never started
	})

	s.spec("an interrupt that is still open keeps its siblings", func(w *world) {
		runID, rollout := w.suspended(append(siblings(w), external("j")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "j", 0, 0), `1`))
		before := w.view(runID, rollout).Triggers[:3]
		w.suspend(w.a, w.claim(w.a), external("i"))
		equal(w, "triggers", w.view(runID, rollout).Triggers[:3], before)
	})
}
