package storetest

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

func runSpecs(s *suite) {
	s.spec("a store has one id, and each opening its own holder", func(w *world) {
		b := w.another()
		equal(w, "id", b.ID(), w.a.ID())
		if _, err := uuid.Parse(w.a.ID()); err != nil {
			w.Fatalf("the id %q: %v", w.a.ID(), err)
		}
		if w.a.Holder() == b.Holder() || w.a.Holder() == "" {
			w.Fatalf("holders %q and %q", w.a.Holder(), b.Holder())
		}
		if !filepath.IsAbs(w.a.Dir()) || w.a.Dir() != b.Dir() {
			w.Fatalf("folders %q and %q", w.a.Dir(), b.Dir())
		}
	})

	s.spec("a run that was made is there as it was planned", func(w *world) {
		p := plan(3, func(p *store.Plan) { p.RetryOf = "earlier"; p.Name = "N" })
		created, err := w.a.CreateRun(w.ctx, p)
		w.must(err)
		equal(w, "created", created, true)
		r, err := w.another().Run(w.ctx, p.RunID)
		w.must(err)
		equal(w, "run", r, store.Run{
			ID: p.RunID, Name: "N", EvaluationSetID: "set", EvaluationSetName: "Set", RetryOf: "earlier", CreatedAt: w.Now(),
			Revision: 1, Seq: 1, Counts: store.Counts{Total: 3, Pending: 3}})
		kept, err := w.a.Plan(w.ctx, p.RunID)
		w.must(err)
		want := p
		want.Evaluations, want.Rollouts = nil, nil
		equal(w, "plan", kept, want)
		var evaluations []store.Evaluation
		var names []string
		w.must(w.a.Snapshot(w.ctx, p.RunID, func(v store.View) error {
			if err := v.Evaluations(func(e store.Evaluation) error {
				evaluations = append(evaluations, e)
				return nil
			}); err != nil {
				return err
			}
			return v.Rollouts(func(o store.RolloutView) error { names = append(names, o.EvaluationName); return nil })
		}))
		equal(w, "evaluations", evaluations, p.Evaluations)
		equal(w, "order of the rollouts", names, []string{"Ee0", "Ee1", "Ee2"})
	})

	s.spec("making a run again attaches to it and changes nothing", func(w *world) {
		p := plan(2)
		_, err := w.a.CreateRun(w.ctx, p)
		w.must(err)
		before := w.run(p.RunID)
		w.advance(lease)
		p.Name, p.Rollouts = "other", p.Rollouts[:1]
		created, err := w.another().CreateRun(w.ctx, p)
		w.must(err)
		equal(w, "created", created, false)
		equal(w, "run", w.run(p.RunID), before)
	})

	s.spec("of several that make one run at once exactly one makes it", func(w *world) {
		p := plan(5)
		stores := []Store{w.a, w.another()}
		var made atomic.Int32
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				created, err := stores[i%2].CreateRun(w.ctx, p)
				if err != nil {
					w.Error(err)
				}
				if created {
					made.Add(1)
				}
			})
		}
		group.Wait()
		equal(w, "made", made.Load(), 1)
		equal(w, "rollouts", w.run(p.RunID).Counts, store.Counts{Total: 5, Pending: 5})
	})

	s.spec("a plan that is wrong leaves nothing behind", func(w *world) {
		for name, change := range map[string]func(*store.Plan){
			"a rollout twice":           func(p *store.Plan) { p.Rollouts[1].ID = p.Rollouts[0].ID },
			"an evaluation that is not": func(p *store.Plan) { p.Rollouts[1].Evaluation = 9 },
		} {
			p := plan(2, change)
			if _, err := w.a.CreateRun(w.ctx, p); err == nil {
				w.Fatalf("%s: no error", name)
			}
			_, err := w.a.Run(w.ctx, p.RunID)
			w.refused(name, err, store.ErrNotFound)
		}
		w.claimsNothing(w.a)
	})

	s.spec("a rollout that cannot be run is faulted from the start", func(w *world) {
		runID, ids := w.create(2, func(p *store.Plan) { p.Rollouts[0].Fault = fault.New("not-runnable", "mocks") })
		o := w.view(runID, ids[0])
		equal(w, "state", o.State, eval.StateFaulted)
		equal(w, "fault", o.Fault, fault.New("not-runnable", "mocks"))
		equal(w, "claimed", w.claim(w.a).RolloutID, ids[1])
	})

	s.spec("a run without anything to run is final at once", func(w *world) {
		none, _ := w.create(0)
		faulted, _ := w.create(1, func(p *store.Plan) { p.Rollouts[0].Fault = &fault.Fault{Category: "not-runnable"} })
		for _, id := range []string{none, faulted} {
			r := w.run(id)
			if !r.Final() || r.FinishedAt != w.Now() {
				w.Fatalf("%+v is not final", r)
			}
			events := w.events(id)
			equal(w, "last event", events[len(events)-1].Type, store.RunFinished)
		}
	})

	s.spec("runs are listed the newest first, with their counts", func(w *world) {
		first, _ := w.create(1)
		w.advance(lease)
		second, _ := w.create(2)
		runs, err := w.a.Runs(w.ctx)
		w.must(err)
		equal(w, "runs", runs, []store.Run{w.run(second), w.run(first)})
		equal(w, "counts", runs[0].Counts, store.Counts{Total: 2, Pending: 2})
	})

	s.spec("what is not there is not found", func(w *world) {
		_, err := w.a.Run(w.ctx, "none")
		w.refused("run", err, store.ErrNotFound)
		_, err = w.a.Plan(w.ctx, "none")
		w.refused("plan", err, store.ErrNotFound)
		w.refused("snapshot", w.a.Snapshot(w.ctx, "none", func(store.View) error { return nil }), store.ErrNotFound)
		_, err = w.a.Trigger(w.ctx, "none")
		w.refused("trigger", err, store.ErrNotFound)
		_, err = w.a.Cancel(w.ctx, "none")
		w.refused("cancel", err, store.ErrNotFound)
		w.refused("finish", w.a.Finish(w.ctx, store.Token{RolloutID: "none"}, nil), store.ErrNotFound)
	})

	s.spec("documents that are missing are null, not an error", func(w *world) {
		runID, _ := w.create(1, func(p *store.Plan) { p.Data, p.Evaluations[0].Data = nil, nil })
		c := w.claim(w.a)
		equal(w, "evaluation", string(c.Evaluation), "null")
		w.suspend(w.a, c, store.NewTrigger{InterruptID: "i", Source: "inbox", KeyPrefix: "k-"})
		equal(w, "spec", string(w.view(runID, c.RolloutID).Triggers[0].Spec), "null")
	})

	s.spec("ids are derived as documented", func(w *world) {
		run := "0190a0b0-0000-7000-8000-000000000001"
		id := store.RolloutID(run, "e", "agent", 2)
		equal(w, "rollout", id, uuid.NewSHA1(uuid.MustParse(run), []byte("e\x00agent\x002")).String())
		equal(w, "trigger", store.TriggerID(id, "i", 1, 3), uuid.NewSHA1(uuid.MustParse(id), []byte("i\x001\x003")).String())
		equal(w, "version", uuid.MustParse(id).Version(), uuid.Version(5))
		equal(w, "version of a run", uuid.MustParse(store.NewRunID()).Version(), uuid.Version(7))
		named := uuid.NewSHA1(uuid.NameSpaceURL, []byte("evalrun:nightly"))
		equal(w, "of a run with a name", store.RolloutID("nightly", "e", "a", 1),
			uuid.NewSHA1(named, []byte("e\x00a\x001")).String())
	})

	s.spec("payloads come back byte for byte", func(w *world) {
		text := `{"big":12345678901234567890.5,"u":"é\u0000` + strings.Repeat("x", 100_000) + `"}`
		_, rollout := w.suspended(list(external("i")))
		id := store.TriggerID(rollout, "i", 0, 0)
		equal(w, "disposition", w.deliver(w.a, payload(id, text)), store.Accepted)
		equal(w, "payload", string(w.claim(w.a).Deliveries[0].Payload), text)
		equal(w, "of the trigger", w.trigger(id).Payload, json.RawMessage(text))
	})
}
