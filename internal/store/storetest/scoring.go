package storetest

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// waits are triggers of an evaluator.
func waits(evaluator string, n ...store.NewTrigger) []store.NewTrigger {
	for i := range n {
		n[i].EvaluatorID = evaluator
	}
	return n
}

// waitForScores puts a rollout that is being evaluated into the state scoring.
func (w *world) waitForScores(s Store, c store.Claim, triggers []store.NewTrigger, results ...string) store.Committed {
	w.Helper()
	wait := store.ScoreWait{Triggers: triggers}
	for _, id := range results {
		wait.Results = append(wait.Results, store.Result{EvaluatorID: id, Data: json.RawMessage(`[{"score":1}]`)})
	}
	done, err := s.WaitForScores(w.ctx, c.Token, wait)
	w.must(err)
	return done
}

// scoring makes a run of one rollout whose evaluators wait for the given triggers.
func (w *world) scoring(triggers []store.NewTrigger, results ...string) (runID, rolloutID string) {
	w.Helper()
	runID, rollouts := w.create(1)
	c := w.claim(w.a)
	w.commit(w.a, c, completed)
	equal(w, "committed", w.waitForScores(w.a, c, triggers, results...), store.Committed{State: eval.StateScoring})
	return runID, rollouts[0]
}

func results(o store.RolloutView) (ids []string) {
	for _, r := range o.Results {
		ids = append(ids, r.EvaluatorID)
	}
	return ids
}

