package storetest

import (
	"context"
	"errors"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func eventSpecs(s *suite) {
	s.spec("the life of a rollout is told in order", func(w *world) {
		runID, rollouts := w.create(1)
		w.commit(w.a, w.claim(w.a), store.SegmentEnd{
			Outcome: store.OutcomeFailed, Fault: &fault.Fault{Category: "agent"}, Retry: true})
		w.claim(w.a)
		w.advance(lease)
		b := w.another()
		w.suspend(b, w.claim(b), external("i"))
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`))
		c := w.claim(w.a)
		w.commit(w.a, c, completed)
		w.must(w.a.Finish(w.ctx, c.Token, ptr(1.0)))
		var types []store.EventType
		for i, e := range w.events(runID) {
			types = append(types, e.Type)
			equal(w, "number", e.Seq, int64(i+1))
			equal(w, "run", e.RunID, runID)
			if wantID := e.Type != store.RunCreated && e.Type != store.RunFinished; wantID != (e.RolloutID == rollouts[0]) {
				w.Fatalf("%+v", e)
			}
		}
		equal(w, "types", types, []store.EventType{
			store.RunCreated, store.RolloutStarted, store.RolloutRetried, store.RolloutRetried, store.RolloutSuspended,
			store.TriggerDelivered, store.RolloutResumed, store.RolloutEvaluated, store.RolloutFinished, store.RunFinished})
		equal(w, "last number", w.run(runID).Seq, int64(len(types)))
	})

	s.spec("the run is finished once, with its last rollout", func(w *world) {
		runID, _ := w.create(3)
		claims, err := w.a.Claim(w.ctx, "", 3)
		w.must(err)
		for i, c := range claims {
			equal(w, "final", w.run(runID).Final(), false)
			w.commit(w.a, c, completed)
			w.must(w.a.Finish(w.ctx, c.Token, nil))
			finished := 0
			for _, e := range w.events(runID) {
				if e.Type == store.RunFinished {
					finished++
				}
			}
			equal(w, "run.finished", finished, max(0, i-1))
		}
		equal(w, "final", w.run(runID).Final(), true)
	})

	s.spec("events are read in pieces, after a number", func(w *world) {
		runID, _ := w.create(4)
		_, err := w.a.Claim(w.ctx, "", 4)
		w.must(err)
		all := w.events(runID)
		equal(w, "events", len(all), 5)
		piece, err := w.another().Events(w.ctx, runID, 1, 2)
		w.must(err)
		equal(w, "piece", piece, all[1:3])
		piece, err = w.a.Events(w.ctx, runID, 5, 2)
		w.must(err)
		equal(w, "after the last", len(piece), 0)
	})

	s.spec("the numbers of runs that are worked on by several have no gaps", func(w *world) {
		const n = 15
		runs := []string{}
		for range 2 {
			runID, _ := w.create(n)
			runs = append(runs, runID)
		}
		stores := []Store{w.a, w.another()}
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				for {
					claims, err := stores[i%2].Claim(w.ctx, "", 2)
					if err != nil || len(claims) == 0 {
						if err != nil {
							w.Error(err)
						}
						return
					}
					for _, c := range claims {
						if _, err := stores[i%2].CommitSegment(w.ctx, c.Token, completed); err != nil {
							w.Error(err)
						}
						if err := stores[i%2].Finish(w.ctx, c.Token, nil); err != nil {
							w.Error(err)
						}
					}
				}
			})
		}
		group.Wait()
		for _, runID := range runs {
			events := w.events(runID)
			for i, e := range events {
				equal(w, "number", e.Seq, int64(i+1))
			}
			equal(w, "events", len(events), 2+3*n)
			equal(w, "last", events[len(events)-1].Type, store.RunFinished)
		}
	})

	s.spec("the revision grows with every change that a document shows", func(w *world) {
		runID, rollouts := w.create(1)
		last := w.run(runID).Revision
		grows := func(what string) {
			w.Helper()
			if r := w.run(runID).Revision; r <= last {
				w.Fatalf("%s: %d after %d", what, r, last)
			} else {
				last = r
			}
		}
		c := w.claim(w.a)
		grows("claim")
		w.suspend(w.a, c, startable("i"))
		grows("suspension")
		g := w.claimTrigger(w.a)
		grows("start")
		w.must(w.a.TriggerStarted(w.ctx, g.TriggerToken, "job-1", store.Never))
		grows("started")
		w.deliver(w.a, payload(store.TriggerID(rollouts[0], "i", 0, 0), `1`))
		grows("delivery")
		c = w.claim(w.a)
		grows("resumption")
		w.commit(w.a, c, store.SegmentEnd{Outcome: store.OutcomeInterrupted})
		grows("interruption")
		c = w.claim(w.a)
		grows("repetition")
		w.commit(w.a, c, completed)
		grows("completion")
		w.must(w.a.RecordResult(w.ctx, c.Token, store.Result{EvaluatorID: "e"}))
		grows("result")
		w.must(w.a.Finish(w.ctx, c.Token, nil))
		grows("end")
		other, _ := w.create(1)
		equal(w, "of another run", w.run(other).Revision, 1)
	})
}

func viewSpecs(s *suite) {
	s.spec("a snapshot does not change while others write", func(w *world) {
		runID, rollouts := w.create(300) // more than are read at once
		b := w.another()
		read := func(v store.View) (counts store.Counts) {
			w.must(v.Rollouts(func(o store.RolloutView) error {
				counts.Total++
				if o.State == eval.StatePending {
					counts.Pending++
				}
				if o.State == eval.StateRunning {
					counts.Running++
				}
				return nil
			}))
			return counts
		}
		w.must(w.a.Snapshot(w.ctx, runID, func(v store.View) error {
			_, err := b.Claim(w.ctx, "", 200)
			w.must(err)
			_, err = b.Cancel(w.ctx, rollouts[299])
			w.must(err)
			equal(w, "rollouts", read(v), store.Counts{Total: 300, Pending: 300})
			equal(w, "run", v.Run().Counts, store.Counts{Total: 300, Pending: 300})
			equal(w, "revision", v.Run().Revision, 1)
			return nil
		}))
		w.must(w.a.Snapshot(w.ctx, runID, func(v store.View) error {
			equal(w, "later", read(v), store.Counts{Total: 300, Pending: 99, Running: 200})
			return nil
		}))
	})

	s.spec("an error of a callback is returned and ends the reading", func(w *world) {
		runID, _ := w.suspended(list(external("i"), external("j")))
		stop := errors.New("stop")
		for name, read := range map[string]func(func() error) error{
			"snapshot": func(f func() error) error { return w.a.Snapshot(w.ctx, runID, func(store.View) error { return f() }) },
			"rollouts": func(f func() error) error {
				return w.a.Snapshot(w.ctx, runID, func(v store.View) error {
					return v.Rollouts(func(store.RolloutView) error { return f() })
				})
			},
			"evaluations": func(f func() error) error {
				return w.a.Snapshot(w.ctx, runID, func(v store.View) error {
					return v.Evaluations(func(store.Evaluation) error { return f() })
				})
			},
			"triggers": func(f func() error) error {
				return w.a.Triggers(w.ctx, runID, true, func(store.Trigger) error { return f() })
			},
		} {
			calls := 0
			err := read(func() error { calls++; return stop })
			w.refused(name, err, stop)
			equal(w, name, calls, 1)
		}
		equal(w, "the store still works", w.run(runID).Counts.Suspended, 1)
	})

	s.spec("triggers are listed oldest first: those that wait, or all, of one run or of all", func(w *world) {
		first, rollout := w.suspended(list(external("b"), external("a"), startable("c")))
		w.deliver(w.a, payload(store.TriggerID(rollout, "a", 0, 0), `1`))
		_, _ = w.suspended(list(external("d")))
		names := func(runID string, all bool) (out string) {
			w.must(w.a.Triggers(w.ctx, runID, all, func(g store.Trigger) error { out += g.InterruptID; return nil }))
			return out
		}
		equal(w, "all that wait", names("", false), "bcd")
		equal(w, "all", names("", true), "bacd")
		equal(w, "of a run", names(first, false), "bc")
		equal(w, "all of a run", names(first, true), "bac")
		equal(w, "of none", names("none", true), "")
	})

	s.spec("a prefix that several triggers have names none", func(w *world) {
		triggers := []store.NewTrigger{}
		for i := range 50 {
			triggers = append(triggers, external(string(rune('A'+i))))
		}
		_, rollout := w.suspended(triggers)
		id := store.TriggerID(rollout, "A", 0, 0)
		for n := range len(id) + 1 {
			g, err := w.a.Trigger(w.ctx, id[:n])
			switch {
			case n < 4:
				w.refused("a short prefix", err, store.ErrNotFound)
			case err == nil:
				equal(w, "trigger", g.ID, id)
			default:
				w.refused("an ambiguous prefix", err, store.ErrNotFound)
			}
		}
	})

	s.spec("a context that is done ends reading and writing", func(w *world) {
		ctx, cancel := context.WithCancel(w.ctx)
		cancel()
		_, err := w.a.CreateRun(ctx, plan(1))
		w.refused("writing", err, context.Canceled)
		_, err = w.a.Runs(ctx)
		w.refused("reading", err, context.Canceled)
		runs, err := w.a.Runs(w.ctx)
		w.must(err)
		equal(w, "runs", len(runs), 0)
	})
}
