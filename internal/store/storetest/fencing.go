package storetest

import (
	"errors"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func fenceSpecs(s *suite) {
	rolloutWrites := map[string]func(*world, Store, store.Token) error{
		"CommitSegment completed": func(w *world, s Store, t store.Token) error {
			_, err := s.CommitSegment(w.ctx, t, completed)
			return err
		},
		"CommitSegment suspended": func(w *world, s Store, t store.Token) error {
			_, err := s.CommitSegment(w.ctx, t, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: list(external("i"))})
			return err
		},
		"CommitSegment interrupted": func(w *world, s Store, t store.Token) error {
			_, err := s.CommitSegment(w.ctx, t, store.SegmentEnd{Outcome: store.OutcomeInterrupted})
			return err
		},
		"RecordResult": func(w *world, s Store, t store.Token) error {
			return s.RecordResult(w.ctx, t, store.Result{EvaluatorID: "late", Data: []byte(`[]`)})
		},
		"FinishFaulted": func(w *world, s Store, t store.Token) error {
			return s.FinishFaulted(w.ctx, t, fault.Fault{Category: "verifier"})
		},
		"Finish": func(w *world, s Store, t store.Token) error { return s.Finish(w.ctx, t, nil) },
	}
	for name, write := range rolloutWrites {
		s.spec(name+" is refused after a take-over and changes nothing", func(w *world) {
			// given a holder that was overtaken, while running and while evaluating
			runID, rollouts := w.create(2)
			stale, err := w.a.Claim(w.ctx, "", 2)
			w.must(err)
			w.commit(w.a, stale[0], completed)
			w.advance(lease)
			b := w.another()
			fresh, err := b.Claim(w.ctx, "", 2)
			w.must(err)
			equal(w, "taken over", len(fresh), 2)
			before := []store.RolloutView{w.view(runID, rollouts[0]), w.view(runID, rollouts[1])}
			// when it writes, then it is refused
			for _, c := range stale {
				w.refused(name, write(w, w.a, c.Token), store.ErrFenced)
			}
			// also with the token of its successor, which it does not hold
			for _, c := range fresh {
				w.refused(name+" with another's token", write(w, w.a, c.Token), store.ErrFenced)
			}
			equal(w, "rollouts", []store.RolloutView{w.view(runID, rollouts[0]), w.view(runID, rollouts[1])}, before)
		})
	}

	s.spec("an old token is refused even if its process has the rollout again", func(w *world) {
		_, _ = w.create(1)
		first := w.claim(w.a)
		w.commit(w.a, first, store.SegmentEnd{Outcome: store.OutcomeInterrupted})
		second := w.claim(w.a)
		_, err := w.a.CommitSegment(w.ctx, first.Token, completed)
		w.refused("the first token", err, store.ErrFenced)
		equal(w, "state", w.commit(w.a, second, completed).State, eval.StateEvaluating)
	})

	s.spec("nothing is written to a rollout that has ended", func(w *world) {
		runID, _ := w.create(1)
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		w.must(w.a.Finish(w.ctx, c.Token, ptr(1.0)))
		before := w.view(runID, c.RolloutID)
		for name, write := range rolloutWrites {
			w.refused(name, write(w, w.a, c.Token), store.ErrFenced)
		}
		equal(w, "rollout", w.view(runID, c.RolloutID), before)
	})

	s.spec("a write for which the rollout is in the wrong state is an error, but not a lost lease", func(w *world) {
		_, _ = w.create(1)
		c := w.claim(w.a)
		if err := w.a.Finish(w.ctx, c.Token, nil); err == nil || errors.Is(err, store.ErrFenced) {
			w.Fatalf("finishing what runs: %v", err)
		}
		w.commit(w.a, c, completed)
		if _, err := w.a.CommitSegment(w.ctx, c.Token, completed); err == nil || errors.Is(err, store.ErrFenced) {
			w.Fatalf("ending a segment twice: %v", err)
		}
	})

	triggerWrites := map[string]func(*world, Store, store.TriggerToken) error{
		"TriggerStarted": func(w *world, s Store, t store.TriggerToken) error {
			return s.TriggerStarted(w.ctx, t, "stale", store.Never)
		},
		"TriggerPending": func(w *world, s Store, t store.TriggerToken) error {
			return s.TriggerPending(w.ctx, t, store.Never)
		},
		"Deliver with a fence": func(w *world, s Store, t store.TriggerToken) error {
			_, err := s.Deliver(w.ctx, store.Delivery{TriggerID: t.TriggerID, Fence: t.Fence, Status: store.StatusFaulted})
			return err
		},
	}
	for name, write := range triggerWrites {
		s.spec(name+" is refused after a take-over and changes nothing", func(w *world) {
			_, _ = w.suspended(list(startable("i")))
			stale := w.claimTrigger(w.a)
			w.advance(lease)
			b := w.another()
			fresh := w.claimTrigger(b)
			before := w.trigger(stale.TriggerID)
			w.refused(name, write(w, w.a, stale.TriggerToken), store.ErrFenced)
			w.refused(name+" with another's token", write(w, w.a, fresh.TriggerToken), store.ErrFenced)
			equal(w, "trigger", w.trigger(stale.TriggerID), before)
			w.must(b.TriggerStarted(w.ctx, fresh.TriggerToken, "fresh", store.Never))
			equal(w, "key", w.trigger(stale.TriggerID).ItemKey, "fresh")
		})
	}

	s.spec("an old claim of a trigger is refused even if its process has the trigger again", func(w *world) {
		_, _ = w.suspended(list(polled("i", time.Time{})))
		first := w.claimTrigger(w.a)
		w.must(w.a.TriggerPending(w.ctx, first.TriggerToken, 0))
		second := w.claimTrigger(w.a)
		w.refused("the first", w.a.TriggerPending(w.ctx, first.TriggerToken, 0), store.ErrFenced)
		w.must(w.a.TriggerPending(w.ctx, second.TriggerToken, 0))
	})

	s.spec("a claim of a trigger ends with its delivery", func(w *world) {
		_, rollout := w.suspended(list(polled("i", time.Time{})))
		c := w.claimTrigger(w.a)
		equal(w, "disposition", w.deliver(w.another(), payload(store.TriggerID(rollout, "i", 0, 0), `1`)), store.Accepted)
		w.refused("TriggerPending", w.a.TriggerPending(w.ctx, c.TriggerToken, 0), store.ErrFenced)
		d := payload(c.TriggerID, `2`)
		d.Fence = c.Fence
		equal(w, "what its source says later", w.deliver(w.a, d), store.Duplicate)
	})

	s.spec("a delivery under a claim that is good is accepted", func(w *world) {
		_, _ = w.suspended(list(polled("i", time.Time{})))
		c := w.claimTrigger(w.a)
		d := payload(c.TriggerID, `1`)
		d.Fence = c.Fence
		equal(w, "disposition", w.deliver(w.a, d), store.Accepted)
	})
}
