package storetest

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// scored is a final run of n completed rollouts with the score 0 and a result each.
func (w *world) scored(n int) (runID string, rollouts []string) {
	w.Helper()
	runID, rollouts = w.create(n)
	claims, err := w.a.Claim(w.ctx, runID, n)
	w.must(err)
	for _, c := range claims {
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{"x":1}`)})
		w.must(w.a.Finish(w.ctx, c.Token, ptr(0.0), store.Result{EvaluatorID: "old", Data: json.RawMessage(`["old"]`)}))
	}
	return runID, rollouts
}

func (w *world) beginRescoring(r store.NewRescoring) int {
	w.Helper()
	number, err := w.a.BeginRescoring(w.ctx, r)
	w.must(err)
	return number
}

func (w *world) dueFor(runID string, number int) []string {
	w.Helper()
	ids, err := w.another().DueRollouts(w.ctx, runID, number)
	w.must(err)
	return ids
}

func (w *world) lastRescoring(runID string) store.Rescoring {
	w.Helper()
	all, err := w.another().Rescorings(w.ctx, runID)
	w.must(err)
	return all[len(all)-1]
}

func rescored(id string, score float64, results ...store.Result) store.Rescored {
	return store.Rescored{RolloutID: id, Score: &score, Results: results}
}

func rescoringSpecs(s *suite) {
	s.spec("a rescoring replaces results and score, and nothing else of a rollout", func(w *world) {
		runID, rollouts := w.scored(2)
		before, events, revision := w.view(runID, rollouts[0]), len(w.events(runID)), w.run(runID).Revision
		w.advance(time.Hour)
		n := w.beginRescoring(store.NewRescoring{RunID: runID, Data: json.RawMessage(`{"with":"new"}`)})
		equal(w, "number", n, 1)
		equal(w, "due", w.dueFor(runID, n), rollouts)
		begun := before
		begun.Due = 1
		equal(w, "a rollout that is due", w.view(runID, rollouts[0]), begun)

		new1, new2 := store.Result{EvaluatorID: "new", Data: json.RawMessage(`["new"]`), Rescoring: 1},
			store.Result{EvaluatorID: "old", Data: json.RawMessage(`["old"]`)}
		w.must(w.a.Rescore(w.ctx, runID, n, rescored(rollouts[0], 1, new1, new2)))
		after := before
		after.Score, after.Results, after.RescoringState =
			ptr(1.0), []store.Result{new1, new2}, store.RescoringState{Rescoring: 1}
		equal(w, "a rollout that was scored", w.view(runID, rollouts[0]), after)
		equal(w, "due", w.dueFor(runID, n), rollouts[1:])
		equal(w, "rescoring", w.lastRescoring(runID), store.Rescoring{
			Number: 1, Data: json.RawMessage(`{"with":"new"}`), BegunAt: w.Now(), Due: 1, Scored: 1})

		equal(w, "events before its end", len(w.events(runID)), events)

		w.advance(time.Minute)
		w.must(w.a.Rescore(w.ctx, runID, n, store.Rescored{RolloutID: rollouts[1], Unscored: "its workspace is gone"}))
		left := w.view(runID, rollouts[1])
		equal(w, "a rollout that is left", left.RescoringState, store.RescoringState{Unscored: "its workspace is gone"})
		equal(w, "its results", left.Results, before.Results)
		equal(w, "rescoring", w.lastRescoring(runID), store.Rescoring{
			Number: 1, Data: json.RawMessage(`{"with":"new"}`), BegunAt: w.Now().Add(-time.Minute), EndedAt: w.Now(), Scored: 1,
			Unscored: 1})
		run := w.run(runID)
		equal(w, "final", run.Final(), true)
		w.must(w.another().Rescore(w.ctx, runID, n, rescored(rollouts[0], 1)))
		all := w.events(runID)
		equal(w, "events", len(all), events+1)
		end := all[events]
		end.Data = nil
		equal(w, "the last event", end, store.Event{
			Seq: all[events-1].Seq + 1, Time: w.Now(), Type: store.RunRescored, RunID: runID})
		equal(w, "what it says", string(all[events].Data), `{"number":1,"scored":1,"notScored":1}`)
		equal(w, "the revision grows with each transaction", run.Revision, revision+3)
	})

	s.spec("what is not due stays as it is", func(w *world) {
		runID, rollouts := w.scored(1)
		n := w.beginRescoring(store.NewRescoring{RunID: runID})
		w.must(w.a.Rescore(w.ctx, runID, n+1, rescored(rollouts[0], 1)))
		equal(w, "score after a rescoring that there is not", *w.view(runID, rollouts[0]).Score, 0)
		w.must(w.another().Rescore(w.ctx, runID, n, rescored(rollouts[0], 0.5), rescored(rollouts[0], 0.6)))
		revision := w.run(runID).Revision
		w.must(w.a.Rescore(w.ctx, runID, n, rescored(rollouts[0], 1), rescored("nobody", 1)))
		equal(w, "score", *w.view(runID, rollouts[0]).Score, 0.5)
		equal(w, "rescoring", w.lastRescoring(runID).Scored, 1)
		equal(w, "revision", w.run(runID).Revision, revision)
	})

	s.spec("a rescoring takes the place of one that has not ended", func(w *world) {
		runID, rollouts := w.scored(2)
		first := w.beginRescoring(store.NewRescoring{RunID: runID})
		_, err := w.another().BeginRescoring(w.ctx, store.NewRescoring{RunID: runID})
		w.refused("beginning one without knowing of the first", err, store.ErrFenced)
		second := w.beginRescoring(store.NewRescoring{RunID: runID, After: first, Rollouts: rollouts[:1]})
		w.must(w.a.Rescore(w.ctx, runID, first, rescored(rollouts[0], 1), rescored(rollouts[1], 1)))
		equal(w, "scores", [2]float64{*w.view(runID, rollouts[0]).Score, *w.view(runID, rollouts[1]).Score}, [2]float64{0, 0})
		equal(w, "due", [2]int{len(w.dueFor(runID, first)), len(w.dueFor(runID, second))}, [2]int{0, 1})
		w.must(w.a.Rescore(w.ctx, runID, second, rescored(rollouts[0], 1)))
		equal(w, "score", *w.view(runID, rollouts[0]).Score, 1)
		equal(w, "ended", w.lastRescoring(runID).EndedAt, w.Now())
	})

	s.spec("only completed rollouts are due", func(w *world) {
		runID, rollouts := w.create(3)
		claims, err := w.a.Claim(w.ctx, runID, 3)
		w.must(err)
		c := claims[0]
		w.commit(w.a, c, completed)
		w.must(w.a.Finish(w.ctx, c.Token, nil))
		w.commit(w.a, claims[1], store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}})
		equal(w, "due", w.dueFor(runID, w.beginRescoring(store.NewRescoring{RunID: runID})), []string{c.RolloutID})
		for _, id := range rollouts {
			if id != c.RolloutID {
				_, err := w.a.BeginRescoring(w.ctx, store.NewRescoring{RunID: runID, After: 1, Rollouts: []string{c.RolloutID, id}})
				w.refused("one that is not completed", err, store.ErrNotFound)
			}
		}
		equal(w, "rescorings", w.lastRescoring(runID).Number, 1)
		equal(w, "state", w.view(runID, c.RolloutID).State, eval.StateCompleted)
		_, err = w.a.BeginRescoring(w.ctx, store.NewRescoring{RunID: "nobody"})
		w.refused("a run that there is not", err, store.ErrNotFound)
	})

	s.spec("a rescoring without rollouts has ended", func(w *world) {
		runID, _ := w.create(1)
		w.beginRescoring(store.NewRescoring{RunID: runID})
		equal(w, "ended", w.lastRescoring(runID).EndedAt, w.Now())
		all := w.events(runID)
		equal(w, "the last event", all[len(all)-1].Type, store.RunRescored)
	})

	s.spec("a rescoring may ask evaluations for something else", func(w *world) {
		runID, rollouts := w.scored(2)
		read := func(st Store, number int) store.Rescorable {
			all, err := st.Rescorables(w.ctx, number, rollouts[1], rollouts[0])
			w.must(err)
			equal(w, "rollouts", []string{all[0].ID, all[1].ID}, []string{rollouts[1], rollouts[0]})
			equal(w, "results of the other", len(all[0].Results), 1)
			return all[1]
		}
		planned := read(w.a, 0)
		n := w.beginRescoring(store.NewRescoring{
			RunID: runID, Evaluations: []store.Evaluation{{ID: planned.EvaluationID, Data: json.RawMessage(`{"asks":"else"}`)}}})
		one := read(w.another(), n)
		equal(w, "evaluation", string(one.Evaluation), `{"asks":"else"}`)
		equal(w, "output", string(one.Segments[0].Output), `{"x":1}`)
		equal(w, "results", len(one.Results), 1)
		equal(w, "due", one.Due, n)
		equal(w, "that of the plan", string(read(w.a, 0).Evaluation), string(planned.Evaluation))
		w.must(w.a.Snapshot(w.ctx, runID, func(v store.View) error {
			all, err := v.Rescorings()
			equal(w, "rescorings", len(all), 1)
			for number, expected := range map[int]string{0: string(planned.Evaluation), n: `{"asks":"else"}`} {
				data, err := v.Evaluation(rollouts[0], number)
				w.must(err)
				equal(w, "that of a rollout", string(data), expected)
			}
			seen := 0
			w.must(v.RescoredEvaluations(n, func(e store.Evaluation) error {
				seen++
				equal(w, "its evaluation", string(e.Data), `{"asks":"else"}`)
				return nil
			}))
			equal(w, "evaluations", seen, 1)
			return err
		}))
		_, err := w.a.Rescorables(w.ctx, n, rollouts[0], "nobody")
		w.refused("a rollout that there is not", err, store.ErrNotFound)
	})

	s.spec("a run that is removed takes its rescorings with it", func(w *world) {
		runID, rollouts := w.scored(1)
		n := w.beginRescoring(store.NewRescoring{RunID: runID, Evaluations: []store.Evaluation{{ID: "e"}}})
		w.must(w.a.Remove(w.ctx, runID))
		w.must(w.a.Rescore(w.ctx, runID, n, rescored(rollouts[0], 1)))
		all, err := w.a.Rescorings(w.ctx, runID)
		w.must(err)
		equal(w, "rescorings and due rollouts", [2]int{len(all), len(w.dueFor(runID, n))}, [2]int{})
	})
}
