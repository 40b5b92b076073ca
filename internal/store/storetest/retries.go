package storetest

import (
	"encoding/json"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func retrySpecs(s *suite) {
	f := fault.New("agent", "exit 1")
	failed := func(after time.Duration) store.SegmentEnd {
		return store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: f, Retry: true, RetryAfter: after}
	}

	s.spec("a failed segment is repeated after its backoff", func(w *world) {
		runID, rollouts := w.create(1)
		equal(w, "committed", w.commit(w.a, w.claim(w.a), failed(time.Minute)), store.Committed{State: eval.StatePending})
		w.advance(time.Minute - time.Second)
		w.claimsNothing(w.a)
		w.advance(time.Second)
		c := w.claim(w.another())
		equal(w, "segment, attempt, failures", [3]int{c.Segment, c.Attempt, c.Failures}, [3]int{1, 2, 1})
		if !c.Repeats || c.TakenOver {
			w.Fatalf("%+v", c)
		}
		equal(w, "fault of the rollout", w.view(runID, rollouts[0]).Fault, nil)
	})

	s.spec("a failure that is not repeated faults the rollout", func(w *world) {
		runID, rollouts := w.create(1)
		end := failed(0)
		end.Retry = false
		equal(w, "committed", w.commit(w.a, w.claim(w.a), end), store.Committed{State: eval.StateFaulted})
		o := w.view(runID, rollouts[0])
		equal(w, "fault", o.Fault, f)
		equal(w, "fault of the segment", o.Segments[0].Fault, f)
	})

	s.spec("an interrupted attempt is repeated at once and is no failure", func(w *world) {
		_, _ = w.create(1)
		equal(w, "committed", w.commit(w.a, w.claim(w.a), store.SegmentEnd{Outcome: store.OutcomeInterrupted}),
			store.Committed{State: eval.StatePending})
		c := w.claim(w.a)
		equal(w, "attempt, failures", [2]int{c.Attempt, c.Failures}, [2]int{2, 0})
		equal(w, "repeats", c.Repeats, true)
	})

	s.spec("a claim that is released was never made", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		events := len(w.events(runID))
		w.advance(time.Minute)
		w.must(w.a.Release(w.ctx, c.Token, 0))
		o := w.view(runID, rollouts[0])
		equal(w, "state, segments", [2]any{o.State, len(o.Segments)}, [2]any{eval.StatePending, 0})
		equal(w, "clocks", o.Clocks, store.Clocks{Queued: time.Minute})
		again := w.claim(w.another())
		equal(w, "segment, attempt, failures", [3]int{again.Segment, again.Attempt, again.Failures}, [3]int{1, 1, 0})
		equal(w, "events", len(w.events(runID)), events)
		w.refused("releasing what another one has", w.a.Release(w.ctx, c.Token, 0), store.ErrFenced)
	})

	s.spec("a claim for evaluators that is released keeps what they have said", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage("{}")})
		w.must(w.a.RecordResult(w.ctx, c.Token, store.Result{EvaluatorID: "one", Data: json.RawMessage("[]")}))
		w.must(w.a.Release(w.ctx, c.Token, time.Minute))
		w.claimsNothing(w.another())
		w.advance(time.Minute)
		again := w.claim(w.another())
		equal(w, "state, results", [2]any{again.State, len(again.Results)}, [2]any{eval.StateEvaluating, 1})
		equal(w, "rollout", w.view(runID, rollouts[0]).State, eval.StateEvaluating)
	})

	s.spec("failures of evalrun itself are counted over all processes", func(w *world) {
		_, rollouts := w.create(1)
		count := func(s Store, c store.Claim, want int) {
			w.Helper()
			got, err := s.CountFailure(w.ctx, c.Token)
			w.must(err)
			equal(w, "count", got, want)
		}
		interrupted := store.SegmentEnd{Outcome: store.OutcomeInterrupted}
		c := w.claim(w.a)
		count(w.a, c, 1)
		w.commit(w.a, c, interrupted)
		b := w.another()
		c = w.claim(b)
		count(b, c, 2)
		w.commit(b, c, failed(0)) // the agent was run, and failed
		c = w.claim(w.a)
		count(w.a, c, 1)
		w.suspend(w.a, c, external("i"))
		_, err := w.a.CountFailure(w.ctx, c.Token)
		w.refused("counting for what nobody holds", err, store.ErrFenced)
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`))
		c = w.claim(w.a)
		count(w.a, c, 1)
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage("{}")})
		count(w.a, c, 1)
		w.must(w.a.Release(w.ctx, c.Token, 0))
		c = w.claim(b)
		count(b, c, 2)
	})

	s.spec("waiting between the claim and the agent's start is queued", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		w.advance(10 * time.Second)
		w.commit(w.a, c, store.SegmentEnd{
			Outcome: store.OutcomeCompleted, Output: json.RawMessage("{}"), Queued: 3 * time.Second})
		equal(w, "clocks", w.view(runID, rollouts[0]).Clocks, store.Clocks{Working: 7 * time.Second, Queued: 3 * time.Second})
	})

	s.spec("every attempt is kept, also one that nobody ended", func(w *world) {
		runID, rollouts := w.create(1)
		w.commit(w.a, w.claim(w.a), failed(0))
		w.commit(w.a, w.claim(w.a), store.SegmentEnd{Outcome: store.OutcomeInterrupted})
		start := w.Now()
		c := w.claim(w.a)
		w.advance(10 * time.Second)
		w.renew(w.a, c)
		w.advance(time.Hour)
		files := []store.File{{Name: "trajectory.jsonl", Size: 3, SHA256: "ab"}}
		b := w.another()
		w.commit(b, w.claim(b), store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`1`), Files: files})
		segments, err := w.a.Segments(w.ctx, rollouts[0])
		w.must(err)
		equal(w, "segments", segments, w.view(runID, rollouts[0]).Segments)
		gone := segments[2].Fault
		segments[2].Fault = nil
		if gone == nil || gone.Category != "interrupted" {
			w.Fatalf("fault %+v", gone)
		}
		base := store.Segment{RolloutID: rollouts[0], Number: 1, StartedAt: start, EndedAt: start}
		want := []store.Segment{base, base, base, base}
		for i := range want {
			want[i].Attempt = i + 1
		}
		want[0].Outcome, want[0].Fault = store.OutcomeFailed, f
		want[1].Outcome = store.OutcomeInterrupted
		want[2].Outcome, want[2].EndedAt = store.OutcomeInterrupted, start.Add(10*time.Second)
		want[3].Outcome, want[3].Output, want[3].Files, want[3].StartedAt, want[3].EndedAt =
			store.OutcomeCompleted, json.RawMessage(`1`), files, w.Now(), w.Now()
		if diff := cmp.Diff(want, segments); diff != "" {
			w.Fatal(diff)
		}
	})

	s.spec("failures count for each segment", func(w *world) {
		_, rollouts := w.create(1)
		w.commit(w.a, w.claim(w.a), failed(0))
		w.suspend(w.a, w.claim(w.a), external("i"))
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`))
		c := w.claim(w.a)
		equal(w, "segment, attempt, failures", [3]int{c.Segment, c.Attempt, c.Failures}, [3]int{2, 1, 0})
	})
}

