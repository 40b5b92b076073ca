package storetest

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// inBatch is the trigger of a request that goes to a batch.
func inBatch(key string) store.NewTrigger {
	return store.NewTrigger{
		InterruptID: key, Type: "JOB", Name: "JOB", Source: "openai-batch", ItemKey: key, Spec: json.RawMessage(`{}`),
		Request: &store.BatchRequest{
			Provider: "openai", Model: "m", CustomID: key, Body: json.RawMessage(`{"key":"` + key + `"}`), Wait: time.Minute,
		}}
}

// claimBatch claims the only batch that is due.
func (w *world) claimBatch(s Store) store.BatchClaim {
	w.Helper()
	claims, err := s.ClaimBatches(w.ctx, "", 10)
	w.must(err)
	if len(claims) != 1 {
		w.Fatalf("%d batches are due, want one", len(claims))
	}
	return claims[0]
}

func (w *world) noBatch(s Store) {
	w.Helper()
	claims, err := s.ClaimBatches(w.ctx, "", 10)
	w.must(err)
	equal(w, "batches", len(claims), 0)
}

func (w *world) waitingRequests(id string) (keys []string) {
	w.Helper()
	w.must(w.a.WaitingRequests(w.ctx, id, func(r store.WaitingRequest) error {
		keys = append(keys, r.CustomID+" "+string(r.Body))
		return nil
	}))
	return keys
}

// equalInBatch is inBatch for a question that all callers ask.
func equalInBatch(key string) store.NewTrigger {
	n := inBatch(key)
	n.Request.CustomID, n.Request.Body = "q", json.RawMessage(`{}`)
	return n
}

// whoWaits returns the triggers of a batch's requests in their order; those that were merged have a
// plus.
func (w *world) whoWaits(id string) (triggers []string) {
	w.Helper()
	w.must(w.a.WaitingRequests(w.ctx, id, func(r store.WaitingRequest) error {
		triggers = append(triggers, r.TriggerID+map[bool]string{true: "+"}[r.Merged])
		return nil
	}))
	return triggers
}

