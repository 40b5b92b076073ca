package storetest

import (
	"fmt"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// transition is a change of a rollout's state.
type transition struct{ from, to eval.State }

// inState brings a rollout of a new run into a state in which it can still change; held says who
// holds it.
func (w *world) inState(s eval.State) (runID, rolloutID string, held store.Claim) {
	w.Helper()
	runID, rollouts := w.create(1)
	if s != eval.StatePending {
		held = w.claim(w.a)
	}
	switch s {
	case eval.StateSuspended:
		w.suspend(w.a, held, external("i"))
	case eval.StateScoring:
		w.commit(w.a, held, completed)
		w.waitForScores(w.a, held, waits("q", external("i")))
	case eval.StateEvaluating:
		w.commit(w.a, held, completed)
	default: // pending and running need nothing more
	}
	equal(w, "state", w.view(runID, rollouts[0]).State, s)
	return runID, rollouts[0], held
}

// causes say how each transition comes about.
var causes = map[transition]func(w *world, rolloutID string, held store.Claim){
	{eval.StatePending, eval.StateRunning}:   func(w *world, _ string, _ store.Claim) { w.claim(w.a) },
	{eval.StatePending, eval.StateCancelled}: func(w *world, id string, _ store.Claim) { w.cancel(id) },
	{eval.StateRunning, eval.StateRunning}:   takeOver,
	{eval.StateRunning, eval.StatePending}: func(w *world, _ string, c store.Claim) {
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeInterrupted})
	},
	{eval.StateRunning, eval.StateSuspended}: func(w *world, _ string, c store.Claim) {
		w.suspend(w.a, c, external("i"))
	},
	{eval.StateRunning, eval.StateEvaluating}: func(w *world, _ string, c store.Claim) { w.commit(w.a, c, completed) },
	{eval.StateRunning, eval.StateFaulted}: func(w *world, _ string, c store.Claim) {
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}})
	},
	{eval.StateRunning, eval.StateCancelled}: func(w *world, _ string, c store.Claim) {
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCancelled})
	},
	{eval.StateSuspended, eval.StateRunning}: func(w *world, id string, _ store.Claim) {
		w.deliver(w.a, payload(store.TriggerID(id, "i", 0, 0), `1`))
		w.claim(w.a)
	},
	{eval.StateSuspended, eval.StateFaulted}: func(w *world, id string, _ store.Claim) {
		w.deliver(w.a, store.Delivery{TriggerID: store.TriggerID(id, "i", 0, 0), Status: store.StatusFaulted})
	},
	{eval.StateSuspended, eval.StateCancelled}:   func(w *world, id string, _ store.Claim) { w.cancel(id) },
	{eval.StateEvaluating, eval.StateEvaluating}: takeOver,
	{eval.StateEvaluating, eval.StateCompleted}: func(w *world, _ string, c store.Claim) {
		w.must(w.a.Finish(w.ctx, c.Token, nil))
	},
	{eval.StateEvaluating, eval.StateFaulted}: func(w *world, _ string, c store.Claim) {
		w.must(w.a.FinishFaulted(w.ctx, c.Token, fault.Fault{Category: "verifier"}))
	},
	{eval.StateEvaluating, eval.StateCancelled}: func(w *world, id string, _ store.Claim) { w.cancel(id) },
	{eval.StateEvaluating, eval.StateScoring}: func(w *world, _ string, c store.Claim) {
		w.waitForScores(w.a, c, waits("q", external("i")))
	},
	{eval.StateScoring, eval.StateEvaluating}: func(w *world, id string, _ store.Claim) {
		w.deliver(w.a, payload(store.EvaluatorTriggerID(id, "q", 0, 0), `1`))
		w.claim(w.a)
	},
	{eval.StateScoring, eval.StateCancelled}: func(w *world, id string, _ store.Claim) { w.cancel(id) },
}

func takeOver(w *world, _ string, _ store.Claim) {
	w.advance(lease)
	equal(w, "taken over", w.claim(w.another()).TakenOver, true)
}

func stateSpecs(s *suite) {
	for _, from := range eval.States {
		for _, to := range eval.States {
			cause := causes[transition{from, to}]
			switch {
			case from == eval.StatePending && to == eval.StateFaulted: // by its plan
				s.spec("pending becomes faulted", func(w *world) {
					runID, ids := w.create(1, func(p *store.Plan) { p.Rollouts[0].Fault = &fault.Fault{Category: "not-runnable"} })
					equal(w, "state", w.view(runID, ids[0]).State, eval.StateFaulted)
				})
			case from.CanBecome(to):
				s.spec(fmt.Sprintf("%s becomes %s", from, to), func(w *world) {
					if cause == nil {
						w.Fatal("the table has it, but nothing makes it")
					}
					runID, id, held := w.inState(from)
					cause(w, id, held)
					equal(w, "state", w.view(runID, id).State, to)
				})
			case cause != nil:
				s.t.Errorf("%s becomes %s, but the table does not have it", from, to)
			}
		}
	}

	s.spec("a terminal state is final", func(w *world) {
		for _, c := range []transition{{eval.StateRunning, eval.StateFaulted}, {eval.StateEvaluating, eval.StateCompleted},
			{eval.StateSuspended, eval.StateCancelled}, {eval.StateScoring, eval.StateCancelled}} {
			runID, id, held := w.inState(c.from)
			causes[c](w, id, held)
			before := w.view(runID, id)
			equal(w, "state", before.State.IsTerminal(), true)
			equal(w, "cancelled", w.cancel(id), 0)
			w.deliver(w.a, payload(store.TriggerID(id, "i", 0, 0), `1`))
			w.deliver(w.a, payload(store.EvaluatorTriggerID(id, "q", 0, 0), `1`))
			w.advance(2 * lease)
			w.claimsNothing(w.another())
			equal(w, "rollout", w.view(runID, id).Rollout, before.Rollout)
		}
	})
}