func evaluateSpecs(s *suite) {
	result := func(id string) store.Result {
		return store.Result{EvaluatorID: id, Data: json.RawMessage(`[{"score":1}]`)}
	}

	s.spec("a completed segment is evaluated by its holder, result by result", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		equal(w, "committed", w.commit(w.a, c, completed), store.Committed{State: eval.StateEvaluating})
		w.claimsNothing(w.another())
		for i, id := range []string{"z", "a", "m"} {
			w.must(w.a.RecordResult(w.ctx, c.Token, result(id)))
			equal(w, "results", len(w.view(runID, rollouts[0]).Results), i+1)
		}
		equal(w, "order", w.view(runID, rollouts[0]).Results, []store.Result{result("z"), result("a"), result("m")})
		w.must(w.a.Finish(w.ctx, c.Token, ptr(0.5)))
		o := w.view(runID, rollouts[0])
		equal(w, "state", o.State, eval.StateCompleted)
		equal(w, "score", o.Score, ptr(0.5))
		equal(w, "output", string(o.Segments[0].Output), `{"answer":42}`)
	})

	s.spec("a rollout may end without a score", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		w.must(w.a.Finish(w.ctx, c.Token, nil))
		equal(w, "score", w.view(runID, rollouts[0]).Score, nil)
	})

	s.spec("after a crash only evaluators without a result run again", func(w *world) {
		runID, rollouts := w.create(1)
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		w.must(w.a.RecordResult(w.ctx, c.Token, result("one")))
		w.must(w.a.RecordResult(w.ctx, c.Token, result("two")))
		revision := w.run(runID).Revision
		w.advance(lease)
		b := w.another()
		again := w.claim(b)
		equal(w, "state", again.State, eval.StateEvaluating)
		equal(w, "output", string(again.Output), `{"answer":42}`)
		equal(w, "results", again.Results, []store.Result{result("one"), result("two")})
		equal(w, "segment and attempt", [2]int{again.Segment, again.Attempt}, [2]int{1, 1})
		if !again.TakenOver || again.Repeats || w.run(runID).Revision <= revision {
			w.Fatalf("%+v", again)
		}
		w.must(b.RecordResult(w.ctx, again.Token, result("three")))
		w.must(b.Finish(w.ctx, again.Token, ptr(1.0)))
		equal(w, "results", len(w.view(runID, rollouts[0]).Results), 3)
		equal(w, "segments", len(w.view(runID, rollouts[0]).Segments), 1)
	})

	s.spec("one evaluator has one result", func(w *world) {
		_, _ = w.create(1)
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		w.must(w.a.RecordResult(w.ctx, c.Token, result("one")))
		if err := w.a.RecordResult(w.ctx, c.Token, result("one")); err == nil {
			w.Fatal("recorded twice")
		}
		w.must(w.a.Finish(w.ctx, c.Token, nil))
	})
}
