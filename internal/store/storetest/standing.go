package storetest

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

func standingSpecs(s *suite) {
	standing := func(w *world, runID string) store.Standing {
		w.Helper()
		out, err := w.another().Standing(w.ctx, runID)
		w.must(err)
		return out
	}

	s.spec("a store without work stands still", func(w *world) {
		equal(w, "standing", standing(w, ""), store.Standing{Waiting: map[string]int{}})
	})

	s.spec("what is worked on and waited for is counted, of one run and of all", func(w *world) {
		soon, later := w.Now().Add(time.Second), w.Now().Add(time.Hour)
		waiting, _ := w.suspended(list(polled("i", later), polled("j", soon), external("k")))
		also, _ := w.suspended(list(external("l")))
		working, _ := w.create(3)
		claims, err := w.a.Claim(w.ctx, working, 2)
		w.must(err)
		w.commit(w.a, claims[0], store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`1`)})
		typ := external("k").Type
		equal(w, "of the one that waits", standing(w, waiting), store.Standing{
			Runs: 1, Waiting: map[string]int{typ: 1, polled("i", soon).Type: 2}, NextCheck: soon})
		equal(w, "of the other", standing(w, also), store.Standing{Runs: 1, Waiting: map[string]int{typ: 1}})
		equal(w, "of the one that works", standing(w, working), store.Standing{
			Running: 1, Evaluating: 1, Waiting: map[string]int{}})
		equal(w, "of all", standing(w, ""), store.Standing{
			Running: 1, Evaluating: 1, Runs: 2, Waiting: map[string]int{typ: 2, polled("i", soon).Type: 2}, NextCheck: soon})
		own, err := w.a.Standing(w.ctx, working)
		w.must(err)
		equal(w, "for its holder", own, store.Standing{Running: 1, Own: 1, Evaluating: 1, Waiting: map[string]int{}})
		w.cancel(waiting)
		equal(w, "when that is cancelled", standing(w, ""), store.Standing{
			Running: 1, Evaluating: 1, Runs: 1, Waiting: map[string]int{typ: 1}})
	})

	s.spec("what is waited for is counted by type and source", func(w *world) {
		waiting, _ := w.suspended(list(polled("i", w.Now().Add(time.Hour)), external("k")))
		w.suspended(list(external("l")))
		count := func(g store.NewTrigger) int {
			n, err := w.another().CountOpen(w.ctx, g.Type, g.Source)
			w.must(err)
			return n
		}
		of := func(i store.NewTrigger) [2]string { return [2]string{i.Type, i.Source} }
		equal(w, "apart", of(external("k")) != of(polled("i", w.Now())), true)
		equal(w, "external", count(external("k")), 2)
		equal(w, "polled", count(polled("i", w.Now())), 1)
		w.cancel(waiting)
		equal(w, "when that is cancelled", count(external("k")), 1)
	})

	s.spec("the rollouts of a run are counted by state, and by their scores", func(w *world) {
		runID, _ := w.create(6)
		tally := func() store.Tally {
			out, err := w.another().Tally(w.ctx, runID, 0.5)
			w.must(err)
			return out
		}
		equal(w, "before it begins", tally(), store.Tally{Counts: store.Counts{Total: 6, Pending: 6}})
		claims, err := w.a.Claim(w.ctx, runID, 5)
		w.must(err)
		for i, score := range []*float64{ptr(0.5), ptr(1.0), ptr(0.25), nil} {
			w.commit(w.a, claims[i], store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`1`)})
			w.must(w.a.Finish(w.ctx, claims[i].Token, score))
		}
		w.scored(1) // of another run
		want := store.Tally{
			Counts: store.Counts{Total: 6, Pending: 1, Running: 1, Completed: 4}, Passed: 2, Failed: 1, Unscored: 1}
		equal(w, "in the middle", tally(), want)
		equal(w, "as the run says", w.run(runID).Counts, want.Counts)
	})
}
