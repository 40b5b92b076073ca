package storetest

import (
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func cancelSpecs(s *suite) {
	s.spec("what is pending, suspended or evaluating is cancelled at once", func(w *world) {
		for _, state := range []eval.State{eval.StatePending, eval.StateSuspended, eval.StateEvaluating} {
			runID, id, held := w.inState(state)
			equal(w, "cancelled", w.cancel(id), 1)
			o := w.view(runID, id)
			equal(w, "state", o.State, eval.StateCancelled)
			equal(w, "finished", o.FinishedAt, w.Now())
			if r := w.run(runID); !r.Final() {
				w.Fatalf("%+v is not final", r)
			}
			if state == eval.StateEvaluating {
				w.refused("its evaluator", w.a.RecordResult(w.ctx, held.Token, store.Result{EvaluatorID: "e"}), store.ErrFenced)
				w.refused("its end", w.a.Finish(w.ctx, held.Token, ptr(1.0)), store.ErrFenced)
				ids, _ := w.renew(w.a, held)
				equal(w, "held", len(ids), 0)
			}
		}
	})

	for name, end := range map[string]store.SegmentEnd{
		"cancelled":       {Outcome: store.OutcomeCancelled},
		"completed":       completed,
		"suspended":       {Outcome: store.OutcomeSuspended, Triggers: list(external("i"))},
		"failed":          {Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}},
		"failed, retried": {Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}, Retry: true},
		"interrupted":     {Outcome: store.OutcomeInterrupted},
	} {
		s.spec("a running rollout that is cancelled ends with its segment, which is "+name, func(w *world) {
			runID, id, held := w.inState(eval.StateRunning)
			equal(w, "cancelled", w.cancel(runID), 1)
			equal(w, "still", w.view(runID, id).State, eval.StateRunning)
			ids, cancelled := w.renew(w.a, held)
			equal(w, "held", ids, []string{id})
			equal(w, "to be cancelled", cancelled, []string{id})
			equal(w, "committed", w.commit(w.a, held, end), store.Committed{State: eval.StateCancelled})
			o := w.view(runID, id)
			equal(w, "state", o.State, eval.StateCancelled)
			equal(w, "what the segment did is kept", string(o.Segments[0].Output), string(end.Output))
			if o.Fault != nil || len(o.Triggers) != 0 {
				w.Fatalf("%+v", o)
			}
			w.claimsNothing(w.another())
		})
	}

	s.spec("segments that are committed while their run is cancelled end cancelled, whichever comes first", func(w *world) {
		runID, rollouts := w.create(20)
		claims, err := w.a.Claim(w.ctx, "", len(rollouts))
		w.must(err)
		var all sync.WaitGroup
		for i, c := range claims {
			all.Go(func() {
				if _, err := w.a.CommitSegment(w.ctx, c.Token, completed); err != nil {
					w.Error(err)
				}
			})
			if i%7 == 3 { // so that one of them comes among commits of the same group
				all.Go(func() {
					if _, err := w.a.Cancel(w.ctx, runID); err != nil {
						w.Error(err)
					}
				})
			}
		}
		all.Wait()
		run := w.run(runID)
		equal(w, "cancelled", run.Counts.Cancelled, len(rollouts))
		equal(w, "final", run.Final(), true)
	})

	s.spec("a rollout that was cancelled when its holder died is not run again", func(w *world) {
		_, _ = w.create(1)
		held := w.claim(w.as(deadProcess()))
		w.cancel(held.RunID)
		c := w.claim(w.a)
		if !c.Cancelled || !c.TakenOver {
			w.Fatalf("%+v", c)
		}
		equal(w, "committed", w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCancelled}),
			store.Committed{State: eval.StateCancelled})
	})

	s.spec("the triggers of what is cancelled become cancelled, their jobs are cancelled once", func(w *world) {
		later := w.Now().Add(time.Hour)
		runID, rollout := w.suspended(list(polled("job", later), external("task"), startable("never")))
		w.cancel(runID)
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"job/0/0": store.TriggerCancelled, "task/0/0": store.TriggerCancelled, "never/0/0": store.TriggerCancelled})
		c := w.claimTrigger(w.a)
		equal(w, "job", [2]string{c.InterruptID, string(c.Action)}, [2]string{"job", "cancel"})
		equal(w, "cancelled again", w.cancel(runID), 0)
		w.advance(2 * time.Hour)
		w.noTriggerDue(w.another())
		for _, id := range []string{"job", "task", "never"} {
			equal(w, "a delivery", w.deliver(w.a, payload(store.TriggerID(rollout, id, 0, 0), `1`)), store.Late)
		}
	})

	s.spec("the triggers of a running rollout that is cancelled become cancelled with it", func(w *world) {
		runID, rollout := w.suspended(list(external("i"), polled("j", w.Now().Add(time.Hour))))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		c := w.claim(w.a)
		w.cancel(rollout)
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCancelled})
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerConsumed, "j/0/0": store.TriggerCancelled})
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionCancel)
	})

	s.spec("cancelling a run spares what has ended, cancelling a rollout the others", func(w *world) {
		runID, rollouts := w.create(4)
		claims, err := w.a.Claim(w.ctx, "", 2)
		w.must(err)
		w.commit(w.a, claims[0], completed)
		w.must(w.a.Finish(w.ctx, claims[0].Token, ptr(1.0)))
		equal(w, "one", w.cancel(rollouts[3]), 1)
		equal(w, "counts", w.run(runID).Counts, store.Counts{Total: 4, Pending: 1, Running: 1, Completed: 1, Cancelled: 1})
		equal(w, "the run", w.cancel(runID), 2)
		equal(w, "counts", w.run(runID).Counts, store.Counts{Total: 4, Running: 1, Completed: 1, Cancelled: 2})
		w.commit(w.a, claims[1], completed)
		equal(w, "final", w.run(runID).Final(), true)
	})
}
