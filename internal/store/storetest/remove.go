package storetest

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

func removeSpecs(s *suite) {
	// R9
	s.spec("a run that is removed leaves nothing, and takes nothing of another with it", func(w *world) {
		finished := func() (runID, triggerID string) {
			runID, rollout := w.suspended(list(external("i")))
			triggerID = store.TriggerID(rollout, "i", 0, 0)
			w.deliver(w.a, payload(triggerID, `1`))
			claims, err := w.a.Claim(w.ctx, runID, 1)
			w.must(err)
			w.commit(w.a, claims[0], store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage("{}")})
			w.must(w.a.Finish(w.ctx, claims[0].Token, nil, store.Result{EvaluatorID: "e", Data: json.RawMessage("[]")}))
			return runID, triggerID
		}
		gone, trigger := finished()
		kept, keptTrigger := finished()
		ids, err := w.a.RolloutIDs(w.ctx, gone)
		w.must(err)
		equal(w, "rollouts", len(ids), 1)
		before := w.view(kept, w.only(kept))

		w.must(w.a.Remove(w.ctx, gone))
		_, err = w.another().Run(w.ctx, gone)
		w.refused("the run", err, store.ErrNotFound)
		_, err = w.a.Trigger(w.ctx, trigger)
		w.refused("its trigger", err, store.ErrNotFound)
		_, err = w.a.Plan(w.ctx, gone)
		w.refused("its plan", err, store.ErrNotFound)
		deliveries, err := w.a.Deliveries(w.ctx, trigger)
		w.must(err)
		segments, err := w.a.Segments(w.ctx, ids[0])
		w.must(err)
		equal(w, "deliveries, segments, events", [3]int{len(deliveries), len(segments), len(w.events(gone))}, [3]int{})
		equal(w, "the other run", w.view(kept, w.only(kept)), before)
		equal(w, "its trigger", w.trigger(keptTrigger).State, store.TriggerConsumed)
		w.refused("removing it again", w.a.Remove(w.ctx, gone), store.ErrNotFound)

		p := plan(1)
		p.RunID = gone
		created, err := w.a.CreateRun(w.ctx, p)
		w.must(err)
		equal(w, "its id can be used again", created, true)
	})

	s.spec("a run that is not final is not removed", func(w *world) {
		runID, _ := w.create(1)
		w.refused("pending", w.a.Remove(w.ctx, runID), store.ErrNotFinal)
		w.claim(w.a)
		w.refused("running", w.a.Remove(w.ctx, runID), store.ErrNotFinal)
		equal(w, "rollouts", w.run(runID).Counts.Total, 1)
	})

	// R10
	s.spec("what goes on of a run is what living processes hold, and what waits for a backoff", func(w *world) {
		runID, _ := w.create(3)
		idle, _ := w.create(1)
		activity := func() store.Activity {
			all, err := w.another().Activity(w.ctx)
			w.must(err)
			equal(w, "a run that nobody works on", all[idle], store.Activity{})
			return all[runID]
		}
		equal(w, "at first", activity(), store.Activity{})
		claims, err := w.a.Claim(w.ctx, runID, 2)
		w.must(err)
		equal(w, "claimed", activity(), store.Activity{Held: 2})
		w.commit(w.a, claims[0], store.SegmentEnd{Outcome: store.OutcomeFailed, Retry: true, RetryAfter: time.Second})
		equal(w, "failed", activity(), store.Activity{Held: 1, Delayed: 1})
		w.advance(lease + time.Second)
		equal(w, "when its holder was not heard of for a lease", activity(), store.Activity{})
		_, err = w.as(deadProcess()).Claim(w.ctx, runID, 1)
		w.must(err)
		equal(w, "when its holder is dead", activity(), store.Activity{})
	})
}

// only is the only rollout of a run.
func (w *world) only(runID string) string {
	w.Helper()
	ids, err := w.a.RolloutIDs(w.ctx, runID)
	w.must(err)
	return ids[0]
}
