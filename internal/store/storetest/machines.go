package storetest

import (
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// local is a trigger of the interrupt i whose job is a process of the machine that starts it.
func local() store.NewTrigger {
	n := startable("i")
	n.Source, n.Local = "exec", true
	return n
}

// on opens a store as a living process of another boot, whose machine has this name. It may be a
// container of the machine that another one with this boot was.
func on(name, boot string) func(*store.Options) {
	return func(o *store.Options) {
		p := store.ThisProcess()
		p.BootID, p.PIDNamespace = boot, "pid:[1]"
		o.Machine, o.Process = &store.Machine{Name: name, BootID: boot}, &p
	}
}

func machineSpecs(s *suite) {
	s.spec("a local job is asked for by the machine that has started it", func(w *world) { // Y1
		_, rollout := w.suspended(list(local()))
		id := store.TriggerID(rollout, "i", 0, 0)
		equal(w, "before it is started", w.trigger(id).Machine, "")
		here, there := w.another(on("here", "b1")), w.another(on("there", "b2"))
		c := w.claimTrigger(here)
		equal(w, "action, machine", [2]string{string(c.Action), c.Machine}, [2]string{"start", "here"})
		equal(w, "recorded before it is started", w.trigger(id).Machine, "here")
		w.must(here.TriggerStarted(w.ctx, c.TriggerToken, "", time.Second))
		w.advance(time.Minute)
		w.noTriggerDue(there)
		b, err := there.Backlog(w.ctx, "")
		w.must(err)
		equal(w, "due there", b.Due, 0)
		// after it was booted again
		equal(w, "action here", w.claimTrigger(w.another(on("here", "b3"))).Action, store.ActionCheck)
	})

	s.spec("a local job whose start was broken off is started on no other machine", func(w *world) { // Y1
		_, _ = w.suspended(list(local()))
		equal(w, "action", w.claimTrigger(w.another(on("here", "b1"))).Action, store.ActionStart)
		w.advance(2 * lease)
		w.noTriggerDue(w.another(on("there", "b2")))
		equal(w, "the same boot under another name", w.claimTrigger(w.another(on("container", "b1"))).Action,
			store.ActionResolve)
	})

	s.spec("a machine whose name was given is known by it alone", func(w *world) {
		_, _ = w.suspended(list(local()))
		named := func(name string) func(*store.Options) {
			return func(o *store.Options) {
				on(name, "b1")(o)
				o.Machine.BootID = ""
			}
		}
		w.claimTrigger(w.another(named("a")))
		w.advance(2 * lease)
		w.noTriggerDue(w.another(named("b")))
		w.noTriggerDue(w.another(on("c", "b1")))
		equal(w, "action", w.claimTrigger(w.another(named("a"))).Action, store.ActionResolve)
	})

	s.spec("a local job that certainly was not started may be started anywhere", func(w *world) {
		_, _ = w.suspended(list(local()))
		here := w.another(on("here", "b1"))
		w.must(here.TriggerFailed(w.ctx, w.claimTrigger(here).TriggerToken, time.Second, store.TriggerFailure{
			Error: "no disk", NotStarted: true}))
		w.advance(time.Second)
		c := w.claimTrigger(w.another(on("there", "b2")))
		equal(w, "action, machine", [2]string{string(c.Action), c.Machine}, [2]string{"start", "there"})
	})

	s.spec("a local job expires on any machine", func(w *world) {
		_, rollout := w.create(1)
		w.commit(w.a, w.claim(w.a), store.SegmentEnd{
			Outcome: store.OutcomeSuspended, SuspendTimeout: time.Hour, Triggers: list(local())})
		here, there := w.another(on("here", "b1")), w.another(on("there", "b2"))
		claimed := w.claimTrigger(here)
		w.must(here.TriggerStarted(w.ctx, claimed.TriggerToken, "", time.Second))
		w.advance(time.Minute)
		deadline := w.trigger(store.TriggerID(rollout[0], "i", 0, 0)).Deadline
		for _, next := range []func() (time.Time, error){
			func() (time.Time, error) { return there.NextDue(w.ctx, "") },
			func() (time.Time, error) { b, err := there.Backlog(w.ctx, ""); return b.NextDue, err },
		} {
			at, err := next()
			w.must(err)
			equal(w, "next there", at, deadline)
		}
		w.advance(time.Hour)
		expired := w.claimTrigger(there)
		equal(w, "action, elsewhere", [2]any{expired.Action, expired.Elsewhere}, [2]any{store.ActionExpire, true})
	})

	s.spec("a local job is cancelled on its machine", func(w *world) {
		runID, _ := w.suspended(list(local()))
		here := w.another(on("here", "b1"))
		w.must(here.TriggerStarted(w.ctx, w.claimTrigger(here).TriggerToken, "", time.Hour))
		_, err := w.a.Cancel(w.ctx, runID)
		w.must(err)
		w.noTriggerDue(w.another(on("there", "b2")))
		equal(w, "action", w.claimTrigger(here).Action, store.ActionCancel)
	})
}
