package storetest

import (
	"math/rand/v2"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func clockSpecs(s *suite) {
	s.spec("every stretch of a rollout's life goes to its clock", func(w *world) {
		runID, rollouts := w.create(1)
		b := w.another()
		clocks := func(want store.Clocks) {
			w.Helper()
			equal(w, "clocks", w.view(runID, rollouts[0]).Clocks, want)
		}
		w.advance(time.Second) // queued
		c := w.claim(w.a)
		clocks(store.Clocks{Queued: time.Second})
		w.advance(2 * time.Second) // a failed attempt is working time
		w.commit(w.a, c, store.SegmentEnd{
			Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}, Retry: true, RetryAfter: 4 * time.Second})
		clocks(store.Clocks{Working: 2 * time.Second, Queued: time.Second})
		w.advance(5 * time.Second) // the backoff, and until somebody claims it, is queued
		c = w.claim(w.a)
		w.advance(7 * time.Second)
		w.suspend(w.a, c, external("i"))
		clocks(store.Clocks{Working: 9 * time.Second, Queued: 6 * time.Second})
		w.advance(time.Hour) // waiting
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`))
		w.advance(3 * time.Second) // from delivery to claim is queued
		c = w.claim(w.a)
		clocks(store.Clocks{Working: 9 * time.Second, Queued: 9 * time.Second, Waiting: time.Hour})
		w.advance(11 * time.Second)
		w.renew(w.a, c)                   // the last sign of life
		w.advance(lease + 20*time.Second) // after that it was only queued
		c = w.claim(b)
		clocks(store.Clocks{Working: 20 * time.Second, Queued: 9*time.Second + lease + 20*time.Second, Waiting: time.Hour})
		w.advance(time.Second)
		w.commit(b, c, completed)
		w.advance(13 * time.Second)
		w.must(b.Finish(w.ctx, c.Token, nil))
		o := w.view(runID, rollouts[0])
		clocks(store.Clocks{
			Working: 21 * time.Second, Queued: 9*time.Second + lease + 20*time.Second, Waiting: time.Hour,
			Evaluating: 13 * time.Second})
		equal(w, "wall", o.Clocks.Wall(), o.FinishedAt.Sub(o.CreatedAt))
	})

	s.spec("held calls are waited for, as far as they can have been", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		w.advance(time.Minute)
		w.commit(w.a, c, store.SegmentEnd{
			Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}, Retry: true, Queued: 10 * time.Second,
			Held: 20 * time.Second})
		equal(w, "clocks", w.view(runID, rollouts[0]).Clocks, store.Clocks{
			Queued: 10 * time.Second, Waiting: 20 * time.Second, Working: 30 * time.Second})
		c = w.claim(w.a)
		w.advance(time.Minute)
		w.suspend(w.a, c, external("i"))
		equal(w, "clocks", w.view(runID, rollouts[0]).Clocks, store.Clocks{
			Queued: 10 * time.Second, Waiting: 20 * time.Second, Working: 90 * time.Second})
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`))
		c = w.claim(w.a)
		w.advance(time.Second)
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: []byte(`{}`), Held: time.Hour})
		equal(w, "clocks", w.view(runID, rollouts[0]).Clocks, store.Clocks{
			Queued: 10 * time.Second, Waiting: 21 * time.Second, Working: 90 * time.Second})
	})

	s.spec("a delivery that was there before costs no waiting", func(w *world) {
		runID, rollouts := w.create(1)
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`))
		w.advance(time.Second)
		w.suspend(w.a, w.claim(w.a), external("i"))
		w.advance(time.Second)
		w.claim(w.a)
		equal(w, "clocks", w.view(runID, rollouts[0]).Clocks, store.Clocks{Queued: 2 * time.Second})
	})

	s.spec("a wait ends with the first delivery that is enough", func(w *world) {
		runID, rollout := w.suspended(list(external("i"), external("j")))
		for _, id := range []string{"i", "j"} {
			w.advance(time.Minute)
			w.deliver(w.a, payload(store.TriggerID(rollout, id, 0, 0), `1`))
		}
		w.claim(w.a)
		equal(w, "clocks", w.view(runID, rollout).Clocks, store.Clocks{Waiting: time.Minute, Queued: time.Minute})
	})

	s.spec("a cancelled wait is waiting, as far as nothing had arrived", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		w.advance(time.Minute)
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		w.advance(time.Second)
		w.cancel(runID)
		equal(w, "clocks", w.view(runID, rollout).Clocks, store.Clocks{Waiting: time.Minute, Queued: time.Second})
	})

	// A property over random histories: the clocks add up to the age, however the history went; a
	// clock that was set back makes no clock negative and no time count twice.
	for _, jumps := range []bool{false, true} {
		name := "the clocks add up in every history"
		if jumps {
			name = "a clock that is set back makes nothing negative and counts no time twice"
		}
		s.spec(name, func(w *world) {
			for seed := range uint64(2) {
				checkClocks(w, rand.New(rand.NewPCG(seed, 7)), jumps)
			}
		})
	}
}

// checkClocks takes a rollout through a random life.
func checkClocks(w *world, r *rand.Rand, jumps bool) {
	runID, rollouts := w.create(1)
	stores := []Store{w.a, w.another()}
	var forward time.Duration
	pass := func() {
		d := time.Duration(r.IntN(50)) * time.Second
		forward += d
		w.advance(d)
		if jumps && r.IntN(3) == 0 {
			w.advance(-time.Duration(r.IntN(100)) * time.Second)
		}
	}
	holders, held := map[string]Store{}, map[string]store.Claim{}
	before := store.Clocks{}
	for step := range 40 {
		pass()
		s := stores[r.IntN(2)]
		o := w.view(runID, rollouts[0])
		holder := holders[o.ID]
		switch {
		case o.State.IsTerminal():
			return
		case o.State == eval.StateSuspended && r.IntN(2) == 0:
			w.deliver(s, payload(store.TriggerID(o.ID, "i", o.Suspensions-1, 0), `1`))
		case holder != nil && r.IntN(3) == 0:
			w.renew(holder, held[o.ID])
		case step > 35 && r.IntN(2) == 0:
			_, err := s.Cancel(w.ctx, o.ID)
			w.must(err)
		default:
			claims, err := s.Claim(w.ctx, runID, 1)
			w.must(err)
			for _, c := range claims {
				holders[o.ID], held[o.ID] = s, c
				if r.IntN(4) == 0 {
					continue // dies
				}
				pass()
				ends := []store.SegmentEnd{
					{Outcome: store.OutcomeInterrupted}, {Outcome: store.OutcomeSuspended, Triggers: list(external("i"))},
					{Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}, Retry: true}}
				if c.State == eval.StateRunning {
					_, err := s.CommitSegment(w.ctx, c.Token, ends[r.IntN(3)])
					w.must(err)
				}
			}
		}
		o = w.view(runID, rollouts[0])
		c := o.Clocks
		for _, pair := range [][2]time.Duration{{before.Working, c.Working}, {before.Waiting, c.Waiting},
			{before.Queued, c.Queued}, {before.Evaluating, c.Evaluating}} {
			if pair[1] < pair[0] {
				w.Fatalf("a clock went back: %+v after %+v", c, before)
			}
		}
		before = c
		if age := o.StateSince.Sub(o.CreatedAt); !jumps && c.Wall() != age {
			w.Fatalf("the clocks %+v do not add up to %v", c, age)
		}
		if c.Wall() > forward {
			w.Fatalf("the clocks %+v add up to more than the %v that passed", c, forward)
		}
	}
}
