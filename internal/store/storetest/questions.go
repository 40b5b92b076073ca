package storetest

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// question is what a job asks; its digest is that of the text.
func question(text string) store.NewTrigger {
	return store.NewTrigger{
		Type: "TASK", Name: "TASK", Source: "inbox", KeyPrefix: "task-", Spec: json.RawMessage(`{}`), Digest: text}
}

// asks has the job of a trigger that is due ask something.
func (w *world) asks(text string) {
	w.Helper()
	c := w.claimTrigger(w.a)
	w.must(w.a.Ask(w.ctx, c.TriggerToken, question(text), time.Minute))
}

func (w *world) asked(triggerID string) []store.Trigger {
	w.Helper()
	found, err := w.a.Questions(w.ctx, triggerID)
	w.must(err)
	return found
}

// dueTriggers counts the triggers that can be claimed, and takes them.
func (w *world) dueTriggers(s Store) int {
	w.Helper()
	claims, err := s.ClaimTriggers(w.ctx, "", 10)
	w.must(err)
	return len(claims)
}

func questionSpecs(s *suite) {
	s.spec("a question is a trigger that resumes nothing", func(w *world) {
		runID, rollout := w.suspended(list(polled("job", time.Time{})))
		job := store.TriggerID(rollout, "job", 0, 0)
		w.asks("may I?")
		id := store.TriggerID(rollout, job, 0, 0)
		q := w.trigger(id)
		equal(w, "what it is", [5]string{q.Type, q.Source, q.ItemKey, q.AskedBy, string(q.State)},
			[5]string{"TASK", "inbox", "task-" + id, job, "waiting"})
		equal(w, "disposition", w.deliver(w.a, payload(id, `"yes"`)), store.Accepted)
		equal(w, "a second answer", w.deliver(w.a, payload(id, `"no"`)), store.Duplicate)
		w.claimsNothing(w.another())
		equal(w, "the job is waited for", w.trigger(job).State, store.TriggerWaiting)
		events, err := w.a.Events(w.ctx, runID, 0, 100)
		w.must(err)
		var types []store.EventType
		for _, e := range events[2:] {
			types = append(types, e.Type)
		}
		equal(w, "events", types, []store.EventType{store.RolloutSuspended, store.QuestionAsked, store.TriggerDelivered})
	})

	s.spec("an answer makes the trigger of its job due, until the job has been told", func(w *world) {
		_, rollout := w.suspended(list(polled("job", time.Time{})))
		job := store.TriggerID(rollout, "job", 0, 0)
		w.asks("may I?")
		id := store.TriggerID(rollout, job, 0, 0)
		equal(w, "nothing is due", w.dueTriggers(w.a), 0)
		w.deliver(w.a, payload(id, `"yes"`))
		c := w.claimTrigger(w.a)
		equal(w, "the trigger of the job", c.TriggerID, job)
		equal(w, "the answer", string(w.asked(job)[0].Payload), `"yes"`)
		w.must(w.a.TriggerPending(w.ctx, c.TriggerToken, time.Minute))
		c = w.claimTrigger(w.a)
		w.must(w.a.QuestionTold(w.ctx, id))
		w.must(w.a.TriggerPending(w.ctx, c.TriggerToken, time.Minute))
		equal(w, "told", w.dueTriggers(w.a), 0)
		w.must(w.a.EndQuestions(w.ctx, job))
		equal(w, "consumed", w.trigger(id).State, store.TriggerConsumed)
		equal(w, "open questions", len(w.asked(job)), 0)
	})

	s.spec("an answer that comes while the job is being asked is not overlooked", func(w *world) {
		_, rollout := w.suspended(list(polled("job", time.Time{})))
		job := store.TriggerID(rollout, "job", 0, 0)
		w.asks("may I?")
		w.advance(time.Minute)
		c := w.claimTrigger(w.a)
		w.deliver(w.a, payload(store.TriggerID(rollout, job, 0, 0), `"yes"`))
		w.must(w.a.TriggerPending(w.ctx, c.TriggerToken, time.Hour))
		equal(w, "due", w.claimTrigger(w.a).TriggerID, job)
	})

	s.spec("a source that fails is not asked sooner because of an answer", func(w *world) {
		_, rollout := w.suspended(list(polled("job", time.Time{})))
		job := store.TriggerID(rollout, "job", 0, 0)
		w.asks("may I?")
		w.deliver(w.a, payload(store.TriggerID(rollout, job, 0, 0), `"yes"`))
		c := w.claimTrigger(w.a)
		w.must(w.a.TriggerFailed(w.ctx, c.TriggerToken, time.Minute, store.TriggerFailure{Error: "gone"}))
		equal(w, "due", w.dueTriggers(w.a), 0)
	})

	s.spec("the same question is asked once, another takes its place", func(w *world) {
		_, rollout := w.suspended(list(polled("job", time.Time{})))
		job := store.TriggerID(rollout, "job", 0, 0)
		for _, text := range []string{"may I?", "may I?", "really?"} {
			w.asks(text)
			w.advance(time.Minute)
		}
		equal(w, "the first", w.trigger(store.TriggerID(rollout, job, 0, 0)).State, store.TriggerSuperseded)
		equal(w, "the second", w.trigger(store.TriggerID(rollout, job, 1, 0)).State, store.TriggerWaiting)
		equal(w, "questions", len(w.asked(job)), 1)
		equal(w, "an answer to the first", w.deliver(w.a, payload(store.TriggerID(rollout, job, 0, 0), `1`)), store.Late)
	})

	s.spec("nothing is asked before the job has been told an answer that is there; then the same may be asked again",
		func(w *world) {
			_, rollout := w.suspended(list(polled("job", time.Time{})))
			job := store.TriggerID(rollout, "job", 0, 0)
			w.asks("may I?")
			first := store.TriggerID(rollout, job, 0, 0)
			w.deliver(w.a, payload(first, `"yes"`))
			w.asks("really?")
			equal(w, "questions", len(w.asked(job)), 1)
			w.must(w.a.QuestionTold(w.ctx, first))
			w.asks("may I?")
			equal(w, "the first", w.trigger(first).State, store.TriggerConsumed)
			equal(w, "the second", w.trigger(store.TriggerID(rollout, job, 1, 0)).State, store.TriggerWaiting)
		})

	s.spec("questions end with the wait for their job", func(w *world) {
		for what, end := range map[string]func(runID, job string, c store.TriggerClaim){
			"its result": func(_, job string, c store.TriggerClaim) {
				d := payload(job, `1`)
				d.Fence = c.Fence
				w.deliver(w.a, d)
			},
			"by hand":   func(_, job string, _ store.TriggerClaim) { w.deliver(w.a, payload(job, `1`)) },
			"cancelled": func(runID, _ string, _ store.TriggerClaim) { _, err := w.a.Cancel(w.ctx, runID); w.must(err) },
			"its timeout": func(_, job string, c store.TriggerClaim) {
				w.deliver(w.a, store.Delivery{TriggerID: job, Fence: c.Fence, Status: store.StatusExpired, By: "limit"})
			},
		} {
			runID, rollout := w.suspended(list(polled("job", time.Time{})))
			job := store.TriggerID(rollout, "job", 0, 0)
			w.asks("may I?")
			w.advance(time.Minute)
			c := w.claimTrigger(w.a)
			end(runID, job, c)
			q := w.trigger(store.TriggerID(rollout, job, 0, 0))
			if q.State.IsOpen() || len(w.asked(job)) != 0 {
				w.Fatalf("%s: the question is %s", what, q.State)
			}
			if claims, err := w.a.Claim(w.ctx, "", 10); err == nil {
				for _, c := range claims {
					equal(w, "deliveries", len(c.Deliveries), 1)
				}
			}
			if claims, err := w.a.ClaimTriggers(w.ctx, "", 10); err == nil { // jobs to cancel
				for _, c := range claims {
					equal(w, "action", c.Action, store.ActionCancel)
				}
			}
		}
	})

	s.spec("a question has the deadline of the suspension, and an answer after it is late", func(w *world) {
		_, rollouts := w.create(1)
		c := w.claim(w.a)
		w.commit(w.a, c, store.SegmentEnd{
			Outcome: store.OutcomeSuspended, Triggers: list(polled("job", time.Time{})), SuspendTimeout: time.Hour})
		w.asks("may I?")
		id := store.TriggerID(rollouts[0], store.TriggerID(rollouts[0], "job", 0, 0), 0, 0)
		equal(w, "deadline", w.trigger(id).Deadline, w.Now().Add(time.Hour))
		w.advance(time.Hour)
		equal(w, "disposition", w.deliver(w.a, payload(id, `1`)), store.Late)
	})
}
