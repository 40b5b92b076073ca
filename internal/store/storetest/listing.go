package storetest

import (
	"errors"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

func listingSpecs(s *suite) {
	s.spec("runs are listed page by page, the newest first", func(w *world) {
		var want []string
		for range 5 { // two of them at the same time
			for range 2 {
				id, _ := w.create(1)
				want = append([]string{id}, want...)
			}
			w.advance(time.Second)
		}
		all, err := w.a.Runs(w.ctx)
		w.must(err)
		var got []store.Run
		q := store.RunQuery{Limit: 3}
		for {
			page, err := w.a.ListRuns(w.ctx, q)
			w.must(err)
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			last := page[len(page)-1]
			q.Before = store.RunPlace{CreatedAt: last.CreatedAt, ID: last.ID}
		}
		equal(w, "runs", got, all)
		_, err = w.a.Cancel(w.ctx, want[3])
		w.must(err)
		yes, no := true, false
		final, err := w.a.ListRuns(w.ctx, store.RunQuery{Final: &yes, Limit: 10})
		w.must(err)
		open, err := w.a.ListRuns(w.ctx, store.RunQuery{Final: &no, Limit: 10})
		w.must(err)
		equal(w, "final", len(final), 1)
		equal(w, "the final one", final[0].ID, want[3])
		equal(w, "open", len(open), len(want)-1)
	})

	s.spec("rollouts are listed page by page, in the order of the plan", func(w *world) {
		id, rollouts := w.create(5)
		w.create(1)
		var got []string
		for from := 0; ; {
			page, err := w.a.ListRollouts(w.ctx, id, from, 2)
			w.must(err)
			for _, o := range page {
				got = append(got, o.ID)
				one, err := w.a.Rollout(w.ctx, o.ID)
				w.must(err)
				equal(w, "one", one, o)
			}
			if from += len(page); len(page) < 2 {
				break
			}
		}
		equal(w, "rollouts", got, rollouts)
		_, err := w.a.Rollout(w.ctx, "no such")
		if !errors.Is(err, store.ErrNotFound) {
			w.Errorf("an unknown one: %v", err)
		}
	})

	s.spec("triggers are listed page by page, also while some of them are answered", func(w *world) {
		runID, rolloutID := w.suspended(list(external("a"), external("b"), external("c"), external("d")), needsAll)
		w.suspended(list(external("x")))
		page := func(q store.TriggerQuery, want ...string) (store.TriggerQuery, []store.Trigger) {
			w.Helper()
			got, last, err := w.a.ListTriggers(w.ctx, q)
			w.must(err)
			var ids []string
			for _, g := range got {
				ids = append(ids, g.InterruptID)
			}
			equal(w, "triggers", ids, want)
			q.After = last
			return q, got
		}
		next, got := page(store.TriggerQuery{RunID: runID, Limit: 2}, "a", "b")
		equal(w, "answered", w.deliver(w.a, payload(got[1].ID, `{}`)), store.Accepted)
		next, _ = page(next, "c", "d")
		page(next)
		page(store.TriggerQuery{RolloutID: rolloutID, Limit: 9}, "a", "c", "d")
		page(store.TriggerQuery{RolloutID: rolloutID, All: true, Limit: 9}, "a", "b", "c", "d")
		page(store.TriggerQuery{Limit: 9}, "a", "c", "d", "x")
	})
}