func batchSpecs(s *suite) {
	s.spec("equal requests are one of their batch, and all of them wait for its answer", func(w *world) {
		_, _ = w.create(3)
		claims, err := w.a.Claim(w.ctx, "", 3)
		w.must(err)
		trigger := func(i int) string { return store.EvaluatorTriggerID(claims[i].RolloutID, "judge", 0, 0) }
		for i, key := range []string{"k0", "k1"} {
			w.commit(w.a, claims[i], completed)
			w.waitForScores(w.a, claims[i], waits("judge", equalInBatch(key)))
		}
		w.advance(lease)
		w.renew(w.a, claims)
		w.advance(lease)
		c := w.claimBatch(w.a)
		equal(w, "requests", c.Requests, 1)
		equal(w, "who waits", w.whoWaits(c.ID), []string{trigger(0), trigger(1) + "+"})
		w.must(w.a.BatchStarted(w.ctx, c.BatchToken, "batch_1", time.Hour))

		// A question that is asked while the batch is at the provider waits for the same answer, and
		// the answer is waited for as long as one of them does.
		w.commit(w.a, claims[2], completed)
		w.waitForScores(w.a, claims[2], waits("judge", equalInBatch("k2")))
		w.noBatch(w.a)
		w.deliver(w.a, payload(trigger(0), `1`))
		w.deliver(w.a, payload(trigger(1), `1`))
		equal(w, "who waits still", w.whoWaits(c.ID), []string{trigger(2) + "+"})
		w.advance(time.Hour)
		equal(w, "action", w.claimBatch(w.a).Action, store.ActionCheck)
	})

	s.spec("a batch that is held gets no more requests: its holder would not know of them", func(w *world) {
		_, _ = w.create(2)
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		w.commit(w.a, claims[0], completed)
		w.waitForScores(w.a, claims[0], waits("judge", equalInBatch("k0")))
		w.advance(lease)
		w.renew(w.a, claims)
		w.advance(lease)
		first := w.claimBatch(w.a)
		w.commit(w.a, claims[1], completed)
		w.waitForScores(w.a, claims[1], waits("judge", equalInBatch("k1")))
		second := w.claimBatch(w.a)
		equal(w, "action", second.Action, store.ActionStart)
		equal(w, "who waits for each", [2]int{len(w.whoWaits(first.ID)), len(w.whoWaits(second.ID))}, [2]int{1, 1})
		w.must(w.a.BatchEnded(w.ctx, first.BatchToken))
		equal(w, "who waits for the second", len(w.whoWaits(second.ID)), 1)
	})

	s.spec("a batch waits for more requests as long as a rollout of its run may add one", func(w *world) {
		_, _ = w.create(2)
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		first, second := claims[0], claims[1]
		w.commit(w.a, first, completed)
		w.waitForScores(w.a, first, waits("judge", inBatch("k1")))
		w.noBatch(w.a)
		w.commit(w.a, second, completed)
		w.waitForScores(w.a, second, waits("judge", inBatch("k0")))
		c := w.claimBatch(w.a)
		equal(w, "action", c.Action, store.ActionStart)
		equal(w, "requests", c.Requests, 2)
		equal(w, "in the order of their keys", w.waitingRequests(c.ID), []string{`k0 {"key":"k0"}`, `k1 {"key":"k1"}`})
		w.noBatch(w.a)
	})

	s.spec("or until its time has come", func(w *world) {
		_, _ = w.create(2)
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		w.commit(w.a, claims[0], completed)
		w.waitForScores(w.a, claims[0], waits("judge", inBatch("k")))
		w.advance(lease)
		w.renew(w.a, claims)
		w.advance(lease)
		equal(w, "action", w.claimBatch(w.a).Action, store.ActionStart)
	})

	s.spec("a batch is asked for when it is due, and ends with its last answer", func(w *world) {
		_, rollout := w.scoring(waits("judge", inBatch("k")))
		c := w.claimBatch(w.a)
		w.must(w.a.BatchStarted(w.ctx, c.BatchToken, "batch_1", time.Minute))
		known, err := w.a.StartedBatches(w.ctx)
		w.must(err)
		equal(w, "known", known, []string{"batch_1"})
		w.noBatch(w.a)
		w.advance(time.Minute)
		c = w.claimBatch(w.a)
		equal(w, "action", c.Action, store.ActionCheck)
		equal(w, "external id", c.ExternalID, "batch_1")
		w.must(w.a.BatchPending(w.ctx, c.BatchToken, 0, "no answer"))
		c = w.claimBatch(w.another())
		equal(w, "failures and checks", [2]int{c.Failures, c.Checks}, [2]int{1, 2})
		w.refused("it was taken over", w.a.BatchEnded(w.ctx, c.BatchToken), store.ErrFenced)
		w.deliver(w.a, payload(store.EvaluatorTriggerID(rollout, "judge", 0, 0), `1`))
		equal(w, "nothing is waited for", len(w.waitingRequests(c.ID)), 0)
	})

	s.spec("whoever takes a start over looks for it first", func(w *world) {
		w.scoring(waits("judge", inBatch("k")))
		first := w.claimBatch(w.a)
		w.advance(lease)
		again := w.claimBatch(w.another())
		equal(w, "action", again.Action, store.ActionResolve)
		equal(w, "first start", again.FirstStart, first.FirstStart)
		w.refused("it was taken over", w.a.BatchStarted(w.ctx, first.BatchToken, "batch_1", 0), store.ErrFenced)
	})

	s.spec("a batch for which nobody waits is cancelled once if it may have been started", func(w *world) {
		runID, _ := w.scoring(waits("judge", inBatch("k")))
		c := w.claimBatch(w.a)
		w.must(w.a.BatchStarted(w.ctx, c.BatchToken, "batch_1", time.Hour))
		_, err := w.a.Cancel(w.ctx, runID)
		w.must(err)
		c = w.claimBatch(w.a)
		equal(w, "action", c.Action, store.ActionCancel)
		w.noBatch(w.a)
		w.must(w.a.Remove(w.ctx, runID))
	})

	s.spec("one that was not started is forgotten", func(w *world) {
		runID, _ := w.scoring(waits("judge", inBatch("k")))
		_, err := w.a.Cancel(w.ctx, runID)
		w.must(err)
		w.noBatch(w.a)
	})

	s.spec("the backlog counts batches that can be sent, and says when to ask for the others", func(w *world) {
		runID, _ := w.scoring(waits("judge", inBatch("k")))
		b, err := w.a.Backlog(w.ctx, runID)
		w.must(err)
		equal(w, "due", b.Due, 1)
		c := w.claimBatch(w.a)
		w.must(w.a.BatchStarted(w.ctx, c.BatchToken, "batch_1", time.Minute))
		b, err = w.a.Backlog(w.ctx, runID)
		w.must(err)
		equal(w, "due", b.Due, 0)
		equal(w, "next", b.NextDue, w.Now().Add(time.Minute))
		w.must(w.a.CheckNow(w.ctx, runID))
		equal(w, "asked at once", w.claimBatch(w.a).Action, store.ActionCheck)
	})
}
