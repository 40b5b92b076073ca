package storetest

import (
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// ids are the rollouts of claims in order.
func ids(claims []store.Claim) []string {
	out := []string{}
	for _, c := range claims {
		out = append(out, c.RolloutID)
	}
	return out
}

func claimSpecs(s *suite) {
	s.spec("a first claim has all that a segment needs", func(w *world) {
		runID, rollouts := w.create(1)
		w.advance(time.Second)
		c := w.claim(w.a)
		equal(w, "token's rollout", c.RolloutID, rollouts[0])
		equal(w, "rollout", c.Rollout, store.Rollout{
			ID: rollouts[0], RunID: runID, EvaluationID: "e0", EvaluationName: "Ee0", Agent: "agent", Epoch: 1,
			State: eval.StateRunning, Segment: 1, Attempt: 1, CreatedAt: w.Now().Add(-time.Second), StateSince: w.Now(),
			Clocks: store.Clocks{Queued: time.Second}})
		equal(w, "evaluation", string(c.Evaluation), `{"n":0}`)
		if c.Repeats || c.TakenOver || c.Cancelled || len(c.Deliveries) != 0 || c.Fence == 0 {
			w.Fatalf("%+v", c)
		}
		equal(w, "stored", w.view(runID, rollouts[0]).Rollout, c.Rollout)
	})

	s.spec("rollouts of a plan are claimed in its order, up to the limit", func(w *world) {
		_, rollouts := w.create(5)
		for _, limit := range []int{0, -1} {
			claims, err := w.a.Claim(w.ctx, "", limit)
			w.must(err)
			equal(w, "claims", len(claims), 0)
		}
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		equal(w, "first", ids(claims), rollouts[:2])
		claims, err = w.another().Claim(w.ctx, "", 10)
		w.must(err)
		equal(w, "then", ids(claims), rollouts[2:])
		w.claimsNothing(w.a)
	})

	s.spec("a claim can be restricted to a run", func(w *world) {
		_, _ = w.create(2)
		w.advance(time.Second)
		runID, rollouts := w.create(2)
		claims, err := w.a.Claim(w.ctx, runID, 10)
		w.must(err)
		equal(w, "claims", ids(claims), rollouts)
		claims, err = w.a.Claim(w.ctx, "none", 10)
		w.must(err)
		equal(w, "of no run", len(claims), 0)
	})

	s.spec("of a run, what has been runnable longest comes first", func(w *world) {
		// given two rollouts that wait, and one that is tried again later
		_, rollouts := w.create(3)
		claims, err := w.a.Claim(w.ctx, "", 3)
		w.must(err)
		w.suspend(w.a, claims[1], external("i"))
		w.suspend(w.a, claims[2], external("i"))
		w.commit(w.a, claims[0], store.SegmentEnd{
			Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}, Retry: true, RetryAfter: 10 * time.Second})
		// when one wait ends, then a new run is made, then the other wait ends, then the backoff is
		// over
		w.advance(time.Second)
		w.deliver(w.a, payload(store.TriggerID(rollouts[2], "i", 0, 0), `1`))
		w.advance(time.Second)
		_, newer := w.create(1)
		w.advance(time.Second)
		w.deliver(w.a, payload(store.TriggerID(rollouts[1], "i", 0, 0), `1`))
		w.advance(time.Minute)
		// then they are claimed in that order, but for the new run, which had no turn yet
		claims, err = w.a.Claim(w.ctx, "", 10)
		w.must(err)
		equal(w, "claims", ids(claims), []string{newer[0], rollouts[2], rollouts[1], rollouts[0]})
	})

	s.spec("what somebody left behind comes before everything else", func(w *world) {
		_, first := w.create(1)
		w.claim(w.a)
		_, second := w.create(1)
		w.advance(lease)
		claims, err := w.another().Claim(w.ctx, "", 10)
		w.must(err)
		equal(w, "claims", ids(claims), []string{first[0], second[0]})
	})

	s.spec("of commits at once those are refused whose rollout was taken over, and no others", func(w *world) {
		// given fifty claims of one process, of which another process has taken three over
		const n, late = 50, 3
		_, _ = w.create(n)
		b := w.another()
		claims, err := w.a.Claim(w.ctx, "", n)
		w.must(err)
		w.advance(lease - time.Second)
		w.renew(w.a, claims[late:])
		w.advance(time.Second)
		taken, err := b.Claim(w.ctx, "", n)
		w.must(err)
		equal(w, "taken over", len(taken), late)
		// when both commit at once, in opposite order
		errs := make([]error, n)
		var group sync.WaitGroup
		for i, c := range claims {
			group.Go(func() { _, errs[i] = w.a.CommitSegment(w.ctx, c.Token, completed) })
		}
		for _, c := range taken {
			group.Go(func() {
				if _, err := b.CommitSegment(w.ctx, c.Token, completed); err != nil {
					w.Error(err)
				}
			})
		}
		group.Wait()
		// then only the late ones are refused
		for i, err := range errs {
			if i < late {
				w.refused("a late commit", err, store.ErrFenced)
			} else {
				w.must(err)
			}
		}
	})

	s.spec("no rollout is claimed twice by those who claim at once", func(w *world) {
		const n = 30
		_, _ = w.create(n)
		stores := []Store{w.a, w.another(), w.another()}
		var mu sync.Mutex
		seen := map[string]int{}
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				for {
					claims, err := stores[i%3].Claim(w.ctx, "", 3)
					if err != nil {
						w.Error(err)
					}
					if len(claims) == 0 {
						return
					}
					mu.Lock()
					for _, c := range claims {
						seen[c.RolloutID]++
					}
					mu.Unlock()
				}
			})
		}
		group.Wait()
		equal(w, "rollouts", len(seen), n)
		for id, times := range seen {
			equal(w, id, times, 1)
		}
	})
}