func scoringSpecs(s *suite) {
	s.spec("an evaluator that waits leaves a row, and what others have said", func(w *world) {
		runID, rollout := w.scoring(waits("human", external("rater-1"), external("rater-2")), "exact")
		o := w.view(runID, rollout)
		equal(w, "state", o.State, eval.StateScoring)
		equal(w, "results", results(o), []string{"exact"})
		if o.Score != nil {
			w.Fatal("it has a score")
		}
		equal(w, "trigger", w.trigger(store.EvaluatorTriggerID(rollout, "human", 0, 1)), store.Trigger{
			ID: store.EvaluatorTriggerID(rollout, "human", 0, 1), RunID: runID, RolloutID: rollout, EvaluationID: "e0",
			EvaluationName: "Ee0", Agent: "agent", Epoch: 1, InterruptID: "rater-2", EvaluatorID: "human", Type: "TASK",
			Name: "TASK", Source: "inbox", ItemKey: "key-rater-2", Spec: []byte(`{}`), State: store.TriggerWaiting, Segment: 1,
			CreatedAt: w.Now()})
		equal(w, "counts", w.run(runID).Counts, store.Counts{Total: 1, Scoring: 1})
		w.advance(time.Hour)
		w.claimsNothing(w.another())
		equal(w, "the agent does not wait", o.Suspensions, 0)
	})

	s.spec("it goes on when all that one evaluator waits for has arrived, with that", func(w *world) {
		triggers := append(waits("human", external("rater-1"), external("rater-2")), waits("batch", external("b"))...)
		runID, rollout := w.scoring(triggers, "exact")
		first, second := store.EvaluatorTriggerID(rollout, "human", 0, 0), store.EvaluatorTriggerID(rollout, "human", 0, 1)
		w.deliver(w.a, payload(first, `0.5`))
		w.claimsNothing(w.a)
		w.deliver(w.a, payload(second, `1`))
		c := w.claim(w.another())
		equal(w, "state", c.State, eval.StateEvaluating)
		equal(w, "segment and attempt", [2]int{c.Segment, c.Attempt}, [2]int{1, 1})
		equal(w, "output", string(c.Output), `{"answer":42}`)
		equal(w, "deliveries", payloads(c), map[string]string{"rater-1": "successful 0.5", "rater-2": "successful 1"})
		equal(w, "waiting", c.Waiting, []string{"batch"})
		equal(w, "results", len(c.Results), 1)
		if c.Repeats || c.TakenOver {
			w.Fatalf("%+v", c)
		}
		equal(w, "segments", len(w.view(runID, rollout).Segments), 1)
	})

	s.spec("a result consumes what its evaluator was resumed with, and is not lost in a crash", func(w *world) {
		runID, rollout := w.scoring(append(waits("human", external("r")), waits("batch", external("b"))...))
		human := store.EvaluatorTriggerID(rollout, "human", 0, 0)
		w.deliver(w.a, payload(human, `1`))
		w.claim(w.a)
		w.advance(lease)
		b := w.another()
		c := w.claim(b) // it died before it had a result: everything is there again
		equal(w, "deliveries", payloads(c), map[string]string{"r": "successful 1"})
		w.must(b.RecordResult(w.ctx, c.Token, store.Result{EvaluatorID: "human"}))
		equal(w, "consumed", w.trigger(human).State, store.TriggerConsumed)
		w.advance(lease)
		c = w.claim(w.a) // it died before it had said that the other one still waits
		equal(w, "deliveries", len(c.Deliveries), 0)
		equal(w, "waiting", c.Waiting, []string{"batch"})
		equal(w, "ready", w.waitForScores(w.a, c, nil).Ready, false)
		equal(w, "results", results(w.view(runID, rollout)), []string{"human"})
	})

	s.spec("what arrives while the evaluators run is not lost", func(w *world) {
		runID, rollout := w.scoring(append(waits("human", external("r")), waits("batch", external("b"))...))
		human, batch := store.EvaluatorTriggerID(rollout, "human", 0, 0), store.EvaluatorTriggerID(rollout, "batch", 0, 0)
		w.deliver(w.a, payload(human, `1`))
		c := w.claim(w.a)
		w.deliver(w.a, payload(batch, `2`))
		equal(w, "ready at once", w.waitForScores(w.a, c, nil, "human"),
			store.Committed{State: eval.StateScoring, Ready: true})
		equal(w, "consumed", w.trigger(human).State, store.TriggerConsumed)
		c = w.claim(w.a)
		equal(w, "deliveries", payloads(c), map[string]string{"b": "successful 2"})
		w.must(w.a.Finish(w.ctx, c.Token, ptr(1.0), store.Result{EvaluatorID: "batch", Data: json.RawMessage(`[]`)}))
		o := w.view(runID, rollout)
		equal(w, "results", results(o), []string{"human", "batch"})
		equal(w, "consumed", w.trigger(batch).State, store.TriggerConsumed)
	})

	s.spec("an evaluator may wait again", func(w *world) {
		_, rollout := w.scoring(waits("command", external("i")))
		w.deliver(w.a, payload(store.EvaluatorTriggerID(rollout, "command", 0, 0), `1`))
		c := w.claim(w.a)
		equal(w, "not ready: the consumed payload does not answer it",
			w.waitForScores(w.a, c, waits("command", external("i"))).Ready, false)
		equal(w, "before", w.trigger(store.EvaluatorTriggerID(rollout, "command", 0, 0)).State, store.TriggerConsumed)
		equal(w, "now", w.trigger(store.EvaluatorTriggerID(rollout, "command", 1, 0)).Occurrence, 1)
	})

	s.spec("a delivery may come before its evaluator waits", func(w *world) {
		_, rollouts := w.create(1)
		c := w.claim(w.a)
		equal(w, "disposition", w.deliver(w.a, payload(store.EvaluatorTriggerID(rollouts[0], "human", 0, 0), `1`)),
			store.Parked)
		w.commit(w.a, c, completed)
		equal(w, "ready", w.waitForScores(w.a, c, waits("human", external("r"))),
			store.Committed{State: eval.StateScoring, Ready: true})
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"r": "successful 1"})
	})

	s.spec("what will not come is no fault of the rollout", func(w *world) {
		for _, status := range []store.Status{store.StatusFaulted, store.StatusCancelled, store.StatusExpired} {
			runID, rollout := w.scoring(waits("human", external("r")))
			w.deliver(w.a, store.Delivery{
				TriggerID: store.EvaluatorTriggerID(rollout, "human", 0, 0), Status: status,
				Fault: &fault.Fault{Category: "job", Message: "no"}})
			equal(w, "state", w.view(runID, rollout).State, eval.StateScoring)
			c := w.claim(w.a)
			equal(w, "status", c.Deliveries[0].Status, status)
			w.must(w.a.Finish(w.ctx, c.Token, nil))
		}
	})

	s.spec("an agent's interrupt is another than an evaluator's of the same id", func(w *world) {
		runID, rollout := w.suspended(list(external("i")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "i", 0, 0), `1`))
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		equal(w, "ready", w.waitForScores(w.a, c, waits("command", external("i"))).Ready, false)
		o := w.view(runID, rollout)
		equal(w, "triggers", len(o.Triggers), 2)
		equal(w, "the agent's", o.Triggers[0].State, store.TriggerConsumed)
		equal(w, "the evaluator's", o.Triggers[1].State, store.TriggerWaiting)
		w.deliver(w.a, payload(o.Triggers[1].ID, `2`))
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 2"})
	})

	s.spec("siblings of an evaluator's interrupt are superseded by the first", func(w *world) {
		runID, rollout := w.scoring(waits("command", external("i"), startable("i")))
		w.deliver(w.a, payload(store.EvaluatorTriggerID(rollout, "command", 0, 0), `1`))
		equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
			"i/0/0": store.TriggerFired, "i/0/1": store.TriggerSuperseded})
		equal(w, "deliveries", payloads(w.claim(w.a)), map[string]string{"i": "successful 1"})
	})

	s.spec("waiting for a score has a deadline and a clock of its own", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		w.advance(time.Second)
		_, err := w.a.WaitForScores(w.ctx, c.Token, store.ScoreWait{
			Triggers: waits("human", external("r")), Timeout: time.Hour})
		w.must(err)
		id := store.EvaluatorTriggerID(rollouts[0], "human", 0, 0)
		equal(w, "deadline", w.trigger(id).Deadline, w.Now().Add(time.Hour))
		w.advance(time.Minute)
		w.deliver(w.a, payload(id, `1`))
		w.advance(time.Second)
		w.claim(w.a)
		equal(w, "clocks", w.view(runID, rollouts[0]).Clocks, store.Clocks{
			Evaluating: time.Second, Waiting: time.Minute, Scoring: time.Minute, Queued: time.Second})
	})

	s.spec("the jobs of evaluators are started, and cancelled with the rollout", func(w *world) {
		runID, rollout := w.scoring(waits("batch", startable("b")))
		t := w.claimTrigger(w.a)
		equal(w, "action", t.Action, store.ActionStart)
		w.must(w.a.TriggerStarted(w.ctx, t.TriggerToken, "job-1", time.Hour))
		equal(w, "cancelled", w.cancel(runID), 1)
		equal(w, "state", w.view(runID, rollout).State, eval.StateCancelled)
		equal(w, "action", w.claimTrigger(w.a).Action, store.ActionCancel)
	})

	s.spec("a rollout that ends waits for nothing", func(w *world) {
		for _, faulted := range []bool{false, true} {
			runID, rollout := w.scoring(append(waits("human", external("r")),
				waits("batch", polled("b", w.Now().Add(time.Hour)))...))
			w.deliver(w.a, payload(store.EvaluatorTriggerID(rollout, "human", 0, 0), `1`))
			c := w.claim(w.a)
			if faulted {
				w.must(w.a.FinishFaulted(w.ctx, c.Token, fault.Fault{Category: "internal"}))
			} else {
				w.must(w.a.Finish(w.ctx, c.Token, nil))
			}
			equal(w, "triggers", states(w.view(runID, rollout).Triggers), map[string]store.TriggerState{
				"r/0/0": store.TriggerAbandoned, "b/0/0": store.TriggerAbandoned})
			equal(w, "its job", w.claimTrigger(w.a).Action, store.ActionCancel)
		}
	})

	s.spec("waiting for nothing is refused", func(w *world) {
		_, _ = w.create(1)
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		if _, err := w.a.WaitForScores(w.ctx, c.Token, store.ScoreWait{}); err == nil {
			w.Fatal("nothing would end it")
		}
		if _, err := w.a.WaitForScores(w.ctx, c.Token, store.ScoreWait{Triggers: list(external("i"))}); err == nil {
			w.Fatal("no evaluator waits")
		}
		w.must(w.a.Finish(w.ctx, c.Token, nil))
	})

	s.spec("its event says which evaluator waits for what", func(w *world) {
		runID, rollout := w.scoring(waits("human", external("r")))
		events := w.events(runID)
		last := events[len(events)-1]
		equal(w, "type", last.Type, store.RolloutScoring)
		equal(w, "data", string(last.Data),
			`{"triggers":[{"evaluatorId":"human","interruptId":"r","itemKey":"key-r","source":"inbox","triggerId":"`+
				store.EvaluatorTriggerID(rollout, "human", 0, 0)+`","type":"TASK"}]}`)
	})
}
